//! Sends requests to the coordinator, one at a time.

use std::time::Duration;

use quinn::Endpoint;
use spdl_wire::{
    coordinators::{Addresses, Asker, Search},
    messages::ToCoordinator,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::Input;
use crate::core::Event;

/// How long connecting to one address may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends each request that arrives and reports its answer, until the session drops the channel.
pub(super) async fn ask_all(
    endpoint: Endpoint,
    addresses: Addresses,
    mut questions: UnboundedReceiver<ToCoordinator>,
    inputs: UnboundedSender<Input>,
) {
    let mut asker = Asker::new(endpoint, Search::new(addresses), CONNECT_TIMEOUT);
    while let Some(question) = questions.recv().await {
        let event = match asker.ask(&question, ANSWER_TIMEOUT).await {
            Ok(answer) => Event::Answered(Box::new(answer)),
            Err(error) => Event::Unanswered { cause: error.to_string() },
        };
        if inputs.send(Input::Event(event)).is_err() {
            break;
        }
    }
    asker.close("the client is done");
}
