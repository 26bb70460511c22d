//! The messages between processes. Plain data; the codec encodes it and limits its size.
//!
//! There are four conversations: with the coordinator (request and reply, each pair on its own stream: [`ToCoordinator`],
//! [`FromCoordinator`]), between a client and its home (one ordered channel each way, beside the batches
//! themselves: [`ToHome`], [`FromHome`]), between workers ([`PeerRequest`]), and between the processes that share a rank
//! ([`ToLeader`], [`FromLeader`]).

mod coordinator;
mod group;
mod home;
mod peer;
mod rank;
mod refusal;
mod worker;

pub use coordinator::{
    BAD_SAMPLES_PAGE, CLASSES_PAGE_BYTES, FromCoordinator, JobHold, JobNotice, JobReplacement, ToCoordinator,
};
pub use group::{FromLeader, MemberAttach, ToLeader};
pub use home::{FromHome, ToHome};
pub use peer::PeerRequest;
pub use rank::{Join, KnownChanges, RankHeartbeat, Session};
pub use refusal::Refusal;
pub use worker::{Home, RankStats, WorkerHeartbeat};

pub use crate::launch::{Holder, RunName, Start, StartReason, Started};

/// The version of all messages. A peer with another version is refused with an error that names both.
pub const PROTOCOL_VERSION: u16 = 8;
