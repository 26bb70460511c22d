//! A trace: what the units of stages did for some seconds, on one clock. Workers and ranks send their parts of it to
//! the coordinator, and `spdl-ctl trace` writes it to a file.

use serde::{Deserialize, Serialize};

use spdl_types::{BatchId, SessionId, Stage, WorkerId};

/// The name of the stage of a trainer's steps. A step lasts from the arrival of a batch to the wait for the next one.
/// The stage has intervals and no statistics, so it is not in [`Stage::KNOWN`].
pub const STEP: &str = "step";
/// The longest recording, in milliseconds.
pub const MAX_TRACE_MS: u64 = 60_000;
/// The most intervals of all processes in a trace: about 40 MB in the coordinator's memory.
pub const MAX_TRACE_SPANS: u32 = 1 << 19;
/// The most intervals of one process in a trace.
pub const MAX_PROCESS_SPANS: u32 = 1 << 16;
/// The most intervals in one message: at most 1 MB.
pub const MAX_PART_SPANS: usize = 1 << 14;

/// Asks a process to record what its units do, in a reply to its heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceOrder {
    /// The number of the trace.
    pub trace: u64,
    /// For how much longer to record, in milliseconds.
    pub remaining_ms: u64,
    /// The most intervals to send; a process that has more sends the last ones.
    pub spans: u32,
}

/// A process that takes part in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum TraceSource {
    /// A worker.
    Worker(WorkerId),
    /// The trainer of a rank.
    Rank { session: SessionId, rank: u32 },
}

/// What a unit does; see [`StageStats`](spdl_types::StageStats).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum SpanState {
    Busy,
    Input,
    Output,
    Throttled,
}

/// An interval for which a unit was in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitSpan {
    /// The unit's number in its stage and process.
    pub unit: u32,
    /// What it did.
    pub state: SpanState,
    /// Its beginning in microseconds of the coordinator's clock.
    pub start_us: u64,
    /// Its end in microseconds of the coordinator's clock.
    pub end_us: u64,
    /// The batch that the unit worked on, if it is known.
    pub batch: Option<BatchId>,
}

/// A part of what a process recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracePart {
    /// The number of the trace.
    pub trace: u64,
    /// The process.
    pub source: TraceSource,
    /// The number of the part, from 0. A part that is sent again has no effect.
    pub number: u32,
    /// The process's name, for people.
    pub name: String,
    /// By how much its clock may differ from the coordinator's, in microseconds.
    pub accuracy_us: u64,
    /// The number of intervals that were recorded and are not sent, because there was no room for them.
    pub lost: u64,
    /// The intervals, by stage; at most [`MAX_PART_SPANS`].
    pub stages: Vec<(Stage, Vec<UnitSpan>)>,
    /// Whether no part of the process follows.
    pub is_last: bool,
}

impl TracePart {
    /// Returns the number of intervals.
    #[must_use]
    pub fn spans(&self) -> usize {
        self.stages.iter().map(|(_, spans)| spans.len()).sum()
    }
}

/// The state of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceProgress {
    /// The number of the trace.
    pub trace: u64,
    /// For how much longer processes record, in milliseconds.
    pub remaining_ms: u64,
    /// The part that was asked for, if it has come.
    pub part: Option<Box<TracePart>>,
    /// The number of processes that take part.
    pub processes: u32,
    /// The processes that have not sent their last part.
    pub missing: Vec<TraceSource>,
}

/// A round trip to a process with another clock, in microseconds: when the request was sent, what the other clock showed,
/// and when the reply came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RoundTrip {
    pub sent_us: u64,
    pub remote_us: u64,
    pub received_us: u64,
}

/// How another clock differs from this process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// What to add to a time of this process's clock.
    offset_us: i128,
    /// By how much the result may be wrong, in microseconds.
    pub accuracy_us: u64,
}

impl ClockOffset {
    /// Estimates the offset from the shortest round trip: the other clock was read at some time within it, so the middle
    /// is wrong by at most half of it. Returns `None` without a round trip.
    #[must_use]
    pub fn of(round_trips: &[RoundTrip]) -> Option<Self> {
        let took = |trip: &&RoundTrip| trip.received_us.saturating_sub(trip.sent_us);
        let shortest = round_trips.iter().min_by_key(took)?;
        let middle = i128::from(shortest.sent_us) + i128::from(took(&shortest) / 2);
        Some(Self { offset_us: i128::from(shortest.remote_us) - middle, accuracy_us: took(&shortest).div_ceil(2) })
    }

    /// Converts a time of this process's clock to the other clock; returns 0 for a time before the other clock began.
    #[must_use]
    pub fn remote_us(&self, local_us: u64) -> u64 {
        let remote_us = (i128::from(local_us) + self.offset_us).max(0);
        u64::try_from(remote_us).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spdl_types::mix::splitmix64;

    #[test]
    fn the_offset_of_a_clock_is_within_the_accuracy_that_is_told_whatever_the_delays() {
        for seed in 0..1_000 {
            let draw = |number: u64, below: u64| splitmix64(seed * 1_000 + number) % below;
            let offset = i128::from(draw(0, 2_000_000)) - 1_000_000;
            let trips: Vec<RoundTrip> = (1..=8)
                .map(|trip| {
                    let sent_us = 5_000_000 + trip * 10_000;
                    let (there, back) = (draw(10 * trip, 5_000), draw(10 * trip + 1, 5_000));
                    let remote_us = u64::try_from(i128::from(sent_us + there) + offset).unwrap();
                    RoundTrip { sent_us, remote_us, received_us: sent_us + there + back }
                })
                .collect();
            let found = ClockOffset::of(&trips).unwrap();
            let truth = u64::try_from(7_000_000 + offset).unwrap();
            let error = found.remote_us(7_000_000).abs_diff(truth);
            assert!(error <= found.accuracy_us, "seed {seed}: {error} us, {found:?}");
            assert!(found.accuracy_us <= 5_000, "{found:?}");
        }
        assert_eq!(ClockOffset::of(&[]), None);
    }

    #[test]
    fn a_time_before_the_other_clock_began_is_its_beginning() {
        let trip = RoundTrip { sent_us: 1_000, remote_us: 10, received_us: 1_000 };
        assert_eq!(ClockOffset::of(&[trip]).unwrap().remote_us(5), 0);
    }
}
