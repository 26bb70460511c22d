//! Sends requests to the coordinator, one at a time.

use std::time::Duration;

use quinn::Endpoint;
use spdl_core::{
    client::SessionEvent,
    coordinators::{Addresses, LeaderDiscovery},
    messages::{FromCoordinator, ToCoordinator},
};
use spdl_wire::coordinators::CoordinatorClient;
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender},
    oneshot,
};

use super::{DriverInput, Measuring};
use crate::ClientError;

/// How long connecting to one address may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A request, and who gets the answer.
pub(super) enum Question {
    /// The session's core.
    OfSession(ToCoordinator),
    /// The trainer, who asks what was measured.
    OfTrainer(ToCoordinator, oneshot::Sender<Measuring>),
}

/// Sends each request that arrives and reports its answer, until the session drops the channel.
pub(super) async fn ask_all(
    endpoint: Endpoint,
    addresses: Addresses,
    mut questions: UnboundedReceiver<Question>,
    inputs: UnboundedSender<DriverInput>,
) {
    let mut coordinator_client = CoordinatorClient::new(endpoint, LeaderDiscovery::new(addresses), CONNECT_TIMEOUT);
    while let Some(question) = questions.recv().await {
        let (Question::OfSession(request) | Question::OfTrainer(request, _)) = &question;
        let answer = coordinator_client.ask(request, ANSWER_TIMEOUT).await.map_err(|error| error.to_string());
        if let Question::OfTrainer(_, reply) = question {
            let _ = reply.send(measured(answer));
            continue;
        }
        let event = match answer {
            Ok(answer) => SessionEvent::Answered(Box::new(answer)),
            Err(cause) => SessionEvent::Unanswered { cause },
        };
        if inputs.send(DriverInput::Event(event)).is_err() {
            break;
        }
    }
    coordinator_client.close("the client is done");
}

/// Reads the answer to the trainer's question.
fn measured(answer: Result<FromCoordinator, String>) -> Measuring {
    match answer {
        Ok(FromCoordinator::Measured(measured)) => Ok(measured.map(|measured| *measured)),
        Ok(FromCoordinator::Refused(refusal)) => Err(ClientError::Undiagnosed { cause: refusal.to_string() }),
        Ok(other) => Err(ClientError::Undiagnosed { cause: format!("the coordinator answered {other:?}") }),
        Err(cause) => Err(ClientError::Undiagnosed { cause }),
    }
}
