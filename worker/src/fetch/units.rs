//! What each request that may be in flight does: the units of the stage `fetch`.

use std::time::Instant;

use parking_lot::Mutex;
use spdl_pipeline::stats::{StageCounters, UnitGroup, UnitState};

/// What a read of a store does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadState {
    /// A request is in flight.
    InFlight,
    /// It waits because as many requests as may be are in flight.
    Queued,
    /// It waits before it is tried again.
    Delayed,
    /// It waits for memory.
    NoMemory,
    /// It is ahead of need, and as many of those as may be are being read.
    Ahead,
}

/// The requests that may be in flight.
#[derive(Debug)]
pub(crate) struct RequestUnits {
    units: UnitGroup,
    /// Number of reads by state.
    reads: Mutex<[usize; 5]>,
}

impl RequestUnits {
    pub(crate) fn new(stage: &StageCounters, at_once: usize) -> Self {
        let units = u32::try_from(at_once).unwrap_or(u32::MAX);
        Self { units: stage.units().group(units, Instant::now()), reads: Mutex::default() }
    }

    /// Notes that a read is in `state` until the returned value is dropped.
    pub(crate) fn enter(&self, state: ReadState) -> InState<'_> {
        self.change(|reads| reads[state as usize] += 1);
        InState { units: self, state }
    }

    /// Returns the number of reads that wait for a request, for memory, or for others that are ahead of need.
    pub(crate) fn waiting(&self) -> usize {
        let reads = self.reads.lock();
        [ReadState::Queued, ReadState::NoMemory, ReadState::Ahead].map(|state| reads[state as usize]).iter().sum()
    }

    fn change(&self, change: impl FnOnce(&mut [usize; 5])) {
        let mut reads = self.reads.lock();
        change(&mut reads);
        let of = |state: ReadState| reads[state as usize];
        let held_back = of(ReadState::Delayed) + of(ReadState::NoMemory);
        // The requests that reads ahead of need may not make are kept for a batch that will wait for one.
        let kept = if of(ReadState::Ahead) > 0 { usize::MAX } else { 0 };
        let states =
            [(UnitState::Busy, of(ReadState::InFlight)), (UnitState::Throttled, held_back), (UnitState::Input, kept)];
        self.units.set(states, Instant::now());
    }
}

/// A read in one state.
#[must_use]
pub(crate) struct InState<'u> {
    units: &'u RequestUnits,
    state: ReadState,
}

impl Drop for InState<'_> {
    fn drop(&mut self) {
        self.units.change(|reads| reads[self.state as usize] -= 1);
    }
}
