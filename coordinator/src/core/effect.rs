//! What goes into the core and comes out of it besides messages: peers, changes to the durable state, log lines.

use serde::{Deserialize, Serialize};
use spdl_shard::{Fingerprint, Position, Receipt, SampleId, job::Job};
use spdl_wire::{
    certs::Role,
    messages::{FromCoordinator, NodeId, SessionId, StartReason},
};

/// One connection to the coordinator, numbered by the shell; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Who sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPeer {
    /// The connection it comes over.
    pub connection: ConnectionId,
    /// The role in its certificate.
    pub role: Role,
    /// The name in its certificate.
    pub name: String,
}

/// What a request leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Send this, once the effects polled after it are durable.
    Reply(FromCoordinator),
    /// A job is to be created: read its dataset's manifest, freeze it and call
    /// [`Coordinator::handle_job`](super::Coordinator::handle_job).
    CreateJob {
        /// The job file's text.
        toml: String,
        /// Where the text came from.
        origin: String,
    },
}

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Make this change durable, in order.
    Persist(Change),
    /// Tell the operator.
    Log(LogLine),
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: LogLevel,
    /// The line.
    pub text: String,
}

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Things take their course.
    Info,
    /// Somebody may have to look.
    Warn,
    /// A job has failed.
    Error,
}

/// A change of the durable state. Putting replaces what is there; applying the same change twice does no harm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// A job was created or has failed.
    PutJob(JobRecord),
    /// A session began, got a rank, got further or was superseded.
    PutSession(SessionRecord),
    /// A sample was found bad.
    PutBadSample(BadSampleRecord),
    /// A session is of no more use.
    DeleteSession(SessionId),
    /// A job, its sessions and its bad samples are of no more use.
    DeleteJob(String),
}

/// All of the durable state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durable {
    /// Jobs, by name.
    pub jobs: Vec<JobRecord>,
    /// Sessions, by id.
    pub sessions: Vec<SessionRecord>,
    /// Bad samples, by job and id.
    pub bad_samples: Vec<BadSampleRecord>,
    /// The highest session id ever given.
    pub last_session: u64,
}

impl Durable {
    /// Whether no job, session or bad sample is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.sessions.is_empty() && self.bad_samples.is_empty()
    }

    /// The changes that make it of an empty state, but for the highest session id.
    #[must_use]
    pub fn into_changes(self) -> Vec<Change> {
        let jobs = self.jobs.into_iter().map(Change::PutJob);
        let sessions = self.sessions.into_iter().map(Change::PutSession);
        jobs.chain(sessions).chain(self.bad_samples.into_iter().map(Change::PutBadSample)).collect()
    }
}

/// A job as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The job.
    pub job: Job,
    /// Its fingerprint, to prove that it reads back as it was.
    pub fingerprint: Fingerprint,
    /// Bits of [`Job::max_bad_fraction`]: decimal text may lose the last one.
    pub max_bad_fraction_bits: u64,
    /// Why it failed, when it has.
    pub failed: Option<String>,
}

/// A session as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// Its job's name.
    pub job: String,
    /// Its run's name. Format 1 knew no runs: empty, which is that of the job.
    #[serde(default)]
    pub run: String,
    /// W.
    pub world: u32,
    /// B.
    pub global_batch: u32,
    /// Epochs that its run is to have. Format 1 knew only the job's: 0.
    #[serde(default)]
    pub epochs: u64,
    /// Where it started.
    pub start: Position,
    /// Why there.
    #[serde(default)]
    pub reason: StartReason,
    /// The id of its launch.
    #[serde(default)]
    pub launch: Option<String>,
    /// Its launch takes over.
    #[serde(default)]
    pub is_takeover: bool,
    /// The session that it replaces, after a coordinator had forgotten that.
    #[serde(default)]
    pub replaces: Option<SessionId>,
    /// Who took its place.
    pub superseded_by: Option<Successor>,
    /// Its run was reset: the next launch begins at the beginning.
    #[serde(default)]
    pub is_reset: bool,
    /// The ranks that have joined.
    pub ranks: Vec<RankRecord>,
}

/// The join that took a session's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Successor {
    /// The session it started.
    pub session: SessionId,
    /// Its rank.
    pub rank: u32,
    /// Its client.
    pub client: String,
}

/// A rank of a session as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRecord {
    /// r.
    pub rank: u32,
    /// The nonce of its join.
    pub nonce: u64,
    /// Its client.
    pub client: String,
    /// When that was started, in seconds since 1970. Format 1 did not know: 0.
    #[serde(default)]
    pub since_unix_s: u64,
    /// Its node.
    pub node: NodeId,
    /// Position after the last batch that its trainer has taken.
    pub acknowledged: Position,
    /// Receipt of what its trainer has taken up to there. Records of earlier builds lack it.
    #[serde(default)]
    pub receipt: Option<Receipt>,
    /// It left of its own will.
    pub left: bool,
}

/// A bad sample as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadSampleRecord {
    /// Its job's name.
    pub job: String,
    /// Its id.
    pub sample: SampleId,
    /// Where it is and what is wrong with it; only kept for the first ones of a job.
    pub named: Option<BadSampleReport>,
}

/// Where a bad sample is and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadSampleReport {
    /// The shard it lies in.
    pub shard: String,
    /// Its record's key.
    pub key: String,
    /// What is wrong.
    pub cause: String,
}
