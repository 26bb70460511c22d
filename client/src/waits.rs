//! Measures how long a trainer has waited for its batches, including the wait in progress.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Sums the time that a trainer spends waiting. The loader measures it; other tasks can read the same sum while the
/// trainer waits. Clones share the sum.
#[derive(Clone, Debug, Default)]
pub struct WaitClock(Arc<Mutex<Waited>>);

#[derive(Debug, Default)]
struct Waited {
    /// The waits that have ended, with a batch, a timeout or a dropped future.
    past: Duration,
    /// The start of the wait in progress.
    since: Option<Instant>,
}

impl WaitClock {
    /// Returns the time waited so far.
    #[must_use]
    pub fn total(&self) -> Duration {
        let waited = self.0.lock();
        waited.past + waited.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns [`WaitClock::total`] in milliseconds.
    #[must_use]
    pub fn total_ms(&self) -> u64 {
        u64::try_from(self.total().as_millis()).unwrap_or(u64::MAX)
    }

    /// Starts a wait that lasts until the guard is dropped, also when the waiting future is dropped.
    pub(crate) fn start(&self) -> RunningWait<'_> {
        self.0.lock().since = Some(Instant::now());
        RunningWait(self)
    }
}

/// The guard of a wait in progress.
#[must_use]
pub(crate) struct RunningWait<'a>(&'a WaitClock);

impl Drop for RunningWait<'_> {
    fn drop(&mut self) {
        let mut waited = self.0.0.lock();
        if let Some(since) = waited.since.take() {
            waited.past += since.elapsed();
        }
    }
}
