//! Sends requests to the coordinator that leads, over one connection that is kept open.

use std::time::Duration;

use quinn::{Connection, Endpoint};

use crate::quic::{Close, QuicError, connect_host, request, until_closed};
use spdl_control::{
    Role,
    coordinators::{Addresses, LeaderDiscovery},
    messages::{FromCoordinator, Refusal, ToCoordinator},
};

/// No leading coordinator answered.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct CoordinatorError {
    /// The outcome for each coordinator that was asked.
    outcomes: Vec<(String, Attempt)>,
}

#[derive(Debug)]
enum Attempt {
    Standby(Refusal),
    Failed(QuicError),
}

impl CoordinatorError {
    fn text(&self) -> String {
        let one = |(address, outcome): &(String, Attempt)| match outcome {
            Attempt::Standby(refusal) => format!("`{address}`: {refusal}"),
            Attempt::Failed(error) => format!("`{address}`: {error}"),
        };
        self.outcomes.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Returns whether a standby coordinator answered.
    #[must_use]
    pub fn is_leaderless(&self) -> bool {
        self.outcomes.iter().any(|(_, outcome)| matches!(outcome, Attempt::Standby(_)))
    }

    /// Returns whether no process listens at any address, as before the first coordinator has started.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.outcomes.iter().all(|(_, outcome)| matches!(outcome, Attempt::Failed(QuicError::PortClosed { .. })))
    }

    /// Returns whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.outcomes.iter().any(|(_, outcome)| match outcome {
            Attempt::Standby(_) => true,
            Attempt::Failed(error) => error.is_retryable(),
        })
    }
}

/// A client of the coordinators: sends one request after the other to the leader. A request whose reply was lost is
/// sent again, to another coordinator or at the next call; this is safe, because every request may be repeated.
#[derive(Debug)]
pub struct CoordinatorClient {
    endpoint: Endpoint,
    discovery: LeaderDiscovery,
    connect_timeout: Duration,
    /// The connection, and the address that it goes to.
    connection: Option<(String, Connection)>,
}

impl CoordinatorClient {
    /// Makes a client that connects from `endpoint`. `connect_timeout` limits one attempt to reach a coordinator; a
    /// longer one delays requests more when a coordinator's host is gone.
    #[must_use]
    pub const fn new(endpoint: Endpoint, discovery: LeaderDiscovery, connect_timeout: Duration) -> Self {
        Self { endpoint, discovery, connect_timeout, connection: None }
    }

    /// Returns the coordinators' addresses.
    #[must_use]
    pub const fn coordinators(&self) -> &Addresses {
        self.discovery.known()
    }

    /// Sends a request to the leader and returns its reply; `timeout` limits one reply. A refusal is a reply, except
    /// for [`Refusal::NotLeader`].
    ///
    /// Returns [`CoordinatorError`] if every coordinator was asked and no leader answered.
    pub async fn ask(
        &mut self,
        question: &ToCoordinator,
        timeout: Duration,
    ) -> Result<FromCoordinator, CoordinatorError> {
        let mut outcomes = Vec::new();
        let mut address = self.discovery.begin();
        loop {
            let (outcome, next) = match self.ask_one(&address, question, timeout).await {
                Ok(FromCoordinator::Refused(refusal @ Refusal::NotLeader { .. })) => {
                    let Refusal::NotLeader { leader, .. } = &refusal else { unreachable!("it was just matched") };
                    let next = self.discovery.refused(leader.as_deref());
                    (Attempt::Standby(refusal), next)
                }
                Ok(answer) => {
                    self.discovery.answered();
                    return Ok(answer);
                }
                Err(error) => (Attempt::Failed(error), self.discovery.failed()),
            };
            outcomes.push((address, outcome));
            match next {
                Some(next) => address = next,
                None => return Err(CoordinatorError { outcomes }),
            }
        }
    }

    async fn ask_one(
        &mut self,
        address: &str,
        question: &ToCoordinator,
        timeout: Duration,
    ) -> Result<FromCoordinator, QuicError> {
        let connection = match self.connection.take() {
            Some((of, connection)) if of == address && connection.close_reason().is_none() => connection,
            other => {
                if let Some((_, connection)) = other {
                    Close::Done.close(&connection, "the client asks another coordinator");
                }
                connect_host(&self.endpoint, address, Role::Coordinator, self.connect_timeout).await?
            }
        };
        let answer = request(&connection, question, timeout).await;
        match &answer {
            Ok(_) => self.connection = Some((address.to_owned(), connection)),
            Err(_) => Close::Done.close(&connection, "no answer arrived"),
        }
        answer
    }

    /// Waits until the connection to the leader is gone; returns at once if there is none.
    pub async fn until_closed(&self) {
        if let Some((_, connection)) = &self.connection {
            until_closed(connection).await;
        }
    }

    /// Closes the connection, and waits until that is known to the coordinator.
    pub async fn finish(mut self, reason: &str) {
        self.close(reason);
        self.endpoint.wait_idle().await;
    }

    /// Closes the connection.
    pub fn close(&mut self, reason: &str) {
        if let Some((_, connection)) = self.connection.take() {
            Close::Done.close(&connection, reason);
        }
    }
}
