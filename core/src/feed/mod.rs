//! A rank's feed on its worker: the order in which its slots are filled and sent, the memory that they take, what happens to
//! bad samples, and which samples are decoded once for several feeds.

mod bad;
mod core;
mod room;
mod sharing;

pub use self::core::{FeedCore, FeedEffect};
pub use bad::{BadLedger, BadSampleKind, BadSampleNote, RecordedBad, Remedy, TooManyBad, remedy};
pub use room::{RankId, RankNeeds, RoomCore, RoomEffect, RoomKey};
pub use sharing::{
    Allowed, Decoded, IDLE_AFTER_MS, PartWork, Released, SampleDraw, SampleWork, SharingCore, SharingCounts, SharingId,
    SharingWorth,
};
