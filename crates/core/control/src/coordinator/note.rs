//! The events that the coordinator's log reports, as data: the shell and the simulator decide what to do with them.

use std::fmt;

use serde::Serialize;

use crate::messages::{RunName, StartReason};
use spdl_types::{Fingerprint, NodeId, Position, SampleId, SessionId};

use super::NAMED_SAMPLES;

/// An event in the cluster. Its text is the line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterNote {
    /// This coordinator leads from now on.
    Leads {
        /// The number of jobs in the durable state.
        jobs: usize,
        /// The number of sessions in the durable state.
        sessions: usize,
    },
    /// A job was created.
    JobCreated {
        /// Its name.
        job: String,
        /// The samples of an epoch.
        samples: u64,
        /// What samples are called.
        called: &'static str,
        /// The dataset, without credentials.
        dataset: String,
        /// The job's fingerprint.
        fingerprint: Fingerprint,
    },
    /// A job was changed in what its positions do not depend on.
    JobReplaced {
        /// Its name.
        job: String,
        /// What differs, in words.
        differences: String,
    },
    /// A change of a job waits for the promises of its ranks.
    JobChangeProposed {
        /// Its name.
        job: String,
        /// What is to differ, in words.
        differences: String,
        /// From where on.
        at: Position,
    },
    /// A rank goes by a later version of a job than the coordinator, which has lost it.
    JobChangeFound {
        /// Its name.
        job: String,
        /// What differs, in words.
        differences: String,
        /// From where on.
        at: Position,
        /// The rank.
        rank: u32,
        /// Its run.
        run: String,
    },
    /// A change of a job that was proposed is not made.
    JobChangeDropped {
        /// Its name.
        job: String,
        /// Why.
        cause: String,
    },
    /// A job was removed.
    JobRemoved {
        /// Its name.
        job: String,
    },
    /// A job has failed: it has too many bad samples.
    JobFailed {
        /// Its name.
        job: String,
        /// Why.
        cause: String,
    },
    /// A worker reported a bad sample that the job does not have.
    UnknownSample {
        /// The worker's name.
        worker: String,
        /// The job's name.
        job: String,
        /// The sample.
        sample: SampleId,
    },
    /// A sample is bad: the first with this cause, or the 10th, 100th or 1000th.
    BadSample {
        /// The job's name.
        job: String,
        /// The sample.
        sample: SampleId,
        /// Its shard.
        shard: String,
        /// Its key.
        key: String,
        /// What is wrong with it.
        cause: String,
        /// The number of samples so far with the same cause.
        alike: usize,
    },
    /// A job has so many bad samples that no more are logged.
    BadSamplesMuted {
        /// The job's name.
        job: String,
    },
    /// A session started.
    SessionStarted {
        /// The session.
        session: SessionId,
        /// Its run.
        run: RunName,
        /// Its start position.
        start: Position,
        /// Why it starts there.
        reason: StartReason,
        /// The rank that joined first.
        rank: u32,
        /// The number of ranks.
        world: u32,
        /// The process of that rank.
        client: String,
    },
    /// A session was superseded by another one of its run.
    SessionSuperseded {
        /// The session.
        session: SessionId,
        /// Its run.
        run: RunName,
        /// The session that took its place.
        successor: SessionId,
        /// The number of its ranks that were alive.
        alive: usize,
    },
    /// All ranks of a session have left.
    SessionEnded {
        /// The session.
        session: SessionId,
        /// Its run.
        run: RunName,
        /// The position that all of them have acknowledged.
        acknowledged: Position,
    },
    /// A rank gets its batches from another worker than before.
    RankMoved {
        /// The rank.
        rank: u32,
        /// Its session.
        session: SessionId,
        /// The name of its home.
        home: String,
        /// The name of its last home.
        before: String,
    },
    /// A run was reset.
    RunReset {
        /// The run.
        run: RunName,
        /// Its newest session.
        session: SessionId,
        /// The position that all ranks of the session had acknowledged.
        acknowledged: Position,
    },
    /// A worker joined the cluster.
    WorkerJoined {
        /// Its name.
        worker: String,
        /// Its node.
        node: NodeId,
        /// Its address.
        quic: String,
    },
    /// A worker began to drain.
    WorkerDraining {
        /// Its name.
        worker: String,
    },
    /// A worker is gone.
    WorkerGone {
        /// Its name.
        worker: String,
        /// Why.
        cause: WorkerGone,
        /// The number of ranks that lost their home with it.
        homeless: u32,
    },
    /// A worker has other helpers than before.
    HelpersChanged {
        /// The worker's name.
        worker: String,
        /// The names of its helpers, separated by commas; empty if it has none any more.
        helpers: String,
    },
}

/// Why a worker is not part of the cluster any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerGone {
    /// It left in order.
    Left,
    /// Another process has its address.
    Restarted,
    /// Its connection was closed.
    Disconnected,
    /// It sent no heartbeat for too long.
    Silent {
        /// The limit.
        liveness_ms: u64,
    },
}

/// The severity of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// One of many like it, in the list of events; in the log only on request.
    Debug,
    /// Normal operation.
    Info,
    /// An operator may have to look.
    Warn,
    /// A job has failed.
    Error,
}

impl ClusterNote {
    /// Returns the name of the kind of event.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Leads { .. } => "leads",
            Self::JobCreated { .. } => "job_created",
            Self::JobReplaced { .. } => "job_replaced",
            Self::JobChangeProposed { .. } => "job_change_proposed",
            Self::JobChangeFound { .. } => "job_change_found",
            Self::JobChangeDropped { .. } => "job_change_dropped",
            Self::JobRemoved { .. } => "job_removed",
            Self::JobFailed { .. } => "job_failed",
            Self::UnknownSample { .. } => "unknown_sample",
            Self::BadSample { .. } => "bad_sample",
            Self::BadSamplesMuted { .. } => "bad_samples_muted",
            Self::SessionStarted { .. } => "session_started",
            Self::SessionSuperseded { .. } => "session_superseded",
            Self::SessionEnded { .. } => "session_ended",
            Self::RankMoved { .. } => "rank_moved",
            Self::RunReset { .. } => "run_reset",
            Self::WorkerJoined { .. } => "worker_joined",
            Self::WorkerDraining { .. } => "worker_draining",
            Self::WorkerGone { .. } => "worker_gone",
            Self::HelpersChanged { .. } => "helpers_changed",
        }
    }

    /// Returns the severity.
    #[must_use]
    pub const fn level(&self) -> LogLevel {
        match self {
            Self::Leads { .. } | Self::RankMoved { .. } => LogLevel::Debug,
            Self::JobFailed { .. } => LogLevel::Error,
            Self::UnknownSample { .. }
            | Self::BadSample { .. }
            | Self::BadSamplesMuted { .. }
            | Self::RunReset { .. }
            | Self::JobChangeFound { .. }
            | Self::JobChangeDropped { .. }
            | Self::SessionSuperseded { alive: 1.., .. }
            // A worker that leaves regularly may close its connection before its leave request is handled.
            | Self::WorkerGone { homeless: 1.., .. } => LogLevel::Warn,
            _ => LogLevel::Info,
        }
    }
}

impl fmt::Display for ClusterNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leads { jobs, sessions } => {
                write!(f, "this coordinator leads, with {jobs} jobs and {sessions} sessions in its state")
            }
            Self::JobCreated { job, samples, called, dataset, fingerprint } => {
                write!(f, "job `{job}` created: {samples} {called} of `{dataset}`, fingerprint {fingerprint}")
            }
            Self::JobReplaced { job, differences } => write!(f, "job `{job}` changed in {differences}"),
            Self::JobChangeProposed { job, differences, at } => {
                write!(f, "job `{job}` is to change at {at} in {differences}; its ranks are asked to wait there")
            }
            Self::JobChangeFound { job, differences, at, rank, run } => write!(
                f,
                "rank {rank} of run `{run}` goes by job `{job}` as it was changed at {at} in {differences}, which this coordinator's state has \
                 lost; the change is made again"
            ),
            Self::JobChangeDropped { job, cause } => write!(f, "the change of job `{job}` is not made: {cause}"),
            Self::JobRemoved { job } => write!(f, "job `{job}` removed"),
            Self::JobFailed { job, cause } => write!(f, "job `{job}` has failed: {cause}"),
            Self::UnknownSample { worker, job, sample } => {
                write!(f, "worker `{worker}` reports sample {sample} of job `{job}`, which has no such")
            }
            Self::BadSample { job, sample, shard, key, cause, alike } => {
                write!(f, "bad sample {sample} of job `{job}` in shard `{shard}`, key `{key}`: {cause}")?;
                if *alike > 1 { write!(f, " ({alike} samples so far)") } else { Ok(()) }
            }
            Self::BadSamplesMuted { job } => {
                write!(f, "job `{job}` has {NAMED_SAMPLES} bad samples; more are counted and not logged")
            }
            Self::SessionStarted { session, run, start, reason, rank, world, client } => {
                write!(f, "{session} of {run} started at {start}")?;
                match reason {
                    StartReason::Beginning => f.write_str(", the beginning,")?,
                    StartReason::Resumed { session } => write!(f, ", where all ranks of {session} had got to,")?,
                    StartReason::Given => {}
                }
                write!(f, " by rank {rank} of {world} ({client})")
            }
            Self::SessionSuperseded { session, run, successor, alive } => {
                write!(f, "{session} of {run} was superseded by {successor}; {alive} of its ranks were alive")
            }
            Self::SessionEnded { session, run, acknowledged } => {
                write!(f, "{session} of {run} has ended at {acknowledged}: all ranks have left")
            }
            Self::RankMoved { rank, session, home, before } => {
                write!(f, "rank {rank} of {session} gets its batches from worker `{home}`, and no more from `{before}`")
            }
            Self::RunReset { run, session, acknowledged } => {
                write!(f, "{run} was reset: {session} had got to {acknowledged}")
            }
            Self::WorkerJoined { worker, node, quic } => {
                write!(f, "worker `{worker}` joined: node `{}`, address {quic}", node.0)
            }
            Self::WorkerDraining { worker } => write!(f, "worker `{worker}` is draining"),
            Self::WorkerGone { worker, cause, homeless } => {
                write!(f, "worker `{worker}` {cause}; {homeless} ranks need another home")
            }
            Self::HelpersChanged { worker, helpers } if helpers.is_empty() => {
                write!(f, "worker `{worker}` has no helpers any more")
            }
            Self::HelpersChanged { worker, helpers } => write!(f, "worker `{worker}` is helped by {helpers}"),
        }
    }
}

impl fmt::Display for WorkerGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("left"),
            Self::Restarted => f.write_str("was started again"),
            Self::Disconnected => f.write_str("lost its connection"),
            Self::Silent { liveness_ms } => write!(f, "sent no heartbeat for {liveness_ms} ms"),
        }
    }
}
