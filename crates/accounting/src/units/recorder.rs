//! Records what each unit of a stage did, interval by interval, in a ring of bounded size.

use std::{collections::VecDeque, time::Instant};

use spdl_types::BatchId;

use super::UnitState;

/// A time for which a unit was in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitInterval {
    /// The unit's number. It is unique among all units that the stage ever had, and ascends with their creation.
    pub unit: u32,
    /// The state; never [`UnitState::Idle`], which is recorded as the state that idle units count as.
    pub state: UnitState,
    /// When the unit entered the state, or the recording began.
    pub start: Instant,
    /// When the unit left the state, or the recording ended.
    pub end: Instant,
    /// The batch that the unit worked on, if it is known.
    pub batch: Option<BatchId>,
}

/// What the units of a stage did while they were recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The last intervals, in the order of their ends.
    pub intervals: Vec<UnitInterval>,
    /// Number of earlier intervals, for which there was no room.
    pub lost: u64,
}

/// Keeps the last intervals.
#[derive(Debug)]
pub(super) struct Recorder {
    intervals: VecDeque<UnitInterval>,
    capacity: usize,
    lost: u64,
}

impl Recorder {
    pub(super) const fn new(capacity: usize) -> Self {
        Self { intervals: VecDeque::new(), capacity, lost: 0 }
    }

    /// Adds an interval, unless it is empty.
    pub(super) fn push(&mut self, interval: UnitInterval) {
        if interval.end <= interval.start {
            return;
        }
        if self.intervals.len() >= self.capacity {
            self.lost += 1;
            self.intervals.pop_front();
        }
        if self.capacity > 0 {
            self.intervals.push_back(interval);
        }
    }

    pub(super) fn take(&mut self) -> Recording {
        Recording { intervals: std::mem::take(&mut self.intervals).into(), lost: std::mem::take(&mut self.lost) }
    }
}
