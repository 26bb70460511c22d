//! How a worker shuts down: it informs the coordinator, then the ranks that it serves, and leaves once they have.

use spdl_control::messages::ToCoordinator;

use super::{HeartbeatState, SimShutdown};
use crate::{
    net::{ConnId, SimMessage},
    process::Target,
    world::{Action, Event, ProcessInput, World},
};

/// The phases of a shutdown: how long the worker waits for the coordinator, how long it continues to serve clients, and
/// how long the clients remain that have found no other home.
const NOTICE_US: u64 = 300_000;
const DRAIN_US: u64 = 900_000;
const CLOSE_US: u64 = 300_000;

impl World {
    /// Begins a shutdown, as on SIGTERM: informs the coordinator, then the clients, which are served until they have
    /// left or the time is up.
    pub(crate) fn leave_worker(&mut self, worker: usize) {
        if self.workers[worker].shutdown == SimShutdown::Running {
            self.workers[worker].shutdown = SimShutdown::Draining;
            self.leave_after(worker, NOTICE_US);
            self.heartbeat_at_once(worker);
        }
    }

    pub(super) fn leave_after(&mut self, worker: usize, delay_us: u64) {
        let timer = self.workers[worker].leave_timer + 1;
        self.workers[worker].leave_timer = timer;
        self.remind(delay_us, Target::Worker(worker), ProcessInput::Leave { timer });
    }

    pub(super) fn on_leave(&mut self, worker: usize) {
        let target = Target::Worker(worker);
        let conns: Vec<ConnId> = self.workers[worker].feeds.keys().copied().collect();
        let (shutdown, next_us) = match self.workers[worker].shutdown {
            SimShutdown::Running | SimShutdown::Draining => (SimShutdown::Announced, DRAIN_US),
            SimShutdown::Announced => (SimShutdown::Closing, CLOSE_US),
            SimShutdown::Closing => {
                self.workers[worker].shutdown = SimShutdown::Gone;
                self.workers[worker].heartbeat_state = HeartbeatState::Ended;
                let leave = ToCoordinator::WorkerLeave { worker: self.workers[worker].id };
                self.ask_nothing_more(target);
                self.ask(target, leave);
                return self.leave_after(worker, NOTICE_US);
            }
            SimShutdown::Gone => return self.exit_worker(worker),
        };
        self.workers[worker].shutdown = shutdown;
        for conn in conns {
            match shutdown {
                SimShutdown::Announced => self.send(conn, 1, SimMessage::Leaving),
                _ => self.end_feed(worker, conn),
            }
        }
        self.leave_after(worker, next_us);
        self.leave_when_served(worker);
    }

    /// Continues the shutdown early if all ranks have left.
    pub(super) fn leave_when_served(&mut self, worker: usize) {
        let state = &self.workers[worker];
        if state.feeds.is_empty() && (SimShutdown::Announced..=SimShutdown::Closing).contains(&state.shutdown) {
            self.leave_after(worker, 1);
        }
    }

    fn exit_worker(&mut self, worker: usize) {
        self.kill_worker(worker);
        let away_us = self.dice.within(1_000_000, 10_000_000);
        self.schedule(away_us, Event::World(Action::Start(Target::Worker(worker))));
    }
}
