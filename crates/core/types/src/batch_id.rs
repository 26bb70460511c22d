//! The name of a batch, by which the records of several processes are matched.

use serde::{Deserialize, Serialize};

use crate::{Position, SessionId};

/// A batch of one rank. Every process that takes part in making or using it computes the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchId {
    /// The session.
    pub session: SessionId,
    /// The rank, r in the specification of the order.
    pub rank: u32,
    /// The position at which its global batch begins.
    pub from: Position,
}
