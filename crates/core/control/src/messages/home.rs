//! The messages between a client and its home.

use serde::{Deserialize, Serialize};
use spdl_insight::Stall;
use spdl_types::Position;

use super::Session;

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
        /// The secret number with which this rank's other connections join; `None` if the rank has one connection.
        join_key: Option<u128>,
    },
    /// The client no longer uses a slot.
    Freed {
        /// The slot.
        slot: u32,
        /// Whether a device of the client reads the slot directly, so that the slot's pages have to stay in place.
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
