//! What a worker asks of another one.

use serde::{Deserialize, Serialize};

use crate::{
    help::{DecodeRequest, HelpJob},
    peers::BlockRequest,
};

/// A request of a worker to another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PeerRequest {
    /// Requests bytes of a block. The reply is a [`BlockReply`](crate::peers::BlockReply).
    Block(BlockRequest),
    /// Asks the worker to prepare to decode samples of a job. The reply is a [`HelpReply`](crate::help::HelpReply).
    Job(Box<HelpJob>),
    /// Asks the worker to decode samples. The reply is a [`HelpReply`](crate::help::HelpReply).
    Decode(DecodeRequest),
}
