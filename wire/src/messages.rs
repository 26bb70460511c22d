//! What processes say to each other. Plain data; the codec turns it into bytes and bounds it.
//!
//! Two conversations: with the coordinator (request and reply, each on its own stream: [`ToCoordinator`],
//! [`FromCoordinator`]), and between a client and its home (one ordered channel each way: [`ToHome`], [`FromHome`],
//! beside the batches themselves).

use std::{fmt, net::SocketAddr};

use serde::{Deserialize, Serialize};
use spdl_shard::{Fingerprint, Position, Receipt, SampleId, job::Job};

pub use crate::launch::{Holder, RunName, Start, StartReason};

/// Version of every message here. Peers with another one are refused with both numbers.
pub const PROTOCOL_VERSION: u16 = 4;

/// A session: the ranks of one launch of a trainer on a run of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}

/// One life of a worker process: random, so that a restarted worker is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(pub u64);

/// What makes two processes neighbours: one kernel boot, unless `SPDL_NODE` says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub String);

/// All that a worker must know to serve a rank of a session: with it, any worker can, and needs no coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The job, with the epochs of this launch.
    pub job: Job,
    /// W, number of ranks.
    pub world: u32,
    /// B for this launch: the job's, unless the first join said otherwise.
    pub global_batch: u32,
    /// Where it started.
    pub start: Position,
}

/// Where to reach a home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// Which life of which worker.
    pub worker: WorkerId,
    /// The worker's name, for people.
    pub name: String,
    /// Its node.
    pub node: NodeId,
    /// Its QUIC address.
    pub quic: SocketAddr,
    /// Its Unix socket, where it has one.
    pub socket: Option<String>,
}

/// A request to the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// A worker is alive. Sent at once after start and then every heartbeat; says everything each time.
    WorkerBeat(WorkerBeat),
    /// A worker leaves of its own will.
    WorkerLeave {
        /// Which.
        worker: WorkerId,
    },
    /// A rank wants to take part in a job.
    Join(Join),
    /// A rank is alive and has got this far.
    RankBeat(RankBeat),
    /// A rank leaves of its own will.
    RankLeave(RankBeat),
    /// Creates a job; does nothing when the same one is there.
    SubmitJob {
        /// The job file's text.
        toml: String,
        /// Where the text came from, for errors.
        origin: String,
    },
    /// Removes a job and what is known of it.
    RemoveJob {
        /// Its name.
        name: String,
    },
    /// Asks for one job.
    DescribeJob {
        /// Its name.
        name: String,
    },
    /// Asks for the state of everything.
    Status,
    /// Asks for a page of the ids of a job's bad samples, in ascending order.
    BadSamples {
        /// The job's name.
        job: String,
        /// The last id of the page before; without it, the first page.
        after: Option<SampleId>,
    },
    /// Has a run begin at the beginning with its next launch, also where that resumes. Refused while its ranks are alive.
    ResetRun(RunName),
}

/// A worker's heartbeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerBeat {
    /// How to reach it.
    pub home: Home,
    /// Processor cores it may use.
    pub cores: f64,
    /// It takes no new ranks and wants to be rid of those it has.
    pub draining: bool,
    /// The ranks it serves.
    pub ranks: Vec<RankFigures>,
    /// Figures of its stages.
    pub stages: Vec<StageFigures>,
    /// What went wrong with its stores.
    pub store: StoreFigures,
    /// Samples found bad since the last beat that was answered.
    pub bad_samples: Vec<BadSample>,
}

/// How a worker stands with one of its ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RankFigures {
    pub session: SessionId,
    pub rank: u32,
    pub transport: Transport,
    /// Batches handed over.
    pub batches: u64,
    /// Batches filled and not yet taken by the trainer.
    pub ready: u32,
    /// Slots.
    pub slots: u32,
    /// What the next batch waits for, when it waits.
    pub stall: Option<Stall>,
}

/// The way batches go from a home to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Shared memory on one node.
    Local,
    /// QUIC.
    Quic,
    /// The loader runs in the trainer's process.
    InProcess,
}

/// Why a batch is not there yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("stage `{stage}` of worker `{worker}` has waited {waited_ms} ms for {waiting_for}")]
pub struct Stall {
    /// The worker's name.
    pub worker: String,
    /// The stage.
    pub stage: String,
    /// What it waits for, with the shard where there is one.
    pub waiting_for: String,
    /// For how long, in milliseconds.
    pub waited_ms: u64,
}

/// What one stage of a pipeline has done since it started. Durations are summed over its concurrent tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct StageFigures {
    pub name: String,
    pub items: u64,
    pub bytes: u64,
    pub failures: u64,
    pub busy_ns: u64,
    /// Time per item.
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
}

/// What went wrong with the stores and the disk cache of a worker since it started, and was mended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFigures {
    /// Requests, hedges among them.
    pub requests: u64,
    /// Requests made again because the last one failed.
    pub retries: u64,
    /// Requests given up because the store was silent or took too long.
    pub timeouts: u64,
    /// Requests that the store refused.
    pub refusals: u64,
    /// Second requests beside a slow first one.
    pub hedges: u64,
    /// Of these, how many answered before the first.
    pub hedge_wins: u64,
    /// Blocks, indexes and manifests whose bytes came wrong.
    pub wrong_bytes: u64,
    /// Entries of the disk cache that were damaged, or could not be written.
    pub cache_faults: u64,
    /// For how long requests for an object have failed, in milliseconds: the longest of all objects, 0 for none.
    pub trouble_ms: u64,
}

/// A sample whose bytes are right and do not decode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadSample {
    /// The job that met it.
    pub job: String,
    /// Its id.
    pub sample: SampleId,
    /// The shard it lies in.
    pub shard: String,
    /// Its record's key.
    pub key: String,
    /// What is wrong with it.
    pub cause: String,
}

/// A rank's wish to take part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Join {
    /// The job's name.
    pub job: String,
    /// The run's name among those of the job.
    pub run: String,
    /// r.
    pub rank: u32,
    /// W.
    pub world: u32,
    /// B for this launch, where it differs from the job's.
    pub global_batch: Option<u32>,
    /// Epochs of the run from this launch on; without it, as many as the run's last session had, or else the job.
    pub epochs: Option<u64>,
    /// Where to start.
    pub start: Start,
    /// The fingerprint in the state the start comes from, where there is one.
    pub fingerprint: Option<Fingerprint>,
    /// What all ranks of a launch share, restarts included, and no other launch has: the launcher's id.
    pub launch: Option<String>,
    /// A session of the run whose ranks are alive is superseded. All ranks of a launch say the same.
    pub takeover: bool,
    /// The session that the rank takes part in already, where the coordinator does not know it any longer.
    pub session: Option<SessionId>,
    /// The rank's node.
    pub node: NodeId,
    /// Process id and host of the client, for errors.
    pub client: String,
    /// When the client was started, by its own clock: seconds since 1970.
    pub since_unix_s: u64,
    /// Random for each client, so that a repeated join of the same client is not a restart.
    pub nonce: u64,
}

/// A rank's heartbeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankBeat {
    /// The session it takes part in.
    pub session: SessionId,
    /// The job's name, so that a coordinator that forgot the session can say what is missing.
    pub job: String,
    /// r.
    pub rank: u32,
    /// The nonce of its join.
    pub nonce: u64,
    /// Position after the last batch that the trainer has taken.
    pub acknowledged: Position,
    /// Receipt of what the trainer has taken.
    pub receipt: Receipt,
    /// A home that the client cannot reach.
    pub unreachable: Option<WorkerId>,
    /// Milliseconds that the trainer has waited for batches so far.
    pub waited_ms: u64,
    /// How batches reach it.
    pub transport: Option<Transport>,
}

/// The coordinator's reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromCoordinator {
    /// The beat was heard.
    Heard {
        /// Beat again within this many milliseconds.
        beat_ms: u64,
        /// A worker, client or session that is not heard for this long is taken for dead.
        liveness_ms: u64,
    },
    /// The rank takes part.
    Joined {
        /// The session.
        session: Box<Session>,
        /// Why the session starts where it does.
        reason: StartReason,
        /// Its home; `None` while no worker is there: beat again.
        home: Option<Home>,
        /// Beat within this many milliseconds.
        beat_ms: u64,
    },
    /// The rank's beat was heard.
    RankHeard {
        /// Its home; `None` while no worker is there.
        home: Option<Home>,
        /// Beat within this many milliseconds.
        beat_ms: u64,
    },
    /// The job, as it is.
    Job(Box<Job>),
    /// The state of everything, as the JSON that `/status` shows.
    Status(String),
    /// It is done.
    Done,
    /// It is not done.
    Refused(Refusal),
    /// A page of the ids of a job's bad samples.
    BadSamples {
        /// Ids above the one that was asked from, in ascending order; at most [`BAD_SAMPLES_PAGE`].
        samples: Vec<SampleId>,
        /// No id comes after these.
        is_last: bool,
    },
}

/// Ids in one page of bad samples: 590 kB at most.
pub const BAD_SAMPLES_PAGE: usize = 1 << 16;

/// Why the coordinator, or a home, does not do what it is asked.
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
    #[error("`{run}` is no name for a run of job `{job}`; write 1 to 128 of A-Z a-z 0-9 . _ -")]
    RunName { job: String, run: String },
    /// Passes once that launch has ended, or its processes were silent for the liveness timeout.
    #[error("{run} is in use: {session} is held by {holder}")]
    RunInUse { run: Box<RunName>, session: SessionId, holder: Box<Holder>, liveness_ms: u64 },
    #[error("{run} is finished: {session} got to {position}, the end of {epochs} epoch(s)")]
    RunFinished { run: Box<RunName>, session: SessionId, position: Position, epochs: u64 },
    #[error("start {start} of job `{job}`: {cause}")]
    StartOutOfRange { job: String, start: Position, cause: String },
    /// May pass, as [`Refusal::RunInUse`]: the session may be one of a launch that was just killed.
    #[error(
        "rank {rank} says {field} is {theirs}; {session} of {run} was started with {ours}, and is held by {holder}"
    )]
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
        /// The address of the one that does, where it is known.
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
}

/// What a client says to its home.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToHome {
    /// First message: serve me.
    Attach {
        /// The session.
        session: Box<Session>,
        /// r.
        rank: u32,
        /// First batch wanted starts here.
        from: Position,
        /// Slots wanted.
        slots: u32,
        /// Process id and host, for the status.
        client: String,
    },
    /// The client is done with a slot.
    Freed {
        /// Which.
        slot: u32,
    },
    /// Why is there no batch?
    Explain,
}

/// What a home says to its client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromHome {
    /// The rank is served. On the local channel the slab's descriptor comes with it.
    Attached {
        /// Slots given, at most as many as wanted.
        slots: u32,
        /// Distance from one slot to the next, in bytes.
        slot_stride: u64,
    },
    /// A slot holds the next batch. On QUIC the same message opens the stream that carries the bytes.
    Filled {
        /// Number of the batch since attach, from 0: streams may overtake each other.
        sequence: u64,
        /// Which slot.
        slot: u32,
        /// Bytes of the batch.
        used_bytes: u64,
    },
    /// All epochs are delivered.
    End {
        /// Number of batches since attach.
        sequence: u64,
        /// The position after the last.
        position: Position,
    },
    /// The worker is going away; find another home and go on from where you are.
    Leaving,
    /// The rank cannot be served any longer.
    Fault {
        /// Why, in words, with the thing named.
        message: String,
        /// Whether another worker might do better.
        is_retryable: bool,
    },
    /// The answer to [`ToHome::Explain`]; `None` when a batch is about to be there.
    Explained(Option<Stall>),
}
