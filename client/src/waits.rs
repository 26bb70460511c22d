//! How long a trainer has waited for its batches, the wait in progress included.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Sums the time that a trainer spends waiting. The loader measures; whoever reports the figure, also from another
/// task while the trainer waits, reads the same sum. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct WaitClock(Arc<Mutex<Waited>>);

#[derive(Debug, Default)]
struct Waited {
    /// Waits that are over, whether a batch ended them, a timeout, or the caller.
    past: Duration,
    /// When the wait in progress began.
    since: Option<Instant>,
}

impl WaitClock {
    /// Time waited so far.
    #[must_use]
    pub fn total(&self) -> Duration {
        let waited = self.0.lock();
        waited.past + waited.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// [`WaitClock::total`] in milliseconds.
    #[must_use]
    pub fn total_ms(&self) -> u64 {
        u64::try_from(self.total().as_millis()).unwrap_or(u64::MAX)
    }

    /// Begins a wait; it lasts until the guard is dropped, also where the waiting future is dropped.
    pub(crate) fn start(&self) -> RunningWait<'_> {
        self.0.lock().since = Some(Instant::now());
        RunningWait(self)
    }
}

/// A wait in progress.
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
