//! Counts what a stage does: items, bytes, failures, and where its time goes. Lock-free, and without an allocation per
//! item. The callers of [`StageCounters`] pass durations.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use spdl_core::{Stage, histogram::DurationHistogram, messages::StageStats};

pub use crate::units::{StageUnits, UnitGroup, UnitState, UnitTimes};

/// The counters of one stage, shared by all its tasks.
#[derive(Debug)]
pub struct StageCounters {
    stage: Stage,
    items: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    busy_ns: AtomicU64,
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
            items: self.items.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            failures: self.failures.load(Relaxed),
            busy_ns: self.busy_ns.load(Relaxed),
            p50_ns,
            p90_ns,
            p99_ns,
            ..StageStats::new(self.stage.clone())
        }
    }
}

/// Sets the times of the units and of the items.
pub(crate) fn with_times(stats: StageStats, times: &UnitTimes, durations: &DurationHistogram) -> StageStats {
    let [p50_ns, p90_ns, p99_ns] = durations.quantiles([0.5, 0.9, 0.99]).map(nanoseconds);
    StageStats {
        busy_ns: nanoseconds(times.of(UnitState::Busy)),
        input_wait_ns: nanoseconds(times.of(UnitState::Input)),
        output_wait_ns: nanoseconds(times.of(UnitState::Output)),
        throttled_ns: nanoseconds(times.of(UnitState::Throttled)),
        p50_ns,
        p90_ns,
        p99_ns,
        ..stats
    }
}

/// Returns a duration in nanoseconds, at most [`u64::MAX`].
#[must_use]
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
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
}
