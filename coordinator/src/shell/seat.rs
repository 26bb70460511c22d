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
    core::{ConnectionId, Peer, Status},
    state::Tenure,
};

/// Who leads when this coordinator does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StandBy {
    /// Another one, with this address, where it says one, and name.
    Behind { address: Option<String>, name: String },
    /// Nobody, as far as can be told: why.
    Leaderless { cause: String },
}

impl StandBy {
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

enum Place {
    Leads { driver: Arc<Driver>, tenure: Tenure },
    StandsBy(StandBy),
}

/// This coordinator's place among those of its cluster. Shared by all tasks.
pub(crate) struct Seat {
    place: RwLock<Place>,
    requests: Requests,
    turned_away: TurnedAway,
    started: Instant,
    /// Which task has panicked first: what this coordinator knows may be wrong since.
    broken: OnceLock<String>,
}

impl Seat {
    pub(crate) fn new() -> Arc<Self> {
        let cause = "it has just started".to_owned();
        Arc::new(Self {
            place: RwLock::new(Place::StandsBy(StandBy::Leaderless { cause })),
            requests: Requests::default(),
            turned_away: TurnedAway::default(),
            started: Instant::now(),
            broken: OnceLock::new(),
        })
    }

    /// Leads from now on, for as long as the tenure lasts.
    pub(crate) fn lead(&self, driver: Arc<Driver>, tenure: Tenure) {
        self.take(Place::Leads { driver, tenure });
    }

    /// Does not lead any more, or hears from those who do.
    pub(crate) fn stand_by(&self, place: StandBy) {
        self.take(Place::StandsBy(place));
    }

    fn take(&self, place: Place) {
        let old = std::mem::replace(&mut *self.place.write(), place);
        // Not while others are kept from it: what is dropped waits a little for its state to be written.
        drop(old);
    }

    /// What there is to lead with, while this coordinator leads.
    pub(crate) fn driver(&self) -> Option<Arc<Driver>> {
        match &*self.place.read() {
            Place::Leads { driver, tenure } if tenure.holds() => Some(Arc::clone(driver)),
            _ => None,
        }
    }

    fn standing(&self) -> StandBy {
        match &*self.place.read() {
            Place::Leads { .. } => StandBy::Leaderless { cause: "its lease has run out".to_owned() },
            Place::StandsBy(place) => place.clone(),
        }
    }

    /// Answers a request, or says who does. An answer that took until after the end of the tenure is not given.
    pub(crate) async fn request(&self, peer: &Peer, request: ToCoordinator) -> FromCoordinator {
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
            let place = self.standing();
            FromCoordinator::Refused(Refusal::NotLeader { leader: place.leader(), cause: place.cause() })
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
                place @ StandBy::Behind { .. } => Ok(format!("ready, on stand-by: {}", place.cause())),
                place @ StandBy::Leaderless { .. } => Err(format!("does not lead: {}", place.cause())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_told_by_the_probes_and_one_that_ends_is_not() {
        let seat = Seat::new();
        Arc::clone(&seat).watch("ends", std::future::ready(())).await;
        assert_eq!(seat.broken(), None);
        Arc::clone(&seat).watch("adds up", async { panic!("it does not") }).await;
        let expected = "the task that adds up has panicked";
        assert_eq!((seat.broken(), seat.readiness()), (Some(expected), Err(expected.to_owned())));
    }
}
