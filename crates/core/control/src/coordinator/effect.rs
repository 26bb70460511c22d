//! The inputs and outputs of the core besides messages: peers, changes of the durable state.

use std::sync::Arc;

use crate::{
    Role,
    messages::{FromCoordinator, StartReason},
};
use serde::{Deserialize, Serialize};
use spdl_job::Job;
use spdl_order::Receipt;
use spdl_types::{Fingerprint, NodeId, Position, SampleId, SessionId};

use super::ClusterNote;

/// The id of one connection to the coordinator, assigned by the shell and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPeer {
    /// The connection that the request came over.
    pub connection: ConnectionId,
    /// The role in the peer's certificate.
    pub role: Role,
    /// The name in the peer's certificate.
    pub name: String,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Send this reply once the effects polled after it are durable.
    Reply(FromCoordinator),
    /// Create a job: read the manifest of its dataset, freeze the job and call
    /// [`CoordinatorCore::handle_job`](super::CoordinatorCore::handle_job).
    CreateJob {
        /// The text of the job file.
        toml: String,
        /// Where the text came from.
        origin: String,
    },
    /// Replace a job: the same, but call [`CoordinatorCore::handle_replacement`](super::CoordinatorCore::handle_replacement).
    ReplaceJob {
        /// The text of the job file.
        toml: String,
        /// Where the text came from.
        origin: String,
    },
    /// Reply with [`FromCoordinator::Clock`]: the time of the clock by which the core is called.
    Clock,
    /// Reply with [`FromCoordinator::Classes`]: the classes of this job, of which the manifest of its dataset has the names.
    Classes {
        /// The job.
        job: Box<Job>,
        /// The number of the first class to send.
        first: u32,
    },
}

/// An action for the shell to carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Make this change durable, in the order of the effects.
    Persist(Change),
    /// Report this in the log.
    Log(ClusterNote),
}

/// A change of the durable state. A put replaces the existing record; applying a change twice has the effect of
/// applying it once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// A job was created or has failed.
    PutJob(JobRecord),
    /// A session began, got a rank, advanced or was superseded.
    PutSession(SessionRecord),
    /// A sample was found bad.
    PutBadSample(BadSampleRecord),
    /// A session is no longer needed.
    DeleteSession(SessionId),
    /// A job was removed, with its sessions and bad samples.
    DeleteJob(String),
}

/// The whole durable state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durable {
    /// The jobs, by name.
    pub jobs: Vec<JobRecord>,
    /// The sessions, by id.
    pub sessions: Vec<SessionRecord>,
    /// The bad samples, by job and id.
    pub bad_samples: Vec<BadSampleRecord>,
    /// The highest session id ever assigned.
    pub last_session: u64,
}

impl Durable {
    /// Returns whether it holds no job, session or bad sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.sessions.is_empty() && self.bad_samples.is_empty()
    }

    /// Returns the changes that produce this state from an empty one, except for the highest session id.
    #[must_use]
    pub fn into_changes(self) -> Vec<Change> {
        let jobs = self.jobs.into_iter().map(Change::PutJob);
        let sessions = self.sessions.into_iter().map(Change::PutSession);
        jobs.chain(sessions).chain(self.bad_samples.into_iter().map(Change::PutBadSample)).collect()
    }
}

/// The durable record of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The job.
    pub job: Box<Job>,
    /// The job's fingerprint, to check that the job reads back unchanged.
    pub fingerprint: Fingerprint,
    /// The bits of [`Job::max_bad_fraction`]: decimal text may lose the last one.
    pub max_bad_fraction_bits: u64,
    /// Why the job failed, if it has.
    pub failed: Option<String>,
}

/// The durable record of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The session's id.
    pub id: SessionId,
    /// The job's name.
    pub job: String,
    /// The run's name. Format 1 had no runs: an empty name means the run with the job's name.
    #[serde(default)]
    pub run: String,
    /// The number of ranks.
    pub world: u32,
    /// The global batch, in samples.
    pub global_batch: u32,
    /// The number of epochs of the run. Format 1 had only the job's: 0 means that.
    #[serde(default)]
    pub epochs: u64,
    /// The position where it started.
    pub start: Position,
    /// Why it started there.
    #[serde(default)]
    pub reason: StartReason,
    /// The id of the launch.
    #[serde(default)]
    pub launch: Option<String>,
    /// Whether the launch asked to take over.
    #[serde(default)]
    pub is_takeover: bool,
    /// The session that this one replaces, after the coordinator had lost that session.
    #[serde(default)]
    pub replaces: Option<SessionId>,
    /// The join that superseded it.
    pub superseded_by: Option<Successor>,
    /// Whether the run was reset: the next launch starts at the beginning.
    #[serde(default)]
    pub is_reset: bool,
    /// Whether the job has other stages since: its ranks take part no longer, and the next launch resumes from it.
    #[serde(default)]
    pub is_outdated: bool,
    /// The ranks that have joined. Shared with the records before and after this one, in which most ranks are the same.
    #[serde(with = "shared")]
    pub ranks: Vec<Arc<RankRecord>>,
}

/// Ranks are stored as if they were not shared.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::RankRecord;

    pub(super) fn serialize<S: Serializer>(ranks: &[Arc<RankRecord>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(ranks.iter().map(Arc::as_ref))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Arc<RankRecord>>, D::Error> {
        Ok(Vec::<RankRecord>::deserialize(deserializer)?.into_iter().map(Arc::new).collect())
    }
}

/// The join that superseded a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Successor {
    /// The session that it opened.
    pub session: SessionId,
    /// The rank that joined.
    pub rank: u32,
    /// The client that joined.
    pub client: String,
}

/// The durable record of a rank of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRecord {
    /// The rank's number.
    pub rank: u32,
    /// The nonce of the rank's join.
    pub nonce: u64,
    /// The client's name.
    pub client: String,
    /// When the client was started, in seconds since 1970. Format 1 did not record it: 0.
    #[serde(default)]
    pub since_unix_s: u64,
    /// The client's node.
    pub node: NodeId,
    /// The position after the last batch that the trainer has taken.
    pub acknowledged: Position,
    /// The receipt of what the trainer has taken up to there. Records of earlier builds lack it.
    #[serde(default)]
    pub receipt: Option<Receipt>,
    /// Whether the rank left by request.
    pub left: bool,
}

/// The durable record of a bad sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadSampleRecord {
    /// The job's name.
    pub job: String,
    /// The sample's id.
    pub sample: SampleId,
    /// Where the sample is and what is wrong with it; kept only for the first ones of a job.
    pub named: Option<BadSampleReport>,
}

/// Where a bad sample is and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadSampleReport {
    /// The shard that holds the sample.
    pub shard: String,
    /// The key of the sample's record.
    pub key: String,
    /// What is wrong.
    pub cause: String,
}
