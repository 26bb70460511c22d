//! Sends requests to the coordinator, one at a time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use quinn::Endpoint;
use spdl_accounting::{Recording, StageCounters};
use spdl_control::{
    client::SessionEvent,
    coordinators::{Addresses, LeaderDiscovery},
    messages::{FromCoordinator, ToCoordinator},
    trace::{STEP, TraceSource},
};
use spdl_types::Stage;
use spdl_wire::{
    coordinators::CoordinatorClient,
    quic::CONNECT_TIMEOUT,
    trace::{Recorded, Tracer},
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender},
    oneshot,
};

use super::{DriverInput, MeasuredResult};
use crate::{ClientError, WaitClock};

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A request, and the receiver of its answer.
pub(super) enum Question {
    /// The session's core.
    OfSession(ToCoordinator),
    /// The trainer, which requests the measurements of its rank.
    OfTrainer(ToCoordinator, oneshot::Sender<MeasuredResult>),
}

/// The stages of a trainer: the slots that receive batches, and the trainer's steps.
#[derive(Debug)]
pub(super) struct RankStages {
    pub(super) receive: Arc<StageCounters>,
    pub(super) clock: WaitClock,
}

impl Recorded for RankStages {
    fn record(&self, capacity: usize) {
        self.receive.units().record(capacity, Instant::now());
        self.clock.record(capacity);
    }

    fn take_recordings(&self) -> Vec<(Stage, Recording)> {
        let received = self.receive.units().take_recording(Instant::now());
        let stages = [(Stage::Receive, received), (STEP.into(), self.clock.take_recording())];
        stages.into_iter().filter_map(|(stage, recording)| Some((stage, recording?))).collect()
    }
}

/// Sends each request that arrives and reports its answer, until the session drops the channel. Between requests, it
/// sends what was recorded for a trace.
pub(super) async fn ask_all(
    endpoint: Endpoint,
    addresses: Addresses,
    mut questions: UnboundedReceiver<Question>,
    inputs: UnboundedSender<DriverInput>,
    stages: RankStages,
) {
    let mut coordinator_client = CoordinatorClient::new(endpoint, LeaderDiscovery::new(addresses), CONNECT_TIMEOUT);
    let mut tracer = Tracer::new(Arc::new(stages));
    let mut source = None;
    loop {
        let question = tokio::select! {
            question = questions.recv() => question,
            () = tracer.until_over() => {
                if let Some(source) = source {
                    tracer.send(&mut coordinator_client, source, &super::client_name()).await;
                }
                continue;
            }
        };
        let Some(question) = question else { break };
        let (Question::OfSession(request) | Question::OfTrainer(request, _)) = &question;
        if let ToCoordinator::RankHeartbeat(heartbeat) = request {
            source = Some(TraceSource::Rank { session: heartbeat.session, rank: heartbeat.rank });
        }
        let answer = coordinator_client.ask(request, ANSWER_TIMEOUT).await.map_err(|error| error.to_string());
        if let Question::OfTrainer(_, reply) = question {
            let _ = reply.send(measured(answer));
            continue;
        }
        let event = match answer {
            Ok(answer) => {
                tracer.follow(answer.trace_order());
                SessionEvent::Answered(Box::new(answer))
            }
            Err(cause) => SessionEvent::Unanswered { cause },
        };
        if inputs.send(DriverInput::Event(event)).is_err() {
            break;
        }
    }
    coordinator_client.close("the client is done");
}

/// Reads the answer to the trainer's question.
fn measured(answer: Result<FromCoordinator, String>) -> MeasuredResult {
    match answer {
        Ok(FromCoordinator::Measured(measured)) => Ok(measured.map(|measured| *measured)),
        Ok(FromCoordinator::Refused(refusal)) => Err(ClientError::Undiagnosed { cause: refusal.to_string() }),
        Ok(other) => Err(ClientError::Undiagnosed { cause: format!("the coordinator answered {other:?}") }),
        Err(cause) => Err(ClientError::Undiagnosed { cause }),
    }
}
