//! Decisions of a worker about the feeds of its ranks, without I/O, clock, thread or environment:
//!
//! - The order in which a rank's slots are filled and sent ([`FeedCore`]), and the memory that they take ([`RoomCore`]).
//! - What happens to bad samples ([`BadLedger`]).
//! - Which samples are decoded once for several feeds ([`SharingCore`]), and which before their batch has a slot ([`SlowSamples`]).
//! - What the caches of blocks keep ([`cache`]).
//! - When a request to a store is made a second time ([`requests`]).

mod bad;
pub mod cache;
pub mod requests;
mod room;
mod sharing;
mod slots;
mod slow;

pub use bad::{BadLedger, BadSampleKind, BadSampleNote, RecordedBad, Remedy, TooManyBad, remedy};
pub use room::{RankId, RankNeeds, RoomCore, RoomEffect, RoomKey};
pub use sharing::{
    Allowed, Decoded, IDLE_AFTER_MS, PartWork, SampleDraw, SampleWork, SharingCore, SharingCounts, SharingId,
    SharingRelease, SharingWorth,
};
pub use slots::{FeedCore, FeedEffect};
pub use slow::{SLOW, SlowSamples};
