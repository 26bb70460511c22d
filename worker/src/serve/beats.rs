//! Heartbeats to the coordinator. Serving does not depend on them: while it is away the ranks go on.

use std::{sync::Arc, time::Duration};

use quinn::{Connection, Endpoint};
use spdl_wire::{
    certs::Role,
    messages::{FromCoordinator, Home, ToCoordinator, WorkerBeat},
    quic::{self, QuicError},
};
use tokio::sync::watch;

use super::ranks::Ranks;
use crate::{feed::Resources, fetch::Backoff};

/// How long the coordinator may take to connect or to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Delays between attempts to reach it.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(2);
/// Bad samples that go with one beat; the others go with the next.
const BAD_PER_BEAT: usize = 256;
/// Until the next beat after one that was refused.
const REFUSED_MS: u64 = 500;
/// The limits of what a coordinator may set.
const BEAT_MS: std::ops::RangeInclusive<u64> = 20..=60_000;

/// Who beats, and what there is to tell.
#[derive(Debug)]
pub(super) struct Beats {
    pub(super) endpoint: Endpoint,
    /// `host:port`.
    pub(super) coordinator: String,
    pub(super) home: Home,
    pub(super) resources: Arc<Resources>,
    pub(super) ranks: Arc<Ranks>,
    /// Whether the coordinator has heard the last beat.
    pub(super) is_heard: watch::Sender<bool>,
}

impl Beats {
    /// Beats until it is dropped; connects again, with back-off, whenever the coordinator is away.
    pub(super) async fn run(&self) {
        let mut backoff = Backoff::new(FIRST_RETRY, MAX_RETRY);
        let mut was_told = false;
        loop {
            let error = match self.connect().await {
                Ok(connection) => {
                    if was_told {
                        tracing::info!(coordinator = self.coordinator, "reached the coordinator again");
                    }
                    (backoff, was_told) = (Backoff::new(FIRST_RETRY, MAX_RETRY), false);
                    self.beat_on(&connection).await
                }
                Err(error) => error,
            };
            self.is_heard.send_replace(false);
            if !was_told {
                tracing::warn!(coordinator = self.coordinator, %error, "coordinator is away; serving goes on");
                was_told = true;
            }
            tokio::time::sleep(backoff.delay(rand::random())).await;
        }
    }

    async fn connect(&self) -> Result<Connection, QuicError> {
        quic::connect_host(&self.endpoint, &self.coordinator, Role::Coordinator, TIMEOUT).await
    }

    /// Beats over one connection until it ends.
    async fn beat_on(&self, connection: &Connection) -> QuicError {
        loop {
            let beat = self.beat();
            let told = beat.bad_samples.len();
            let reply = match quic::request(connection, &ToCoordinator::WorkerBeat(beat), TIMEOUT).await {
                Ok(reply) => reply,
                Err(error) => return error,
            };
            let pause_ms = match reply {
                FromCoordinator::Heard { beat_ms, .. } => {
                    self.resources.acknowledge_bad(told);
                    self.is_heard.send_replace(true);
                    if told == BAD_PER_BEAT { *BEAT_MS.start() } else { beat_ms }
                }
                other => {
                    tracing::warn!(coordinator = self.coordinator, reply = ?other, "coordinator refuses our beat");
                    self.is_heard.send_replace(false);
                    REFUSED_MS
                }
            };
            let pause = Duration::from_millis(pause_ms.clamp(*BEAT_MS.start(), *BEAT_MS.end()));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                error = quic::until_gone(connection) => return error,
            }
        }
    }

    fn beat(&self) -> WorkerBeat {
        WorkerBeat {
            home: self.home.clone(),
            cores: self.resources.budget().cores,
            draining: false,
            ranks: self.ranks.figures(),
            stages: self.resources.stages(),
            bad_samples: self.resources.bad_samples(BAD_PER_BEAT),
        }
    }

    /// Says goodbye, if the coordinator can be reached.
    pub(super) async fn leave(&self) {
        let goodbye = async {
            let connection = self.connect().await?;
            let leave = ToCoordinator::WorkerLeave { worker: self.home.worker };
            quic::request(&connection, &leave, TIMEOUT).await
        };
        match goodbye.await {
            Ok(_) => tracing::debug!("left the cluster"),
            Err(error) => tracing::debug!(%error, "left without a goodbye"),
        }
    }
}
