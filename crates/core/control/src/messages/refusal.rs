//! Why a request is refused.

use serde::{Deserialize, Serialize};
use spdl_types::{Fingerprint, Position, SessionId};

use super::{Holder, RunName};

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
    #[error("{run} is finished: {session} got to {position}, and no batch of its {epochs} epoch(s) is left")]
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
    #[error("the classes of job `{job}` are not known: {cause}")]
    ClassesUnknown { job: String, cause: String },
    #[error("{session} of {run} is over: its job has changed, and rank {rank} goes by it as it was")]
    SessionOutdated { run: Box<RunName>, session: SessionId, rank: u32 },
}
