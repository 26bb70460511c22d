//! The messages between the processes of a group and the member that leads it. They stay on one node, and between processes
//! of one build of the package.

use serde::{Deserialize, Serialize};
use spdl_types::{Fingerprint, Position};

use super::{Session, Start, StartReason};

/// A process's request to be a member of the group that shares a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberAttach {
    /// The member, from 1 on.
    pub member: u32,
    /// The number of members, the leader included.
    pub members: u32,
    /// The launcher's id: that of the leader.
    pub launch: Option<String>,
    /// Where to start.
    pub start: Start,
    /// The fingerprint in the state that the start comes from, if there is one.
    pub fingerprint: Option<Fingerprint>,
    /// Samples per step over all ranks, if it differs from the job's.
    pub global_batch: Option<u32>,
    /// The number of epochs, if it differs from the run's.
    pub epochs: Option<u64>,
    /// The process's id and host, for errors.
    pub client: String,
}

/// A message of a member to the leader of its group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToLeader {
    /// The first message.
    Attach(Box<MemberAttach>),
    /// The member no longer reads a slot.
    Freed {
        /// The number of the leader's link that the slot's slab belongs to.
        link: u64,
        /// The slot.
        slot: u32,
        /// Whether a device of the member reads the slot directly, so that the slot's pages have to stay in place.
        is_locked: bool,
    },
    /// The trainer of the member has taken batches.
    Taken {
        /// The number of restarts of the member before that.
        restarts: u32,
        /// The position after the last batch.
        position: Position,
    },
    /// A sign of life.
    Alive,
    /// Asks why there is no batch.
    Explain,
    /// The member has closed its loader.
    Close,
}

/// A message of the leader of a group to another member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromLeader {
    /// The process is a member.
    Attached {
        /// The session that the leader has joined.
        session: Box<Session>,
        /// Why the session starts where it does.
        reason: StartReason,
        /// The leader's process id and host.
        client: String,
    },
    /// The process is not a member.
    Refused {
        /// The reason.
        message: String,
        /// Whether the process may be accepted later.
        is_retryable: bool,
    },
    /// Batches come in another slab, whose descriptor comes with this message.
    Slab {
        /// The number of the leader's link.
        link: u64,
        /// The number of slots.
        slots: u32,
        /// Distance from one slot to the next, in bytes.
        slot_stride: u64,
    },
    /// A slot holds the next batch.
    Filled {
        /// The number of the leader's link.
        link: u64,
        /// The slot.
        slot: u32,
        /// The bytes of the batch.
        used_bytes: u64,
    },
    /// The leader has restarted the stream.
    Restarted {
        /// The position of the next batch.
        from: Position,
    },
    /// The job of the session has changed ahead of the next batch.
    JobChanged {
        /// The session with its job as it is now.
        session: Box<Session>,
    },
    /// All epochs are delivered.
    End {
        /// The position after the last batch.
        position: Position,
    },
    /// A sign of life.
    Alive,
    /// The reply to [`ToLeader::Explain`].
    Explained(String),
    /// The last message: the member gets nothing more.
    Over {
        /// The reason.
        message: String,
    },
}
