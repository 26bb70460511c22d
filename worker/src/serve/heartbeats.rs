//! Sends heartbeats to the coordinator. Serving does not depend on them: ranks are served while the coordinator is
//! away.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use quinn::Endpoint;
use spdl_accounting::nanoseconds;
use spdl_control::{
    coordinators::{Addresses, LeaderDiscovery},
    help::{HelpReport, HelperList},
    messages::{FromCoordinator, Home, Refusal, ToCoordinator, WorkerHeartbeat},
    peers::PeerMap,
    trace::TraceSource,
};
use spdl_types::backoff::Backoff;
use spdl_wire::{coordinators::CoordinatorClient, trace::Tracer};
use tokio::sync::{Mutex, watch};

use super::{WorkerRole, ranks::Ranks};
use crate::feed::Resources;

/// Limit for connecting to a coordinator, and for its answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Shortest and longest delay between attempts to reach the leading coordinator.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
/// Maximum number of bad samples in one heartbeat; the rest is sent with the next.
const BAD_PER_HEARTBEAT: usize = 256;
/// Delay until the next heartbeat after a refused one.
const REFUSED_MS: u64 = 500;
/// Range of the heartbeat interval that a coordinator may set.
const HEARTBEAT_MS: std::ops::RangeInclusive<u64> = 20..=60_000;

/// Creates the client that [`Heartbeats`] sends with.
pub(super) fn coordinator_client(endpoint: Endpoint, coordinators: Addresses) -> Mutex<CoordinatorClient> {
    Mutex::new(CoordinatorClient::new(endpoint, LeaderDiscovery::new(coordinators), TIMEOUT))
}

/// Sends the worker's heartbeats.
#[derive(Debug)]
pub(super) struct Heartbeats {
    /// Locked while heartbeats are sent; free for the notice of leaving once that has ended.
    pub(super) coordinator_client: Mutex<CoordinatorClient>,
    pub(super) home: Home,
    pub(super) resources: Arc<Resources>,
    pub(super) ranks: Arc<Ranks>,
    pub(super) role: WorkerRole,
    /// Whether a coordinator has accepted the last heartbeat.
    pub(super) is_accepted: watch::Sender<bool>,
    pub(super) draining: watch::Sender<Draining>,
}

/// Whether the worker accepts no more ranks, and whether a coordinator has been informed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Draining {
    #[default]
    No,
    Yes,
    /// A coordinator has been informed.
    Acknowledged,
}

impl Heartbeats {
    /// Sends heartbeats until the future is dropped. While no coordinator answers, tries again with back-off.
    pub(super) async fn run(&self) {
        let mut coordinator_client = self.coordinator_client.lock().await;
        let mut failures = 0;
        let mut is_loss_logged = false;
        let mut refused = None;
        let mut draining = self.draining.subscribe();
        let mut tracer = Tracer::new(self.resources.clone());
        loop {
            let heartbeat = self.heartbeat(*draining.borrow_and_update() != Draining::No);
            let is_draining = heartbeat.draining;
            let bad_samples_sent = heartbeat.bad_samples.len();
            match coordinator_client.ask(&ToCoordinator::WorkerHeartbeat(heartbeat), TIMEOUT).await {
                Ok(reply) => {
                    if is_loss_logged {
                        tracing::info!(coordinators = %coordinator_client.coordinators(), "reached a coordinator again");
                    }
                    (failures, is_loss_logged) = (0, false);
                    tracer.follow(reply.trace_order());
                    let (pause, refusal) = self.handle_reply(reply, bad_samples_sent, is_draining);
                    if refusal != refused {
                        if let Some(cause) = &refusal {
                            tracing::warn!(coordinators = %coordinator_client.coordinators(), cause, "the coordinator refuses the heartbeats of this worker");
                        }
                        refused = refusal;
                    }
                    let is_recorded = tokio::select! {
                        () = tokio::time::sleep(pause) => false,
                        // The coordinator answers with the workers that read the same blocks.
                        () = self.ranks.joined() => false,
                        // The start of draining is sent at once.
                        _ = draining.wait_for(|state| *state == Draining::Yes), if !is_draining => false,
                        () = coordinator_client.until_closed() => false,
                        () = tracer.until_over() => true,
                    };
                    if is_recorded {
                        let source = TraceSource::Worker(self.home.worker);
                        tracer.send(&mut coordinator_client, source, &self.home.name).await;
                    }
                }
                Err(error) => {
                    self.is_accepted.send_replace(false);
                    self.resources.fetcher.peers.set_coordinated(false);
                    if !is_loss_logged {
                        let coordinators = coordinator_client.coordinators();
                        tracing::warn!(%coordinators, %error, "no coordinator answers; the ranks are still served");
                        is_loss_logged = true;
                    }
                    failures += 1;
                    tokio::time::sleep(BACKOFF.full_jitter(failures, rand::random())).await;
                }
            }
        }
    }

    /// Handles the reply to a heartbeat that contained `bad_samples_sent` bad samples. Returns the time until the next
    /// heartbeat, and the reason if this one was refused.
    fn handle_reply(
        &self,
        reply: FromCoordinator,
        bad_samples_sent: usize,
        is_draining: bool,
    ) -> (Duration, Option<String>) {
        let HeartbeatReply { is_accepted, are_bad_kept, pause_ms, refusal, peers, helpers } =
            read_reply(reply, bad_samples_sent);
        if let Some(map) = peers {
            self.resources.fetcher.peers.set_map(*map);
        }
        if let Some(helpers) = helpers {
            self.resources.helpers.set(*helpers);
        }
        if are_bad_kept {
            self.resources.decoding.bad.lock().acknowledge(bad_samples_sent);
        }
        self.is_accepted.send_replace(is_accepted);
        self.resources.fetcher.peers.set_coordinated(is_accepted);
        if is_accepted && is_draining {
            self.draining.send_replace(Draining::Acknowledged);
        }
        (Duration::from_millis(pause_ms.clamp(*HEARTBEAT_MS.start(), *HEARTBEAT_MS.end())), refusal)
    }

    fn heartbeat(&self, draining: bool) -> WorkerHeartbeat {
        let now = Instant::now();
        self.resources.helpers.jobs.forget_idle(now);
        WorkerHeartbeat {
            home: self.home.clone(),
            cores: self.resources.budget().cores,
            draining,
            ranks: self.ranks.stats(),
            uptime_ms: u64::try_from(self.resources.uptime(now).as_millis()).unwrap_or(u64::MAX),
            cpu_ns: nanoseconds(self.resources.cpu_time()),
            sending_thread_ns: self.resources.stages.send.read_busiest_thread(),
            stages: self.resources.stages(now),
            store: Box::new(self.resources.store_stats()),
            cache: self.resources.cache_stats(),
            slow_object: self.resources.slow_object().map(Box::new),
            tuning: Box::new(self.resources.tuning()),
            bad_samples: self.resources.decoding.bad.lock().unreported(BAD_PER_HEARTBEAT),
            peer_map: self.resources.fetcher.peers.version(),
            peers: Box::new(self.resources.fetcher.peers.stats()),
            help: Box::new(HelpReport {
                is_helper: self.role != WorkerRole::Home && self.resources.helpers.is_started(),
                is_helper_only: self.role == WorkerRole::Helper,
                is_helped: self.resources.helpers.is_started(),
                helpers: self.resources.helpers.version(),
                stats: self.resources.helpers.stats(),
            }),
        }
    }

    /// Announces that the worker accepts no more ranks. Returns when a coordinator has been informed.
    pub(super) async fn drain(&self) {
        let mut draining = self.draining.subscribe();
        self.draining.send_replace(Draining::Yes);
        let _ = draining.wait_for(|state| *state == Draining::Acknowledged).await.map(drop);
    }

    /// Reports that the worker leaves, if a coordinator can be reached. Call it after heartbeats have stopped.
    pub(super) async fn leave(&self) {
        let leave = ToCoordinator::WorkerLeave { worker: self.home.worker };
        match self.coordinator_client.lock().await.ask(&leave, TIMEOUT).await {
            Ok(_) => tracing::debug!("left the cluster"),
            Err(error) => tracing::debug!(%error, "left; no coordinator could be notified"),
        }
    }
}

/// The meaning of a reply to a heartbeat.
#[derive(Debug, PartialEq, Eq)]
struct HeartbeatReply {
    is_accepted: bool,
    are_bad_kept: bool,
    pause_ms: u64,
    refusal: Option<String>,
    peers: Option<Box<PeerMap>>,
    helpers: Option<Box<HelperList>>,
}

fn read_reply(reply: FromCoordinator, bad_samples_sent: usize) -> HeartbeatReply {
    let refused = |is_accepted, cause| HeartbeatReply {
        is_accepted,
        are_bad_kept: false,
        pause_ms: REFUSED_MS,
        refusal: Some(cause),
        peers: None,
        helpers: None,
    };
    match reply {
        FromCoordinator::WorkerAcknowledged { heartbeat_ms, peers, helpers, .. } => {
            let pause_ms = if bad_samples_sent == BAD_PER_HEARTBEAT { *HEARTBEAT_MS.start() } else { heartbeat_ms };
            HeartbeatReply { is_accepted: true, are_bad_kept: true, pause_ms, refusal: None, peers, helpers }
        }
        // The coordinator got the heartbeat but could not store the bad samples, so they are sent again.
        FromCoordinator::Refused(refusal @ (Refusal::Internal { .. } | Refusal::Unwritable { .. })) => {
            refused(true, refusal.to_string())
        }
        other => refused(false, format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_accepted_even_if_its_bad_samples_cannot_be_stored_and_they_are_sent_again() {
        let full = FromCoordinator::Refused(Refusal::Unwritable { cause: "the disk is full".to_owned() });
        let HeartbeatReply { is_accepted, are_bad_kept, pause_ms, refusal, .. } = read_reply(full, 3);
        assert!(is_accepted && !are_bad_kept && pause_ms == REFUSED_MS, "a worker that ends need not wait");
        assert!(refusal.unwrap().contains("the disk is full"));
        let accepted = FromCoordinator::WorkerAcknowledged {
            heartbeat_ms: 7,
            liveness_ms: 9,
            trace: None,
            peers: None,
            helpers: None,
        };
        assert!(read_reply(accepted, 3).are_bad_kept);
        assert!(!read_reply(FromCoordinator::Done, 0).is_accepted);
    }
}
