//! Counts what a stage does: items, bytes, failures, and where its time goes. Lock-free, and without an allocation per
//! item. The callers of [`StageCounters`] pass durations; only [`StageRecorder`] reads the clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use spdl_core::{Stage, histogram::DurationHistogram, messages::StageStats};

/// The time in which a stage's tasks waited, summed over the tasks. The stages of a
/// [`Pipeline`](crate::Pipeline) measure it; those of a worker's feed do not, so [`StageStats`] does not contain it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageWaits {
    /// Waiting for an item to work on.
    pub input: Duration,
    /// Waiting for the next stage to take a result.
    pub output: Duration,
    /// Current number of items in the queue in front of the stage.
    pub queue_depth: u64,
}

/// The counters of one stage, shared by all its tasks.
#[derive(Debug)]
pub struct StageCounters {
    stage: Stage,
    items: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    busy_ns: AtomicU64,
    waiting_for_input_ns: AtomicU64,
    waiting_for_output_ns: AtomicU64,
    queue_depth: AtomicU64,
    latency: DurationHistogram,
}

impl StageCounters {
    /// Creates the counters of a stage, all at zero.
    #[must_use]
    pub fn new(stage: impl Into<Stage>) -> Self {
        Self {
            stage: stage.into(),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            waiting_for_input_ns: AtomicU64::new(0),
            waiting_for_output_ns: AtomicU64::new(0),
            queue_depth: AtomicU64::new(0),
            latency: DurationHistogram::default(),
        }
    }

    /// Returns the stage's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.stage.name()
    }

    /// Counts an item of `bytes` that took `busy`.
    pub fn item(&self, busy: Duration, bytes: u64) {
        self.items.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.busy_ns.fetch_add(nanoseconds(busy), Relaxed);
        self.latency.record(busy);
    }

    /// Counts an item that failed after `busy`.
    pub fn failure(&self, busy: Duration) {
        self.failures.fetch_add(1, Relaxed);
        self.busy_ns.fetch_add(nanoseconds(busy), Relaxed);
    }

    /// Counts time in which a task had nothing to work on.
    pub fn waited_for_input(&self, waited: Duration) {
        self.waiting_for_input_ns.fetch_add(nanoseconds(waited), Relaxed);
    }

    /// Counts time in which a task waited for its result to be taken.
    pub fn waited_for_output(&self, waited: Duration) {
        self.waiting_for_output_ns.fetch_add(nanoseconds(waited), Relaxed);
    }

    /// Sets the number of items that wait in front of the stage.
    pub fn queue_depth_is(&self, depth: u64) {
        self.queue_depth.store(depth, Relaxed);
    }

    /// Counts items into the queue in front of the stage.
    pub fn queued(&self, items: u64) {
        self.queue_depth.fetch_add(items, Relaxed);
    }

    /// Counts items out of the queue in front of the stage. They must have been counted in before.
    pub fn dequeued(&self, items: u64) {
        self.queue_depth.fetch_sub(items, Relaxed);
    }

    /// Returns the waiting times of the stage's tasks; zero unless a [`StageRecorder`] and a counted queue measure
    /// them.
    #[must_use]
    pub fn waits(&self) -> StageWaits {
        StageWaits {
            input: Duration::from_nanos(self.waiting_for_input_ns.load(Relaxed)),
            output: Duration::from_nanos(self.waiting_for_output_ns.load(Relaxed)),
            queue_depth: self.queue_depth.load(Relaxed),
        }
    }

    /// Returns the number of items that failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Returns the total time of all items, failures included.
    #[must_use]
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns.load(Relaxed))
    }

    /// Returns the statistics so far. The counters are read one after the other, so they may differ by an item.
    #[must_use]
    pub fn stats(&self) -> StageStats {
        let [p50_ns, p90_ns, p99_ns] = self.latency.quantiles([0.5, 0.9, 0.99]).map(nanoseconds);
        StageStats {
            stage: self.stage.clone(),
            items: self.items.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            failures: self.failures.load(Relaxed),
            busy_ns: self.busy_ns.load(Relaxed),
            p50_ns,
            p90_ns,
            p99_ns,
        }
    }
}

/// Returns a duration in nanoseconds, at most [`u64::MAX`].
#[must_use]
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Measures the times of one task of a stage. The task calls [`start`](Self::start), then [`done`](Self::done) or
/// [`failed`](Self::failed), then [`handed_over`](Self::handed_over), and so on. All its time counts as busy, as
/// waiting for input or as waiting for output.
#[derive(Debug)]
pub struct StageRecorder {
    stage: Arc<StageCounters>,
    since: Instant,
}

impl StageRecorder {
    /// Creates a recorder for a task of `stage` that starts to wait for its first input.
    #[must_use]
    pub fn new(stage: Arc<StageCounters>) -> Self {
        Self { stage, since: Instant::now() }
    }

    /// Returns the stage.
    #[must_use]
    pub const fn stage(&self) -> &Arc<StageCounters> {
        &self.stage
    }

    /// Records that the input has come.
    pub fn start(&mut self) {
        let waited = self.lap();
        self.stage.waited_for_input(waited);
    }

    /// Records that an item of `bytes` is done.
    pub fn done(&mut self, bytes: u64) {
        let busy = self.lap();
        self.stage.item(busy, bytes);
    }

    /// Records that the item failed.
    pub fn failed(&mut self) {
        let busy = self.lap();
        self.stage.failure(busy);
    }

    /// Records that the result was taken.
    pub fn handed_over(&mut self) {
        let waited = self.lap();
        self.stage.waited_for_output(waited);
    }

    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut self.since, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_follow_the_items() {
        let stage = StageCounters::new(Stage::Decode);
        for ms in 1..=1000 {
            stage.item(Duration::from_millis(ms), 10);
        }
        let stats = stage.stats();
        for (actual, expected_ms) in [(stats.p50_ns, 500), (stats.p90_ns, 900), (stats.p99_ns, 990)] {
            let expected = expected_ms * 1_000_000;
            assert!(actual.abs_diff(expected) <= expected / 16, "{actual} where {expected} was due");
        }
        assert_eq!((stats.items, stats.bytes), (1000, 10_000));
        assert_eq!(stats.busy_ns, 500_500 * 1_000_000);
    }

    #[test]
    fn a_stage_that_did_nothing_shows_zeros() {
        assert_eq!(StageCounters::new(Stage::Decode).stats(), StageStats::new(Stage::Decode));
    }

    #[test]
    fn a_recorder_leaves_no_time_unaccounted() {
        let stage = Arc::new(StageCounters::new(Stage::Decode));
        let before = Instant::now();
        let mut recorder = StageRecorder::new(stage.clone());
        for item in 0..100 {
            recorder.start();
            if item % 10 == 0 {
                recorder.failed()
            } else {
                recorder.done(1)
            }
            recorder.handed_over();
        }
        let limit = nanoseconds(before.elapsed());
        let stats = stage.stats();
        assert_eq!((stats.items, stats.failures, stats.bytes), (90, 10, 90));
        let StageWaits { input, output, .. } = stage.waits();
        let accounted = stats.busy_ns + nanoseconds(input + output);
        assert!(accounted <= limit && accounted > 0);
    }

    #[test]
    fn the_queue_is_counted_up_and_down() {
        let stage = StageCounters::new(Stage::Fetch);
        stage.queued(5);
        stage.dequeued(2);
        assert_eq!(stage.waits().queue_depth, 3);
        stage.queue_depth_is(9);
        assert_eq!(stage.waits().queue_depth, 9);
    }
}
