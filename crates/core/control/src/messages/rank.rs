//! The messages of a rank to the coordinator, and the session that the rank takes part in.

use serde::{Deserialize, Serialize};
use spdl_insight::{ReceiveStats, Transport};
use spdl_job::Job;
use spdl_order::{BlendStage, Receipt, Redaction};
use spdl_types::{Fingerprint, NodeId, Position, SessionId, WorkerId};

use super::{JobHold, Start};

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
    /// The fingerprint in the state that the start comes from, if there is one: of the job up to that position, or of the session's.
    pub fingerprint: Option<Fingerprint>,
    /// The launcher's id: all ranks of a launch share it, restarts included, and no other launch has it.
    pub launch: Option<String>,
    /// Whether to supersede a session of the run whose ranks are alive. The same on all ranks of a launch.
    pub takeover: bool,
    /// The session that the rank already takes part in, if the coordinator no longer knows it.
    pub session: Option<SessionId>,
    /// What the rank knows of that session's job, which the coordinator may have lost.
    pub changes: Option<Box<KnownChanges>>,
    /// The rank's node.
    pub node: NodeId,
    /// Process id and host of the client, for errors.
    pub client: String,
    /// When the client was started, by its own clock: seconds since 1970.
    pub since_unix_s: u64,
    /// Random for each client, so that a repeated join of the same client is not mistaken for a restart.
    pub nonce: u64,
}

/// The changes of a job that a rank knows which joins its session again. With the rest of the job as the coordinator has it, they make the
/// job that the rank goes by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownChanges {
    /// The stages of its sources.
    pub stages: Vec<BlendStage>,
    /// Its redactions.
    pub redactions: Vec<Redaction>,
    /// The fingerprints of the job as it was before each of its changes.
    pub earlier: Vec<Fingerprint>,
    /// The position after the last batch that was handed to the trainer.
    pub handed: Position,
    /// The change for whose outcome the rank waits.
    pub hold: Option<JobHold>,
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
    /// What it has received over QUIC.
    pub received: ReceiveStats,
    /// The position after the last batch that was handed to the trainer, whether it has taken it or not; past the end of the
    /// stream once it has got that.
    pub handed: Position,
    /// The fingerprint of the job that the rank goes by.
    pub fingerprint: Fingerprint,
    /// The change for whose outcome the rank waits.
    pub promise: Option<JobHold>,
    /// The number of the heartbeat of this client.
    pub number: u64,
}
