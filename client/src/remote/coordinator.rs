//! Sends requests to the coordinator, one at a time.

use std::time::Duration;

use quinn::Endpoint;
use spdl_core::{
    client::SessionEvent,
    coordinators::{Addresses, LeaderDiscovery},
    messages::ToCoordinator,
};
use spdl_wire::coordinators::CoordinatorClient;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::DriverInput;

/// How long connecting to one address may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends each request that arrives and reports its answer, until the session drops the channel.
pub(super) async fn ask_all(
    endpoint: Endpoint,
    addresses: Addresses,
    mut questions: UnboundedReceiver<ToCoordinator>,
    inputs: UnboundedSender<DriverInput>,
) {
    let mut coordinator_client = CoordinatorClient::new(endpoint, LeaderDiscovery::new(addresses), CONNECT_TIMEOUT);
    while let Some(question) = questions.recv().await {
        let event = match coordinator_client.ask(&question, ANSWER_TIMEOUT).await {
            Ok(answer) => SessionEvent::Answered(Box::new(answer)),
            Err(error) => SessionEvent::Unanswered { cause: error.to_string() },
        };
        if inputs.send(DriverInput::Event(event)).is_err() {
            break;
        }
    }
    coordinator_client.close("the client is done");
}
