//! Asks the coordinator, one question after the other.

use quinn::{Connection, Endpoint};
use spdl_wire::{
    certs::Role,
    messages::{FromCoordinator, ToCoordinator},
    quic::{Close, connect_host, request},
};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::Input;
use crate::core::Event;

/// How long reaching one address may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks what comes in, until nothing can come any more.
pub(super) async fn ask_all(
    endpoint: Endpoint,
    addresses: Vec<String>,
    mut questions: UnboundedReceiver<ToCoordinator>,
    inputs: UnboundedSender<Input>,
) {
    let mut coordinator = Coordinator { endpoint, addresses, first: 0, connection: None };
    while let Some(question) = questions.recv().await {
        let event = match coordinator.ask(&question).await {
            Ok(answer) => Event::Answered(Box::new(answer)),
            Err(cause) => Event::Unanswered { cause },
        };
        if inputs.send(Input::Event(event)).is_err() {
            break;
        }
    }
    if let Some(connection) = coordinator.connection {
        Close::Done.close(&connection, "the client is done");
    }
}

struct Coordinator {
    endpoint: Endpoint,
    addresses: Vec<String>,
    /// The address that answered last is tried first.
    first: usize,
    connection: Option<Connection>,
}

impl Coordinator {
    async fn ask(&mut self, question: &ToCoordinator) -> Result<FromCoordinator, String> {
        let connection = match self.connection.take().filter(|connection| connection.close_reason().is_none()) {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let answer = request(&connection, question, ANSWER_TIMEOUT).await;
        let address = &self.addresses[self.first];
        let answer = answer.map_err(|error| format!("`{address}`: {error}"))?;
        self.connection = Some(connection);
        Ok(answer)
    }

    async fn connect(&mut self) -> Result<Connection, String> {
        let mut causes = Vec::with_capacity(self.addresses.len());
        for attempt in 0..self.addresses.len() {
            let index = (self.first + attempt) % self.addresses.len();
            let address = &self.addresses[index];
            match connect_host(&self.endpoint, address, Role::Coordinator, CONNECT_TIMEOUT).await {
                Ok(connection) => {
                    self.first = index;
                    return Ok(connection);
                }
                Err(error) => causes.push(format!("`{address}`: {error}")),
            }
        }
        Err(causes.join("; "))
    }
}
