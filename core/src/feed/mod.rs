//! A rank's feed on its worker: the order in which its slots are filled and sent, the memory that they take, and what
//! happens to bad samples.

mod bad;
mod core;
mod room;

pub use self::core::{FeedCore, FeedEffect};
pub use bad::{BadLedger, BadSampleKind, BadSampleNote, RecordedBad, Remedy, TooManyBad, remedy};
pub use room::{RankId, RankNeeds, RoomCore, RoomEffect, RoomKey};
