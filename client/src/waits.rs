//! Measures how long a trainer has waited for its batches, including the wait in progress, and how long its steps take.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use spdl_accounting::{Recording, StageUnits, UnitGroup, UnitState};
use spdl_types::BatchId;

/// Sums the time that a trainer spends waiting. The loader measures it; other tasks can read the same sum while the
/// trainer waits. Clones share the sum.
#[derive(Clone, Debug)]
pub struct WaitClock {
    waited: Arc<Mutex<Waited>>,
    /// The trainer, as the only unit of a stage: busy with a batch, or waiting for input.
    steps: Arc<StageUnits>,
    trainer: Arc<UnitGroup>,
}

#[derive(Debug, Default)]
struct Waited {
    /// The waits that have ended, with a batch, a timeout or a dropped future.
    past: Duration,
    /// The start of the wait in progress.
    since: Option<Instant>,
}

impl Default for WaitClock {
    fn default() -> Self {
        let steps = Arc::<StageUnits>::default();
        let trainer = Arc::new(steps.group(1, Instant::now()));
        Self { waited: Arc::default(), steps, trainer }
    }
}

impl WaitClock {
    /// Returns the time waited so far.
    #[must_use]
    pub fn total(&self) -> Duration {
        let waited = self.waited.lock();
        waited.past + waited.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns [`WaitClock::total`] in milliseconds.
    #[must_use]
    pub fn total_ms(&self) -> u64 {
        u64::try_from(self.total().as_millis()).unwrap_or(u64::MAX)
    }

    /// Starts a wait that lasts until the guard is dropped, also when the waiting future is dropped.
    pub(crate) fn start(&self) -> RunningWait<'_> {
        let now = Instant::now();
        self.trainer.set([(UnitState::Input, 1)], now);
        self.waited.lock().since = Some(now);
        RunningWait(self)
    }

    /// Notes that the trainer has got a batch and works with it until the next wait.
    pub(crate) fn step(&self, batch: BatchId) {
        let now = Instant::now();
        self.trainer.set_batch(Some(batch), now);
        self.trainer.set([(UnitState::Busy, 1)], now);
    }

    /// Records the trainer's steps and waits, and keeps the last `capacity`.
    pub(crate) fn record(&self, capacity: usize) {
        self.steps.record(capacity, Instant::now());
    }

    /// Ends the recording and returns it.
    pub(crate) fn take_recording(&self) -> Option<Recording> {
        self.steps.take_recording(Instant::now())
    }
}

/// The guard of a wait in progress.
#[must_use]
pub(crate) struct RunningWait<'a>(&'a WaitClock);

impl Drop for RunningWait<'_> {
    fn drop(&mut self) {
        let mut waited = self.0.waited.lock();
        if let Some(since) = waited.since.take() {
            waited.past += since.elapsed();
        }
    }
}
