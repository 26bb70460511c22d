//! Chooses at run time how many requests to stores are in flight and how many steps are read ahead, as a congestion
//! controller does: from measurements alone, by short trials. No I/O and no clock; time is what the intervals add up to.
//!
//! - An [`Interval`] is what was measured in a moment, some four times a second.
//! - The [`Tuner`] takes intervals. When the store is what holds the samples up, it tries another value, measures, and
//!   keeps it if the gain is there; otherwise it steps back and waits, for twice as long after each trial that failed.
//! - A [`TuningChange`] is one change of a value, with its reason in words.
//!
//! The search is a hill climb on a grid of doublings: throughput grows with the requests in flight until the store, the
//! link or the consumer is the limit, so a doubling that gives nothing ends it. Small steps up and down follow, for stores
//! that get slower when they are asked for too much at once.

mod measurements;
mod rates;
mod search;
mod settings;
mod tuner;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use settings::{Setting, Tunable, TunedValue, TuningChange, TuningSettings, TuningStatus};
pub use tuner::{Interval, Tuner};

/// Number of changes that are kept to be shown.
pub const SHOWN_CHANGES: usize = 32;
