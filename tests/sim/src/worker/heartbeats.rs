//! A worker's heartbeats to the coordinator: one request at a time.

use spdl_control::messages::{FromCoordinator, Home, RankStats, Refusal, ToCoordinator, WorkerHeartbeat};

use super::{
    BACKOFF, BAD_PER_HEARTBEAT, HeartbeatState, MORE_BAD_US, REFUSED_US, SimFeed, SimShutdown, node_of, socket_of,
};
use crate::{
    process::Target,
    world::{ProcessInput, World},
};

impl World {
    pub(super) fn heartbeat_after(&mut self, worker: usize, delay_us: u64, heartbeat_state: HeartbeatState) {
        let state = &mut self.workers[worker];
        state.heartbeat_state = heartbeat_state;
        state.heartbeat_timer += 1;
        let timer = state.heartbeat_timer;
        self.remind(delay_us, Target::Worker(worker), ProcessInput::Heartbeat { timer });
    }

    /// Sends a heartbeat at once, because the worker began to drain.
    pub(super) fn heartbeat_at_once(&mut self, worker: usize) {
        if self.workers[worker].heartbeat_state == (HeartbeatState::Resting { is_draining: false }) {
            self.coverage.count("worker_heartbeat_at_once");
            self.heartbeat(worker);
        }
    }

    /// Sends a heartbeat at once, because the connection to the coordinator was lost between requests.
    pub(crate) fn worker_alone(&mut self, worker: usize) {
        if matches!(self.workers[worker].heartbeat_state, HeartbeatState::Resting { .. }) {
            self.coverage.count("worker_heartbeat_at_once");
            self.heartbeat(worker);
        }
    }

    pub(super) fn heartbeat(&mut self, worker: usize) {
        let state = &self.workers[worker];
        let address = std::net::SocketAddr::from(([10, 0, 0, worker as u8], 7500 + worker as u16));
        let home = Home {
            worker: state.id,
            name: format!("w{worker}"),
            node: node_of(state.process.host),
            quic: address,
            socket: Some(socket_of(worker)),
        };
        let is_draining = state.shutdown > SimShutdown::Running;
        let (now_ms, is_short) = (self.now_us / 1_000, self.dice.percent(3));
        self.workers[worker].sharing.sweep(now_ms, is_short);
        let state = &self.workers[worker];
        let stats = |feed: &SimFeed| RankStats {
            session: feed.session.id,
            rank: feed.rank,
            transport: feed.transport,
            batches: feed.batches,
            ready: 0,
            slots: feed.slots,
            stall: None,
        };
        let (uptime_ms, stages) = match self.scenario.has_help() {
            true => {
                let (uptime_ms, decode) = state.help.measured(self.now_us);
                (uptime_ms, vec![decode])
            }
            false => (0, Vec::new()),
        };
        let bad_samples = state.bad.unreported(BAD_PER_HEARTBEAT);
        let reported = bad_samples.iter().map(|bad| self.oracle.reported_bad(&bad.job, bad.sample.0)).collect();
        let heartbeat = WorkerHeartbeat {
            home,
            cores: self.scenario.help_role(worker).map_or(4.0, |role| role.cores),
            draining: is_draining,
            ranks: state.feeds.values().map(stats).collect(),
            stages,
            uptime_ms,
            cpu_ns: 0,
            sending_thread_ns: 0,
            store: Default::default(),
            cache: Default::default(),
            slow_object: None,
            tuning: Default::default(),
            bad_samples,
            peer_map: state.peer_map.version,
            peers: Default::default(),
            help: Box::new(self.help_report(worker)),
        };
        self.workers[worker].reported = reported;
        self.workers[worker].heartbeat_state = HeartbeatState::Asking { is_draining };
        self.ask(Target::Worker(worker), ToCoordinator::WorkerHeartbeat(heartbeat));
    }

    pub(crate) fn worker_answered(&mut self, worker: usize, answer: &FromCoordinator) {
        if let FromCoordinator::WorkerAcknowledged { helpers: Some(list), .. } = answer {
            self.set_helpers(worker, (**list).clone());
        }
        if let FromCoordinator::WorkerAcknowledged { peers: Some(map), .. } = answer {
            self.coverage.count("map_of_homes_changed");
            self.workers[worker].peer_map = (**map).clone();
        }
        let state = &mut self.workers[worker];
        let HeartbeatState::Asking { is_draining } = state.heartbeat_state else {
            // The leave request was answered.
            return self.leave_after(worker, 1);
        };
        let pause_us = match answer {
            FromCoordinator::WorkerAcknowledged { heartbeat_ms, .. } => {
                state.failures = 0;
                let reported = std::mem::take(&mut state.reported);
                state.bad.acknowledge(reported.len());
                let count = reported.len();
                self.oracle.bad_samples_acknowledged(reported);
                if is_draining && state.shutdown == SimShutdown::Draining {
                    self.leave_after(worker, 1);
                }
                if count == BAD_PER_HEARTBEAT { MORE_BAD_US } else { heartbeat_ms * 1_000 }
            }
            FromCoordinator::Refused(Refusal::Internal { .. } | Refusal::Unwritable { .. }) => {
                if is_draining && state.shutdown == SimShutdown::Draining {
                    self.leave_after(worker, 1);
                }
                REFUSED_US
            }
            _ => REFUSED_US,
        };
        self.heartbeat_after(worker, pause_us, HeartbeatState::Resting { is_draining });
        if self.workers[worker].shutdown > SimShutdown::Running {
            self.heartbeat_at_once(worker);
        }
    }

    /// Schedules a reconnection after a pause, because no coordinator answered.
    pub(crate) fn worker_unanswered(&mut self, worker: usize) {
        let state = &mut self.workers[worker];
        if !matches!(state.heartbeat_state, HeartbeatState::Asking { .. }) {
            return self.leave_after(worker, 1);
        }
        state.failures += 1;
        let limit_us = BACKOFF.limit(state.failures).as_micros() as u64;
        let pause_us = limit_us / 2 + self.dice.within(0, limit_us / 2);
        self.heartbeat_after(worker, pause_us, HeartbeatState::BackingOff);
    }
}
