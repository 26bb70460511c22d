//! What each request that may be in flight does: the units of the stage `fetch`, and how long their number has held reads back.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spdl_accounting::{StageCounters, UnitGroup, UnitInterval, UnitState};
use spdl_types::BatchId;

tokio::task_local! {
    static BATCH: Option<BatchId>;
}

/// Runs `work`, whose reads are recorded as made for `batch`.
pub(crate) async fn for_batch<T>(batch: Option<BatchId>, work: impl Future<Output = T>) -> T {
    BATCH.scope(batch, work).await
}

/// Runs `work`, whose tasks read for `batch`.
pub(crate) fn for_batch_now<T>(batch: BatchId, work: impl FnOnce() -> T) -> T {
    BATCH.sync_scope(Some(batch), work)
}

/// Returns the batch that the current task reads for, if it reads for one.
pub(crate) fn current_batch() -> Option<BatchId> {
    BATCH.try_with(|batch| *batch).ok().flatten()
}

/// What a read of a store does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadState {
    /// A request is in flight.
    InFlight,
    /// It waits because the maximum number of requests is in flight.
    Queued,
    /// It waits before it is tried again.
    Delayed,
    /// It waits for memory.
    NoMemory,
    /// It is ahead of need, and waits because the maximum number of such reads is being made.
    Ahead,
}

/// The requests that may be in flight.
#[derive(Debug)]
pub(crate) struct RequestUnits {
    units: UnitGroup,
    reads: Mutex<ReadCounts>,
}

/// Times since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageTimes {
    /// Time in which any request was in flight.
    pub(crate) active: Duration,
    /// Time in which a read waited until it may make a request.
    pub(crate) held_back: Duration,
}

#[derive(Debug)]
struct ReadCounts {
    /// Number of reads by state.
    counts: [usize; 5],
    /// For each unit whether it is taken by a request in flight.
    taken: Vec<bool>,
    times: UsageTimes,
    accounted_until: Instant,
}

impl ReadCounts {
    fn account(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.accounted_until);
        self.accounted_until = now;
        if self.counts[ReadState::InFlight as usize] > 0 {
            self.times.active += elapsed;
        }
        if self.counts[ReadState::Queued as usize] + self.counts[ReadState::Ahead as usize] > 0 {
            self.times.held_back += elapsed;
        }
    }

    /// Takes the first unit that is free.
    fn take_unit(&mut self) -> usize {
        let free = self.taken.iter().position(|taken| !taken).unwrap_or(self.taken.len());
        self.taken.resize(self.taken.len().max(free + 1), false);
        self.taken[free] = true;
        free
    }
}

impl RequestUnits {
    pub(crate) fn new(stage: &StageCounters, requests: usize) -> Self {
        let (units, now) = (u32::try_from(requests).unwrap_or(u32::MAX), Instant::now());
        let (counts, taken, times) = Default::default();
        let reads = Mutex::new(ReadCounts { counts, taken, times, accounted_until: now });
        Self { units: stage.units().group(units, now), reads }
    }

    /// Changes how many requests may be in flight.
    pub(crate) fn resize(&self, requests: usize) {
        let now = Instant::now();
        self.units.resize(u32::try_from(requests).unwrap_or(u32::MAX), now);
        self.change(now, |_| ());
    }

    /// Notes that a read is in `state` until the returned value is dropped.
    pub(crate) fn enter(&self, state: ReadState) -> InState<'_> {
        let began = Instant::now();
        let unit = self.change(began, |reads| {
            reads.counts[state as usize] += 1;
            if state == ReadState::InFlight { reads.take_unit() } else { 0 }
        });
        InState { units: self, state, unit, began, batch: current_batch() }
    }

    fn leave(&self, InState { state, unit, began, batch, .. }: &InState<'_>) {
        let now = Instant::now();
        self.change(now, |reads| {
            reads.counts[*state as usize] -= 1;
            if *state == ReadState::InFlight {
                reads.taken[*unit] = false;
            }
        });
        if *state == ReadState::InFlight {
            let unit = u32::try_from(*unit).unwrap_or(u32::MAX);
            let (state, batch) = (UnitState::Busy, *batch);
            self.units.add_interval(UnitInterval { unit, state, start: *began, end: now, batch });
        }
    }

    /// Returns the number of reads that wait for a request, for memory, or for others that are ahead of need.
    pub(crate) fn waiting(&self) -> usize {
        let counts = self.reads.lock().counts;
        [ReadState::Queued, ReadState::NoMemory, ReadState::Ahead].map(|state| counts[state as usize]).iter().sum()
    }

    /// Returns the times up to now.
    pub(crate) fn times(&self) -> UsageTimes {
        let mut reads = self.reads.lock();
        reads.account(Instant::now());
        reads.times
    }

    fn change<T>(&self, now: Instant, change: impl FnOnce(&mut ReadCounts) -> T) -> T {
        let mut reads = self.reads.lock();
        reads.account(now);
        let changed = change(&mut reads);
        let of = |state: ReadState| reads.counts[state as usize];
        let held_back = of(ReadState::Delayed) + of(ReadState::NoMemory);
        // While reads ahead of need have to wait, the free requests are kept for a batch that will need one.
        let kept = if of(ReadState::Ahead) > 0 { usize::MAX } else { 0 };
        let states =
            [(UnitState::Busy, of(ReadState::InFlight)), (UnitState::Throttled, held_back), (UnitState::Input, kept)];
        self.units.set(states, now);
        changed
    }
}

/// A read in one state.
#[must_use]
pub(crate) struct InState<'u> {
    units: &'u RequestUnits,
    state: ReadState,
    /// The number of the unit, if a request is in flight.
    unit: usize,
    began: Instant,
    batch: Option<BatchId>,
}

impl Drop for InState<'_> {
    fn drop(&mut self) {
        self.units.leave(self);
    }
}

#[cfg(test)]
mod tests {
    use spdl_types::Stage;

    use super::*;

    #[test]
    fn times_count_while_reads_are_in_flight_and_while_others_wait() {
        let units = RequestUnits::new(&StageCounters::new(Stage::Fetch), 1);
        let wait = || {
            let until = Instant::now() + Duration::from_millis(2);
            while Instant::now() < until {}
        };
        wait();
        assert_eq!(units.times(), UsageTimes::default());
        let in_flight = units.enter(ReadState::InFlight);
        wait();
        let waiting = units.enter(ReadState::Queued);
        wait();
        drop((waiting, in_flight));
        let times = units.times();
        assert!(times.held_back >= Duration::from_millis(2) && times.active > times.held_back, "{times:?}");
        wait();
        assert_eq!(units.times(), times);
    }
}
