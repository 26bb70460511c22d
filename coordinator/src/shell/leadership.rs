//! Whether this coordinator leads, and what a standby answers.

use std::{sync::Arc, time::Instant};

use parking_lot::RwLock;
use spdl_control::{
    coordinator::{ConnectionId, RequestPeer, Status},
    messages::{FromCoordinator, Refusal, ToCoordinator},
};
use spdl_wire::{health::Health, rejections::Rejections};

use super::{
    driver::Driver,
    metrics::{Requests, request_name},
};
use crate::state::LeaseDeadline;

/// The knowledge of a standby about the leader.
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
            Self::Leaderless { cause } => format!("no coordinator does at the moment: {cause}"),
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
    rejections: Arc<Rejections>,
    started: Instant,
    health: Arc<Health>,
}

impl Leadership {
    pub(crate) fn new() -> Arc<Self> {
        let cause = "it has just started".to_owned();
        Arc::new(Self {
            state: RwLock::new(LeadershipState::Standby(Standby::Leaderless { cause })),
            requests: Requests::default(),
            rejections: Arc::default(),
            started: Instant::now(),
            health: Arc::default(),
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
            let problem = || format!("the coordinator panicked over a request `{name}`");
            let answer = self
                .health
                .watch(problem, driver.request(peer, request))
                .await
                .unwrap_or_else(|| FromCoordinator::Refused(Refusal::Internal { cause: problem() }));
            reply = self.driver().filter(|leading| Arc::ptr_eq(leading, &driver)).map(|_| answer);
        }
        let reply = reply.unwrap_or_else(|| {
            let state = self.standing();
            FromCoordinator::Refused(Refusal::NotLeader { leader: state.leader(), cause: state.cause() })
        });
        self.requests.count(name, &reply);
        reply
    }

    /// Runs a task of the coordinator. If it panics, the probes fail from then on.
    pub(crate) async fn watch(self: Arc<Self>, name: &'static str, task: impl Future<Output = ()>) {
        self.health.watch(|| format!("the task that {name} has panicked"), task).await;
    }

    /// Returns what panicked first, if anything did.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.health.problem()
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

    pub(crate) fn rejections(&self) -> &Arc<Rejections> {
        &self.rejections
    }

    /// Returns why changes cannot be made durable at the moment, or `None` if they can.
    pub(crate) fn state_problem(&self) -> Option<String> {
        self.driver()?.state_problem()
    }

    /// Returns the text for the readiness probe: `Ok` if this coordinator does its part, which for a standby means that
    /// it knows the leader.
    pub(crate) fn readiness(&self) -> Result<String, String> {
        if let Some(problem) = self.problem() {
            return Err(problem.to_owned());
        }
        match self.driver() {
            Some(driver) => driver.state_problem().map_or_else(|| Ok("ready".to_owned()), Err),
            None => match self.standing() {
                state @ Standby::Behind { .. } => Ok(format!("ready, on standby: {}", state.cause())),
                state @ Standby::Leaderless { .. } => Err(format!("does not lead: {}", state.cause())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_probes_report_a_task_that_panics_and_not_one_that_ends() {
        let leadership = Leadership::new();
        Arc::clone(&leadership).watch("ends", std::future::ready(())).await;
        assert_eq!(leadership.problem(), None);
        Arc::clone(&leadership).watch("adds up", async { panic!("it does not") }).await;
        let expected = "the task that adds up has panicked";
        assert_eq!((leadership.problem(), leadership.readiness()), (Some(expected), Err(expected.to_owned())));
    }
}
