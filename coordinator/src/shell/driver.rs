//! Drives the core: gives it the time, hands its changes to the writer in order, prints its log lines.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;
use spdl_shard::job::Job;
use spdl_wire::messages::{FromCoordinator, Refusal, ToCoordinator};

use super::{
    dataset::Datasets,
    writer::{StateWriter, Written},
};
use crate::{
    core::{
        Answer, Config, ConnectionId, Coordinator, Durable, Effect, LogLevel, LogLine, NearestThenLeastLoaded, Peer,
        Status,
    },
    error_text,
    state::StateStore,
};

/// The core with everything it needs of the world, while this coordinator leads. Shared by all tasks.
pub(crate) struct Driver {
    core: Mutex<Coordinator>,
    writer: StateWriter,
    is_shared: bool,
    started: Instant,
    datasets: Datasets,
}

impl Driver {
    /// Goes on from `durable`, which is what `store` holds.
    pub(crate) fn start(config: Config, durable: Durable, store: Box<dyn StateStore>) -> Arc<Self> {
        let core = Coordinator::new(config, Box::new(NearestThenLeastLoaded), durable, 0);
        Arc::new(Self {
            core: Mutex::new(core),
            is_shared: store.is_shared(),
            writer: StateWriter::start(store),
            started: Instant::now(),
            datasets: Datasets::default(),
        })
    }

    /// Answers a request, once what follows from it is durable. Where it cannot be made durable, only those are refused
    /// who ask for a job to be kept or removed: a full disk stops no running rank. Where another coordinator can go on
    /// from the state, those who join are refused too: the other one would give their session's id to another.
    pub(crate) async fn request(&self, peer: &Peer, request: ToCoordinator) -> FromCoordinator {
        let must_last = match request {
            ToCoordinator::SubmitJob { .. } | ToCoordinator::RemoveJob { .. } => true,
            ToCoordinator::Join(_) => self.is_shared,
            _ => false,
        };
        let waits = must_last || Coordinator::answer_waits_for_earlier(&request);
        let (answer, mut written) = self.act(|core, now_ms| core.handle_request(now_ms, peer, request));
        if waits && written.is_none() {
            written = Some(self.writer.write(Vec::new()));
        }
        match answer {
            Answer::CreateJob { toml, origin } => {
                let reply = self.create_job(&toml, &origin).await;
                if let FromCoordinator::Refused(refusal) = &reply {
                    tracing::warn!("{} `{}` submitted a job: {refusal}", peer.role, peer.name);
                }
                reply
            }
            Answer::Reply(reply) => match wait(written).await {
                Err(cause) if must_last => FromCoordinator::Refused(Refusal::Internal { cause }),
                _ => reply,
            },
        }
    }

    /// Makes a job of a job file's text.
    pub(crate) async fn create_job(&self, toml: &str, origin: &str) -> FromCoordinator {
        let job: Result<Job, Refusal> = self.datasets.freeze(toml, origin).await;
        let (reply, written) = self.act(|core, now_ms| core.handle_job(now_ms, job));
        match wait(Some(written.unwrap_or_else(|| self.writer.write(Vec::new())))).await {
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
