//! The messages between processes. Plain data; the codec encodes it and limits its size.
//!
//! There are two protocols: with the coordinator (request and reply, each pair on its own stream: [`ToCoordinator`],
//! [`FromCoordinator`]), and between a client and its home (one ordered channel each way, beside the batches
//! themselves: [`ToHome`], [`FromHome`]).

use std::net::SocketAddr;

use crate::{
    Fingerprint, Position, Receipt, SampleId, Stage,
    help::{HelpReport, HelperList},
    insight::Measured,
    job::Job,
    peers::{PeerMap, PeerStats},
    trace::{TraceOrder, TracePart, TraceProgress},
    tuning::TuningStatus,
};
use serde::{Deserialize, Serialize};

pub use spdl_types::{NodeId, SessionId, StageStats, WorkerId};

pub use crate::launch::{Holder, RunName, Start, StartReason, Started};

/// The version of all messages. A peer with another version is refused with an error that names both.
pub const PROTOCOL_VERSION: u16 = 4;

/// Everything that a worker must know to serve a rank of a session. With it any worker can serve the rank, without the
/// coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The session's id.
    pub id: SessionId,
    /// The job, with the epochs of this launch.
    pub job: Job,
    /// W, the number of ranks.
    pub world: u32,
    /// Samples per step over all ranks, B, for this launch: the job's, unless the first join set another one.
    pub global_batch: u32,
    /// The position where the session started.
    pub start: Position,
}

/// The addresses of a home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The worker process.
    pub worker: WorkerId,
    /// The worker's name, for logs and the status.
    pub name: String,
    /// The node it runs on.
    pub node: NodeId,
    /// The QUIC address.
    pub quic: SocketAddr,
    /// The path of its Unix socket, if it has one.
    pub socket: Option<String>,
}

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
    /// Requests what was measured of a rank and its home in the last seconds.
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
}

/// A worker's heartbeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerHeartbeat {
    /// How to reach the worker.
    pub home: Home,
    /// The number of processor cores that it may use.
    pub cores: f64,
    /// Whether it drains: it accepts no new ranks, and its ranks are to move to other workers.
    pub draining: bool,
    /// The ranks that it serves.
    pub ranks: Vec<RankStats>,
    /// The statistics of its stages.
    pub stages: Vec<StageStats>,
    /// The time since the worker's start at which the statistics were read, in milliseconds.
    pub uptime_ms: u64,
    /// CPU time of the worker's process, in nanoseconds.
    pub cpu_ns: u64,
    /// The faults of its stores.
    pub store: Box<StoreStats>,
    /// What its caches hold.
    pub cache: CacheStats,
    /// The object of a store whose requests take much longer than all others, if there is one.
    pub slow_object: Option<Box<SlowObject>>,
    /// The values that it tunes, and their latest changes.
    pub tuning: Box<TuningStatus>,
    /// Samples found bad since the last heartbeat that was answered.
    pub bad_samples: Vec<BadSample>,
    /// The version of the map of workers that it has; 0 for none.
    pub peer_map: u64,
    /// What it exchanged with other workers.
    pub peers: PeerStats,
    /// What it reports about helpers.
    pub help: Box<HelpReport>,
}

/// A worker's statistics of one of its ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RankStats {
    pub session: SessionId,
    pub rank: u32,
    pub transport: Transport,
    /// Batches delivered.
    pub batches: u64,
    /// Batches that are filled and that the trainer has not taken yet.
    pub ready: u32,
    /// The number of slots.
    pub slots: u32,
    /// What the next batch waits for, if it waits.
    pub stall: Option<Stall>,
}

/// How batches travel from a home to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Shared memory on one node.
    Local,
    /// A QUIC connection.
    Quic,
    /// The loader runs in the trainer's process.
    InProcess,
}

/// The reason why a batch is late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("stage `{stage}` of worker `{worker}` has waited {waited_ms} ms for {waiting_for}")]
pub struct Stall {
    /// The worker's name.
    pub worker: String,
    /// The stage.
    pub stage: Stage,
    /// What the stage waits for, with the shard if there is one.
    pub waiting_for: String,
    /// How long it has waited, in milliseconds.
    pub waited_ms: u64,
}

/// Counts a worker's requests to stores, and the faults of stores and disk cache that it recovered from, since it
/// started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStats {
    /// Requests, including hedges.
    pub requests: u64,
    /// Requests that were answered in the end, by themselves or by a hedge.
    pub answers: u64,
    /// Time until the first byte of a reply, summed over `answers`, in nanoseconds.
    pub first_byte_ns: u64,
    /// Requests repeated because the previous one failed.
    pub retries: u64,
    /// Requests abandoned because the store was silent or took too long.
    pub timeouts: u64,
    /// Answers that came so slowly that they were dropped and asked for again.
    pub drips: u64,
    /// Requests that the store refused.
    pub refusals: u64,
    /// Hedges: second requests beside a slow first one.
    pub hedges: u64,
    /// Hedges that were answered before the first request.
    pub hedge_wins: u64,
    /// Blocks, indexes and manifests that came with wrong bytes.
    pub wrong_bytes: u64,
    /// Entries of the disk cache that were damaged or could not be written.
    pub cache_faults: u64,
    /// Bytes that were fetched for one use, because memory had no room for their block.
    pub single_use_bytes: u64,
    /// The longest time over all objects for which requests for an object have been failing, in milliseconds; 0 if none
    /// fails.
    pub outage_ms: u64,
}

impl StoreStats {
    /// Returns what was counted since `before`. The outage is that of now.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            answers: self.answers.saturating_sub(before.answers),
            first_byte_ns: self.first_byte_ns.saturating_sub(before.first_byte_ns),
            retries: self.retries.saturating_sub(before.retries),
            timeouts: self.timeouts.saturating_sub(before.timeouts),
            drips: self.drips.saturating_sub(before.drips),
            refusals: self.refusals.saturating_sub(before.refusals),
            hedges: self.hedges.saturating_sub(before.hedges),
            hedge_wins: self.hedge_wins.saturating_sub(before.hedge_wins),
            wrong_bytes: self.wrong_bytes.saturating_sub(before.wrong_bytes),
            cache_faults: self.cache_faults.saturating_sub(before.cache_faults),
            single_use_bytes: self.single_use_bytes.saturating_sub(before.single_use_bytes),
            outage_ms: self.outage_ms,
        }
    }
}

/// What the block caches of a worker hold, in memory and on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStats {
    /// Bytes of blocks that the caches hold.
    pub used_bytes: u64,
    /// The most bytes of blocks that they hold.
    pub limit_bytes: u64,
    /// Bytes of the blocks that are in use or soon will be, which take their room from the others.
    pub window_bytes: u64,
    /// Bytes of all blocks of the datasets that are open.
    pub dataset_bytes: u64,
    /// The most bytes that may be held of those that are fetched for one use.
    pub transit_bytes: u64,
}

/// An object of a store whose requests take much longer than those for other objects, in the last seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowObject {
    /// Path of the object in its store.
    pub object: String,
    /// Requests for it.
    pub requests: u64,
    /// The mean time of one, in nanoseconds.
    pub mean_ns: u64,
    /// Requests for all other objects.
    pub other_requests: u64,
    /// The mean time of one of those, in nanoseconds.
    pub other_mean_ns: u64,
}

/// A sample whose bytes are intact but do not decode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadSample {
    /// The job that found it.
    pub job: String,
    /// The sample's id.
    pub sample: SampleId,
    /// The shard that it lies in.
    pub shard: String,
    /// The key of its record.
    pub key: String,
    /// The error.
    pub cause: String,
}

/// A rank's request to take part in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Join {
    /// The job's name.
    pub job: String,
    /// The run's name among those of the job.
    pub run: String,
    /// The rank, r in the specification of the order.
    pub rank: u32,
    /// The number of ranks, W.
    pub world: u32,
    /// Samples per step over all ranks, B, for this launch, if it differs from the job's.
    pub global_batch: Option<u32>,
    /// The epochs of the run from this launch on; `None` for as many as the run's last session had, or else as the job
    /// has.
    pub epochs: Option<u64>,
    /// Where to start.
    pub start: Start,
    /// The fingerprint in the state that the start comes from, if there is one.
    pub fingerprint: Option<Fingerprint>,
    /// The launcher's id: all ranks of a launch share it, restarts included, and no other launch has it.
    pub launch: Option<String>,
    /// Whether to supersede a session of the run whose ranks are alive. The same on all ranks of a launch.
    pub takeover: bool,
    /// The session that the rank already takes part in, if the coordinator no longer knows it.
    pub session: Option<SessionId>,
    /// The rank's node.
    pub node: NodeId,
    /// Process id and host of the client, for errors.
    pub client: String,
    /// When the client was started, by its own clock: seconds since 1970.
    pub since_unix_s: u64,
    /// Random for each client, so that a repeated join of the same client is not mistaken for a restart.
    pub nonce: u64,
}

/// A rank's heartbeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankHeartbeat {
    /// The session that the rank takes part in.
    pub session: SessionId,
    /// The job's name, so that a coordinator that forgot the session can name it in its error.
    pub job: String,
    /// The rank, r in the specification of the order.
    pub rank: u32,
    /// The nonce of its join.
    pub nonce: u64,
    /// The position after the last batch that the trainer has taken.
    pub acknowledged: Position,
    /// The receipt of the batches that the trainer has taken.
    pub receipt: Receipt,
    /// A home that the client cannot reach.
    pub unreachable: Option<WorkerId>,
    /// Milliseconds that the trainer has waited for batches so far.
    pub waited_ms: u64,
    /// How batches reach the rank.
    pub transport: Option<Transport>,
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
        /// Which workers hold which blocks of the runs whose ranks it serves, if its map has another version.
        peers: Option<Box<PeerMap>>,
        /// The workers that decode samples for it, if its list has another version.
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
    /// What was measured of a rank and its home; `None` while there is no history of some seconds.
    Measured(Option<Box<Measured>>),
    /// The time since the coordinator has led, in microseconds.
    Clock(u64),
    /// The state of a trace.
    Trace(Box<TraceProgress>),
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

/// The most ids in one page of bad samples: 590 kB at most.
pub const BAD_SAMPLES_PAGE: usize = 1 << 16;

/// Why the coordinator or a home refused a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Refusal {
    #[error("job `{job}` is unknown; known are: {known}")]
    UnknownJob { job: String, known: String },
    #[error("job `{job}` cannot be created: {cause}")]
    JobInvalid { job: String, cause: String },
    #[error("job `{job}` has failed: {cause}")]
    JobFailed { job: String, cause: String },
    #[error("rank {rank} is not below world {world}")]
    RankOutOfRange { rank: u32, world: u32 },
    #[error("`{run}` is not a name for a run of job `{job}`; write 1 to 128 of A-Z a-z 0-9 . _ -")]
    RunName { job: String, run: String },
    /// Resolves itself once that launch has ended, or its processes were silent for the liveness timeout.
    #[error("{run} is in use: {session} is held by {holder}")]
    RunInUse { run: Box<RunName>, session: SessionId, holder: Box<Holder>, liveness_ms: u64 },
    #[error("{run} is finished: {session} got to {position}, the end of {epochs} epoch(s)")]
    RunFinished { run: Box<RunName>, session: SessionId, position: Position, epochs: u64 },
    #[error("start {start} of job `{job}`: {cause}")]
    StartOutOfRange { job: String, start: Position, cause: String },
    /// May resolve itself, like [`Refusal::RunInUse`]: the session may belong to a launch that was just killed.
    #[error("rank {rank} has {field} {theirs}; {session} of {run} was started with {ours}, and is held by {holder}")]
    SessionDisagrees {
        run: Box<RunName>,
        session: SessionId,
        rank: u32,
        field: String,
        theirs: String,
        ours: String,
        holder: Box<Holder>,
        liveness_ms: u64,
    },
    #[error("state has fingerprint {theirs}; job `{job}` has {ours}")]
    FingerprintDiffers { job: String, theirs: Fingerprint, ours: Fingerprint },
    #[error("{session} of {run} was superseded: rank {rank} joined again from {client}")]
    SessionSuperseded { run: Box<RunName>, session: SessionId, rank: u32, client: String },
    #[error("{session} is unknown; join again")]
    UnknownSession { session: SessionId },
    #[error("world {world} is more than the global batch of {global_batch}")]
    WorldTooLarge { world: u32, global_batch: u32 },
    #[error("a {role} may not send {request}")]
    Role { role: String, request: String },
    #[error("{subject} is {actual}; the most is {limit}")]
    OverLimit { subject: String, actual: String, limit: String },
    #[error("internal: {cause}")]
    Internal { cause: String },
    #[error("coordinator does not lead: {cause}")]
    NotLeader {
        /// The address of the leader, if it is known.
        leader: Option<String>,
        cause: String,
    },
    #[error("job `{job}` cannot be run like this: {cause}")]
    NoBatch { job: String, cause: String },
    #[error("the coordinator cannot write its state, and takes on nothing new until it can: {cause}")]
    Unwritable { cause: String },
    #[error("job `{job}` has no run `{run}`; known are: {known}")]
    UnknownRun { job: String, run: String, known: String },
    #[error("{session} of {run} is over: the run was reset, and begins again at the beginning")]
    RunReset { run: Box<RunName>, session: SessionId },
    #[error("trace {trace}: {cause}")]
    NoTrace { trace: u64, cause: String },
}

/// A message of a client to its home.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToHome {
    /// The first message: asks the home to serve this rank.
    Attach {
        /// The session.
        session: Box<Session>,
        /// The rank, r in the specification of the order.
        rank: u32,
        /// The position where the first batch starts.
        from: Position,
        /// The number of slots that the client wants.
        slots: u32,
        /// The client's process id and host, for the status.
        client: String,
        /// The number that only this rank's other connections know; without it, the rank has one connection.
        join_key: Option<u128>,
    },
    /// The client no longer uses a slot.
    Freed {
        /// The slot.
        slot: u32,
        /// Whether a device of the client reads the slot by itself: its pages have to stay where they are.
        is_locked: bool,
    },
    /// Asks why there is no batch.
    Explain,
    /// The first and only message of another connection of a rank that is attached: batches may come on it, too.
    Join {
        /// The number in the rank's [`Attach`](Self::Attach).
        key: u128,
    },
}

/// A message of a home to its client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromHome {
    /// The home serves the rank. On the local channel the slab's descriptor comes with this message.
    Attached {
        /// The number of slots, at most as many as the client wanted.
        slots: u32,
        /// Distance from one slot to the next, in bytes.
        slot_stride: u64,
    },
    /// A slot holds the next batch. On QUIC the same message begins the stream that carries the bytes.
    Filled {
        /// The number of the batch since the attach, from 0: streams may overtake each other.
        sequence: u64,
        /// The slot.
        slot: u32,
        /// The bytes of the batch.
        used_bytes: u64,
    },
    /// All epochs are delivered.
    End {
        /// The number of batches since the attach.
        sequence: u64,
        /// The position after the last batch.
        position: Position,
    },
    /// The worker shuts down; the client has to find another home and continue from its position.
    Leaving,
    /// The home can no longer serve the rank.
    Fault {
        /// The reason, which names its subject.
        message: String,
        /// Whether another worker may succeed.
        is_retryable: bool,
    },
    /// The reply to [`ToHome::Explain`]; `None` if a batch is about to arrive.
    Explained(Option<Stall>),
}
