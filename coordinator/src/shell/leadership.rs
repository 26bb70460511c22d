//! Whether this coordinator leads, and what a standby answers.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock},
    time::Instant,
};

use futures::FutureExt;
use parking_lot::RwLock;
use spdl_wire::messages::{FromCoordinator, Refusal, ToCoordinator};

use super::{
    driver::Driver,
    metrics::{Requests, TurnedAway, request_name},
};
use crate::{
    core::{ConnectionId, RequestPeer, Status},
    state::LeaseDeadline,
};

/// What a standby knows about the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standby {
    /// Another coordinator leads: its name and, if it advertises one, its address.
    Behind { address: Option<String>, name: String },
    /// No leader is known, for this reason.
    Leaderless { cause: String },
}

impl Standby {
    fn leader(&self) -> Option<String> {
        match self {
            Self::Behind { address, .. } => address.clone(),
            Self::Leaderless { .. } => None,
        }
    }

    fn cause(&self) -> String {
        match self {
            Self::Behind { address: Some(address), name } => format!("`{name}` at `{address}` does"),
            Self::Behind { address: None, name } => format!("`{name}` does"),
            Self::Leaderless { cause } => format!("nobody does at the moment: {cause}"),
        }
    }
}

enum LeadershipState {
    Leader { driver: Arc<Driver>, deadline: LeaseDeadline },
    Standby(Standby),
}

/// The role of this coordinator in its cluster: leader or standby. Shared by all tasks.
pub(crate) struct Leadership {
    state: RwLock<LeadershipState>,
    requests: Requests,
    turned_away: TurnedAway,
    started: Instant,
    /// The first task that panicked. From then on the state in memory may be wrong.
    broken: OnceLock<String>,
}

impl Leadership {
    pub(crate) fn new() -> Arc<Self> {
        let cause = "it has just started".to_owned();
        Arc::new(Self {
            state: RwLock::new(LeadershipState::Standby(Standby::Leaderless { cause })),
            requests: Requests::default(),
            turned_away: TurnedAway::default(),
            started: Instant::now(),
            broken: OnceLock::new(),
        })
    }

    /// Makes this coordinator the leader until the deadline passes.
    pub(crate) fn lead(&self, driver: Arc<Driver>, deadline: LeaseDeadline) {
        self.replace(LeadershipState::Leader { driver, deadline });
    }

    /// Makes this coordinator a standby, or updates what it knows about the leader.
    pub(crate) fn stand_by(&self, state: Standby) {
        self.replace(LeadershipState::Standby(state));
    }

    fn replace(&self, state: LeadershipState) {
        let old = std::mem::replace(&mut *self.state.write(), state);
        // Dropped after the lock is released: dropping a driver waits briefly for its state to be written.
        drop(old);
    }

    /// Returns the driver while this coordinator leads.
    pub(crate) fn driver(&self) -> Option<Arc<Driver>> {
        match &*self.state.read() {
            LeadershipState::Leader { driver, deadline } if deadline.is_valid() => Some(Arc::clone(driver)),
            _ => None,
        }
    }

    fn standing(&self) -> Standby {
        match &*self.state.read() {
            LeadershipState::Leader { .. } => Standby::Leaderless { cause: "its lease has run out".to_owned() },
            LeadershipState::Standby(state) => state.clone(),
        }
    }

    /// Answers a request, or refuses it with the address of the leader. An answer that is ready only after the deadline
    /// has passed is discarded.
    pub(crate) async fn request(&self, peer: &RequestPeer, request: ToCoordinator) -> FromCoordinator {
        let name = request_name(&request);
        let mut reply = None;
        if let Some(driver) = self.driver() {
            let answer = AssertUnwindSafe(driver.request(peer, request)).catch_unwind().await.unwrap_or_else(|_| {
                let cause = format!("the coordinator panicked over a request `{name}`");
                self.broke(cause.clone());
                FromCoordinator::Refused(Refusal::Internal { cause })
            });
            reply = self.driver().filter(|leading| Arc::ptr_eq(leading, &driver)).map(|_| answer);
        }
        let reply = reply.unwrap_or_else(|| {
            let state = self.standing();
            FromCoordinator::Refused(Refusal::NotLeader { leader: state.leader(), cause: state.cause() })
        });
        self.requests.count(name, &reply);
        reply
    }

    /// Records that a task panicked. From then on the probes fail, because only a restart helps; durable state is not
    /// lost.
    pub(crate) fn broke(&self, what: String) {
        tracing::error!("{what}: restart this coordinator");
        let _ = self.broken.set(what);
    }

    /// Runs a task of the coordinator and records a panic in it, which the probes then report.
    pub(crate) async fn watch(self: Arc<Self>, name: &'static str, task: impl Future<Output = ()>) {
        if AssertUnwindSafe(task).catch_unwind().await.is_err() {
            self.broke(format!("the task that {name} has panicked"));
        }
    }

    /// Returns what has panicked, if anything has.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.get().map(String::as_str)
    }

    pub(crate) fn closed(&self, connection: ConnectionId) {
        if let Some(driver) = self.driver() {
            driver.closed(connection);
        }
    }

    pub(crate) fn status(&self) -> Status {
        match self.driver() {
            Some(driver) => driver.status(),
            None => Status::stand_by(self.standing().leader(), self.started.elapsed().as_millis() as u64),
        }
    }

    pub(crate) fn requests(&self) -> &Requests {
        &self.requests
    }

    pub(crate) fn turned_away(&self) -> &TurnedAway {
        &self.turned_away
    }

    /// Returns why changes cannot be made durable at the moment, or `None` if they can.
    pub(crate) fn state_problem(&self) -> Option<String> {
        self.driver()?.state_problem()
    }

    /// Returns the text for the readiness probe: `Ok` if this coordinator does its part, which for a standby means that
    /// it knows the leader.
    pub(crate) fn readiness(&self) -> Result<String, String> {
        if let Some(broken) = self.broken() {
            return Err(broken.to_owned());
        }
        match self.driver() {
            Some(driver) => driver.state_problem().map_or_else(|| Ok("ready".to_owned()), Err),
            None => match self.standing() {
                state @ Standby::Behind { .. } => Ok(format!("ready, on stand-by: {}", state.cause())),
                state @ Standby::Leaderless { .. } => Err(format!("does not lead: {}", state.cause())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_told_by_the_probes_and_one_that_ends_is_not() {
        let leadership = Leadership::new();
        Arc::clone(&leadership).watch("ends", std::future::ready(())).await;
        assert_eq!(leadership.broken(), None);
        Arc::clone(&leadership).watch("adds up", async { panic!("it does not") }).await;
        let expected = "the task that adds up has panicked";
        assert_eq!((leadership.broken(), leadership.readiness()), (Some(expected), Err(expected.to_owned())));
    }
}
