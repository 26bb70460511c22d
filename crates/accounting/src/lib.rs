//! Counts what a stage does: items, bytes, failures, how long an item takes, and where the time of its units goes. The
//! counts are lock-free, and nothing is allocated per item. The callers of [`StageCounters`] pass times and durations.

mod busiest_thread;
mod units;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use spdl_types::{Stage, StageStats, histogram::DurationHistogram};

use busiest_thread::BusiestThread;

pub use busiest_thread::thread_cpu_ns;
pub use units::{Recording, StageUnits, UnitGroup, UnitInterval, UnitState, UnitTimes};

/// The counters of one stage, shared by all its units.
#[derive(Debug)]
pub struct StageCounters {
    stage: Stage,
    items: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    cpu_ns: AtomicU64,
    threads: BusiestThread,
    durations: DurationHistogram,
    units: Arc<StageUnits>,
}

impl StageCounters {
    /// Creates the counters of a stage, all at zero, without units.
    #[must_use]
    pub fn new(stage: impl Into<Stage>) -> Self {
        Self {
            stage: stage.into(),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            threads: BusiestThread::default(),
            durations: DurationHistogram::default(),
            units: Arc::default(),
        }
    }

    /// Returns the stage's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.stage.name()
    }

    /// Returns the stage.
    #[must_use]
    pub const fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Returns the stage's units.
    #[must_use]
    pub const fn units(&self) -> &Arc<StageUnits> {
        &self.units
    }

    /// Returns whether the stage has ever had a unit.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.units.is_used()
    }

    /// Counts an item of `bytes` that took `duration`.
    pub fn item(&self, duration: Duration, bytes: u64) {
        self.items(1, duration, bytes);
    }

    /// Counts `count` items that took `duration` each, and have `bytes` together.
    pub fn items(&self, count: u64, duration: Duration, bytes: u64) {
        self.items.fetch_add(count, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.durations.record_many(duration, count);
    }

    /// Counts an item that failed.
    pub fn failure(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    /// Adds CPU time.
    pub fn add_cpu(&self, cpu: Duration) {
        self.cpu_ns.fetch_add(nanoseconds(cpu), Relaxed);
    }

    /// Notes the CPU time of the calling thread, which does some of the work of the stage beside other work.
    pub fn note_thread(&self) {
        self.threads.note();
    }

    /// Returns the CPU time, in nanoseconds, of the busiest of the threads that called [`note_thread`](Self::note_thread): what it used between
    /// two calls of this function, summed over all calls. Meant for one reader.
    #[must_use]
    pub fn read_busiest_thread(&self) -> u64 {
        self.threads.read()
    }

    /// Returns the durations of the items that did not fail.
    #[must_use]
    pub const fn durations(&self) -> &DurationHistogram {
        &self.durations
    }

    /// Returns the statistics up to `now`, with an empty queue. The times are exact; the counters are read one after the
    /// other, so they may differ by an item.
    #[must_use]
    pub fn stats(&self, now: Instant) -> StageStats {
        let (times, units, _) = self.units.read(now);
        let stats = StageStats {
            items: self.items.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            failures: self.failures.load(Relaxed),
            cpu_ns: self.cpu_ns.load(Relaxed),
            units: units.into(),
            ..StageStats::new(self.stage.clone())
        };
        with_times(stats, &times, &self.durations)
    }
}

/// Sets the times of the units and of the items.
#[must_use]
pub fn with_times(stats: StageStats, times: &UnitTimes, durations: &DurationHistogram) -> StageStats {
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
        let stats = stage.stats(Instant::now());
        for (actual, expected_ms) in [(stats.p50_ns, 500), (stats.p90_ns, 900), (stats.p99_ns, 990)] {
            let expected = expected_ms * 1_000_000;
            assert!(actual.abs_diff(expected) <= expected / 16, "{actual} where {expected} was due");
        }
        assert_eq!((stats.items, stats.bytes), (1000, 10_000));
    }

    #[test]
    fn a_stage_that_did_nothing_shows_zeros() {
        let stats = StageCounters::new(Stage::Decode).stats(Instant::now());
        assert_eq!(stats, StageStats::new(Stage::Decode));
    }

    #[test]
    fn the_time_of_the_units_is_in_the_statistics() {
        let (stage, start) = (StageCounters::new(Stage::Decode), Instant::now());
        let threads = stage.units().group(3, start);
        threads.shift(1, UnitState::Idle, UnitState::Busy, start);
        threads.shift(1, UnitState::Idle, UnitState::Throttled, start);
        let stats = stage.stats(start + Duration::from_nanos(7));
        let times = [stats.busy_ns, stats.input_wait_ns, stats.output_wait_ns, stats.throttled_ns];
        assert_eq!((stats.units, times), (3, [7, 7, 0, 7]));
    }
}
