//! Drives the core: gives it the time, hands its changes to the writer in order, prints its log lines.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;
use spdl_shard::job::Job;
use spdl_wire::messages::{FromCoordinator, Refusal, ToCoordinator};

use super::{
    dataset::Datasets,
    metrics::{Outcome, Requests},
    writer::{StateWriter, Written},
};
use crate::{
    core::{
        Answer, Config, ConnectionId, Coordinator, Effect, LogLevel, LogLine, NearestThenLeastLoaded, Peer, Status,
    },
    error_text,
    state::{StateError, StateStore},
};

/// The core with everything it needs of the world. Shared by all tasks.
pub(crate) struct Driver {
    core: Mutex<Coordinator>,
    writer: StateWriter,
    started: Instant,
    datasets: Datasets,
    requests: Requests,
}

impl Driver {
    pub(crate) fn start(config: Config, store: Box<dyn StateStore>) -> Result<Arc<Self>, StateError> {
        let core = Coordinator::new(config, Box::new(NearestThenLeastLoaded), store.load()?, 0);
        Ok(Arc::new(Self {
            core: Mutex::new(core),
            writer: StateWriter::start(store),
            started: Instant::now(),
            datasets: Datasets::default(),
            requests: Requests::default(),
        }))
    }

    /// Answers a request, once what follows from it is durable. Where it cannot be made durable, only those who ask
    /// for a job to be kept or removed are refused: a full disk stops no running rank.
    pub(crate) async fn request(&self, peer: &Peer, request: ToCoordinator) -> FromCoordinator {
        let name = request_name(&request);
        let needs_disk = matches!(request, ToCoordinator::SubmitJob { .. } | ToCoordinator::RemoveJob { .. });
        let (answer, written) = self.act(|core, now_ms| core.handle_request(now_ms, peer, request));
        let reply = match answer {
            Answer::CreateJob { toml, origin } => {
                let reply = self.create_job(&toml, &origin).await;
                if let FromCoordinator::Refused(refusal) = &reply {
                    tracing::warn!("{} `{}` submitted a job: {refusal}", peer.role, peer.name);
                }
                reply
            }
            Answer::Reply(reply) => match wait(written).await {
                Err(cause) if needs_disk => FromCoordinator::Refused(Refusal::Internal { cause }),
                _ => reply,
            },
        };
        let is_refused = matches!(reply, FromCoordinator::Refused(_));
        self.requests.count(name, if is_refused { Outcome::Refused } else { Outcome::Done });
        reply
    }

    /// Makes a job of a job file's text.
    pub(crate) async fn create_job(&self, toml: &str, origin: &str) -> FromCoordinator {
        let job: Result<Job, Refusal> = self.datasets.freeze(toml, origin).await;
        let (reply, written) = self.act(|core, now_ms| core.handle_job(now_ms, job));
        match wait(written).await {
            Ok(()) => reply,
            Err(cause) => FromCoordinator::Refused(Refusal::Internal { cause }),
        }
    }

    /// Shows or hides what is wrong with a file of the jobs directory.
    pub(crate) fn set_problem(&self, origin: &str, problem: Option<String>) {
        self.act(|core, _| core.set_problem(origin, problem));
    }

    pub(crate) fn closed(&self, connection: ConnectionId) {
        self.act(|core, now_ms| core.handle_closed(now_ms, connection));
    }

    pub(crate) fn tick(&self) {
        self.act(|core, now_ms| core.handle_tick(now_ms));
    }

    /// Writes what is not durable yet, as before a stop.
    pub(crate) async fn flush(&self) {
        let ((), written) = self.act(|core, _| core.flush());
        let _ = wait(written).await;
    }

    pub(crate) fn status(&self) -> Status {
        // The tick makes the ages in the status those of now.
        self.act(|core, now_ms| {
            core.handle_tick(now_ms);
            core.status()
        })
        .0
    }

    pub(crate) fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Why changes are not durable at the moment, when they are not.
    pub(crate) fn state_problem(&self) -> Option<String> {
        self.writer.problem()
    }

    /// Runs the core and carries out what it asks for. The changes go to the writer before anyone else gets the core.
    fn act<R>(&self, event: impl FnOnce(&mut Coordinator, u64) -> R) -> (R, Option<Written>) {
        let mut core = self.core.lock();
        let result = event(&mut core, self.started.elapsed().as_millis() as u64);
        let mut changes = Vec::new();
        while let Some(effect) = core.poll_effect() {
            match effect {
                Effect::Persist(change) => changes.push(change),
                Effect::Log(line) => print(&line),
            }
        }
        let written = (!changes.is_empty()).then(|| self.writer.write(changes));
        (result, written)
    }
}

async fn wait(written: Option<Written>) -> Result<(), String> {
    match written {
        None => Ok(()),
        Some(written) => written.await.unwrap_or_else(|error| Err(error_text(&error))),
    }
}

fn print(LogLine { level, text }: &LogLine) {
    match level {
        LogLevel::Info => tracing::info!("{text}"),
        LogLevel::Warn => tracing::warn!("{text}"),
        LogLevel::Error => tracing::error!("{text}"),
    }
}

const fn request_name(request: &ToCoordinator) -> &'static str {
    match request {
        ToCoordinator::WorkerBeat(_) => "worker_beat",
        ToCoordinator::WorkerLeave { .. } => "worker_leave",
        ToCoordinator::Join(_) => "join",
        ToCoordinator::RankBeat(_) => "rank_beat",
        ToCoordinator::RankLeave(_) => "rank_leave",
        ToCoordinator::SubmitJob { .. } => "submit_job",
        ToCoordinator::RemoveJob { .. } => "remove_job",
        ToCoordinator::DescribeJob { .. } => "describe_job",
        ToCoordinator::Status => "status",
    }
}
