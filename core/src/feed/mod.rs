//! A rank's feed on its worker: the order in which its slots are filled and sent, and what happens to bad samples.

mod bad;
mod core;

pub use self::core::{FeedCore, FeedEffect};
pub use bad::{BadLedger, BadSampleKind, BadSampleNote, RecordedBad, Remedy, TooManyBad, remedy};
