//! Requests to the coordinator, and its replies.

use serde::{Deserialize, Serialize};
use spdl_insight::Measured;
use spdl_job::Job;
use spdl_order::RedactedSamples;
use spdl_types::{Fingerprint, Position, SampleId, SessionId, WorkerId};

use super::{Home, Join, RankHeartbeat, Refusal, RunName, Session, StartReason, WorkerHeartbeat};
use crate::{
    help::HelperList,
    peers::PeerMap,
    trace::{TraceOrder, TracePart, TraceProgress},
};

/// A request to the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// A worker is alive. Sent at once after the start and then at every heartbeat; each one carries the full state.
    WorkerHeartbeat(WorkerHeartbeat),
    /// A worker shuts down.
    WorkerLeave {
        /// The worker.
        worker: WorkerId,
    },
    /// A rank asks to take part in a run of a job.
    Join(Join),
    /// A rank is alive, and has reached this position.
    RankHeartbeat(RankHeartbeat),
    /// A rank leaves its session.
    RankLeave(RankHeartbeat),
    /// Creates a job; has no effect if the same job exists.
    SubmitJob {
        /// The job file's text.
        toml: String,
        /// The source of the text, for errors.
        origin: String,
    },
    /// Removes a job and all state that belongs to it.
    RemoveJob {
        /// The job's name.
        name: String,
    },
    /// Requests one job.
    DescribeJob {
        /// The job's name.
        name: String,
    },
    /// Requests the state of the whole cluster.
    Status,
    /// Requests a page of the ids of a job's bad samples, in ascending order.
    BadSamples {
        /// The job's name.
        job: String,
        /// The last id of the previous page; `None` for the first page.
        after: Option<SampleId>,
    },
    /// Resets a run: its next launch starts at the beginning, even if it asks to resume. Refused while the run's ranks
    /// are alive.
    ResetRun(RunName),
    /// Requests the measurements of a rank and its home in the last seconds.
    Measurements {
        /// The session.
        session: SessionId,
        /// The rank, r in the specification of the order.
        rank: u32,
    },
    /// Requests the time of the coordinator's clock.
    Clock,
    /// Begins a trace of the ranks alive of a job and of their homes.
    StartTrace {
        /// The job's name.
        job: String,
        /// For how long to record, in milliseconds.
        duration_ms: u64,
    },
    /// A part of what a process has recorded for a trace.
    TracePart(TracePart),
    /// Requests a part of a trace.
    ReadTrace {
        /// The number of the trace.
        trace: u64,
        /// The number of the part, from 0 in the order in which they came.
        part: u32,
    },
    /// Creates a job in place of the one of its name. The runs of that keep their positions if the fingerprint up to these is the same;
    /// otherwise the job is a new one. Refused while ranks of the job are alive, and if only stages that are reached differ.
    ReplaceJob {
        /// The job file's text.
        toml: String,
        /// The source of the text, for errors.
        origin: String,
    },
    /// Requests the names of the classes that the numbers of a job's batches mean, in the order of their numbers.
    Classes {
        /// The job's name.
        job: String,
        /// The number of the first class to send.
        first: u32,
    },
    /// Gives the sources of a job other weights from a sample on, in place of stages that begin there or later. While ranks are alive, it
    /// is proposed to them: the same request is repeated until the answer is not [`FromCoordinator::Changing`].
    SetWeights {
        /// The job's name.
        job: String,
        /// The number of samples before, over all epochs; `None` for the first that no rank has reached.
        from: Option<u64>,
        /// The weight of each source, in their order, of 65536 in all.
        weights: Vec<u32>,
    },
    /// Redacts samples of a job from a sample of its stream on: they do not come any more. While ranks are alive, it is proposed to them,
    /// as other weights are.
    Redact {
        /// The job's name.
        job: String,
        /// The number of samples before, over all epochs; `None` for the first that no rank has reached.
        from: Option<u64>,
        /// The samples.
        samples: RedactedSamples,
    },
    /// Requests the job of a session, which has changed.
    SessionJob {
        /// The session.
        session: SessionId,
        /// The job's name.
        job: String,
        /// The rank that requests it.
        rank: u32,
        /// The nonce of the rank's join.
        nonce: u64,
    },
}

/// A reply of the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromCoordinator {
    /// The worker's heartbeat was received.
    WorkerAcknowledged {
        /// Send the next heartbeat within this many milliseconds.
        heartbeat_ms: u64,
        /// A worker, client or session without a heartbeat for this long is considered dead.
        liveness_ms: u64,
        /// What to record for a trace.
        trace: Option<TraceOrder>,
        /// The map of the workers that hold the blocks of the runs whose ranks it serves, if the worker has another
        /// version.
        peers: Option<Box<PeerMap>>,
        /// The list of workers that decode samples for it, if the worker has another version.
        helpers: Option<Box<HelperList>>,
    },
    /// The rank takes part in a session.
    Joined {
        /// The session.
        session: Box<Session>,
        /// Why the session starts where it does.
        reason: StartReason,
        /// The rank's home; `None` while there is no worker: send heartbeats until there is one.
        home: Option<Home>,
        /// Send the first heartbeat within this many milliseconds.
        heartbeat_ms: u64,
    },
    /// The rank's heartbeat was received.
    RankAcknowledged {
        /// The rank's home; `None` while there is no worker.
        home: Option<Home>,
        /// Send the next heartbeat within this many milliseconds.
        heartbeat_ms: u64,
        /// What to record for a trace.
        trace: Option<TraceOrder>,
        /// What the rank has to know of changes of the job.
        notice: JobNotice,
    },
    /// The job.
    Job(Box<Job>),
    /// The state of the whole cluster, as the JSON that `/status` shows.
    Status(String),
    /// The request was carried out.
    Done,
    /// The request was refused.
    Refused(Refusal),
    /// A page of the ids of a job's bad samples.
    BadSamples {
        /// Ids above the requested one, in ascending order; at most [`BAD_SAMPLES_PAGE`].
        samples: Vec<SampleId>,
        /// Whether this is the last page.
        is_last: bool,
    },
    /// The measurements of a rank and its home; `None` while there is no history of some seconds.
    Measured(Option<Box<Measured>>),
    /// The time since the coordinator began to lead, in microseconds.
    Clock(u64),
    /// The state of a trace.
    Trace(Box<TraceProgress>),
    /// What has become of the job that was to be replaced.
    Replaced(JobReplacement),
    /// The names of classes.
    Classes {
        /// Those from the requested one on, of at most [`CLASSES_PAGE_BYTES`] and at least one, if there is one.
        names: Vec<String>,
        /// Whether these are the last.
        is_last: bool,
    },
    /// A change of a job waits for its ranks.
    Changing {
        /// Where it is to begin.
        at: Position,
        /// The ranks for which it waits, in words.
        waiting: String,
    },
}

/// What a rank has to know of changes of its job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNotice {
    /// The fingerprint of the job that the rank is to go by. A rank with another one requests the job.
    pub fingerprint: Fingerprint,
    /// The change that is proposed, or the one for which the rank waits and whose outcome the coordinator does not know.
    pub hold: Option<JobHold>,
}

/// A change of a job that is proposed to its ranks. A rank that promises to wait for it hands its trainer no batch with a sample past it
/// before it knows the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobHold {
    /// The fingerprint of the job with the change.
    pub change: Fingerprint,
    /// The number of samples before the change, over all epochs.
    pub from: u64,
}

/// What has become of a job that was to be replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobReplacement {
    /// There was none of this name, and this one was created.
    Created,
    /// The job that is there is the same.
    Unchanged,
    /// The order and the bytes are the same, at least up to where the runs of the job are, and they keep their positions.
    Changed {
        /// What differs, in words.
        differences: String,
    },
    /// The job is another one, and the runs of the job before are gone.
    New {
        /// What differs, in words.
        differences: String,
    },
}

impl FromCoordinator {
    /// Returns what the reply to a heartbeat asks to record.
    #[must_use]
    pub const fn trace_order(&self) -> Option<TraceOrder> {
        match self {
            Self::WorkerAcknowledged { trace, .. } | Self::RankAcknowledged { trace, .. } => *trace,
            _ => None,
        }
    }
}

/// The most bytes of the names of classes in one reply, beside its first name.
pub const CLASSES_PAGE_BYTES: usize = 512 << 10;
/// The most ids in one page of bad samples: 590 kB at most.
pub const BAD_SAMPLES_PAGE: usize = 1 << 16;
