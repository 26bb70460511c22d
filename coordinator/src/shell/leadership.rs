//! Whether this coordinator leads, and what it answers when it does not.

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

/// Who leads when this coordinator does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standby {
    /// Another one, with this address, where it says one, and name.
    Behind { address: Option<String>, name: String },
    /// Nobody, as far as can be told: why.
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

/// This coordinator's place among those of its cluster. Shared by all tasks.
pub(crate) struct Leadership {
    state: RwLock<LeadershipState>,
    requests: Requests,
    turned_away: TurnedAway,
    started: Instant,
    /// Which task has panicked first: what this coordinator knows may be wrong since.
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

    /// Leads from now on, for as long as the tenure lasts.
    pub(crate) fn lead(&self, driver: Arc<Driver>, deadline: LeaseDeadline) {
        self.replace(LeadershipState::Leader { driver, deadline });
    }

    /// Does not lead any more, or hears from those who do.
    pub(crate) fn stand_by(&self, state: Standby) {
        self.replace(LeadershipState::Standby(state));
    }

    fn replace(&self, state: LeadershipState) {
        let old = std::mem::replace(&mut *self.state.write(), state);
        // Not while others are kept from it: what is dropped waits a little for its state to be written.
        drop(old);
    }

    /// What there is to lead with, while this coordinator leads.
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

    /// Answers a request, or says who does. An answer that took until after the end of the tenure is not given.
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

    /// Something has panicked: the probes say so from here on, as only a restart helps. Nothing durable is lost by it.
    pub(crate) fn broke(&self, what: String) {
        tracing::error!("{what}: restart this coordinator");
        let _ = self.broken.set(what);
    }

    /// Runs a task of the coordinator's; when it panics, the probes say so.
    pub(crate) async fn watch(self: Arc<Self>, name: &'static str, task: impl Future<Output = ()>) {
        if AssertUnwindSafe(task).catch_unwind().await.is_err() {
            self.broke(format!("the task that {name} has panicked"));
        }
    }

    /// What has panicked, where something has.
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

    /// Why changes are not durable at the moment, when they are not.
    pub(crate) fn state_problem(&self) -> Option<String> {
        self.driver()?.state_problem()
    }

    /// In words for a probe: as `Ok` when it does its part, which on stand-by is to know who leads.
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
