//! A histogram of durations: how long items took, or how long batches were waited for.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use histogram::AtomicHistogram;

/// Log2 of the buckets per doubling: the middle of a bucket is within 1/32 of its durations.
const GROUPING_POWER: u8 = 4;
/// Durations from 2^44 ns (about five hours) on share the last bucket.
const MAX_POWER: u8 = 44;

/// Log2 of the first and of the last bound in nanoseconds of [`DurationHistogram::buckets`]: 66 us and 69 s.
const BOUND_POWERS: std::ops::RangeInclusive<u32> = 16..=36;

/// Counts durations. Lock-free, of a fixed size of 5 kB, and without an allocation per duration.
pub struct DurationHistogram {
    counts: AtomicHistogram,
    sum_ns: AtomicU64,
}

impl Default for DurationHistogram {
    fn default() -> Self {
        let counts = AtomicHistogram::new(GROUPING_POWER, MAX_POWER).expect("valid powers");
        Self { counts, sum_ns: AtomicU64::new(0) }
    }
}

/// The durations of a histogram in buckets that are the same in every process, so that those of several add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurationBuckets {
    /// The upper bound of each bucket, and the number of durations between the bound before it and this one. Each bound
    /// is twice the one before it.
    pub buckets: Vec<(Duration, u64)>,
    /// The number of durations above the last bound.
    pub longer: u64,
    /// The sum of all durations.
    pub sum: Duration,
}

impl DurationHistogram {
    /// Counts a duration.
    pub fn record(&self, duration: Duration) {
        self.record_many(duration, 1);
    }

    /// Counts `count` equal durations.
    pub fn record_many(&self, duration: Duration, count: u64) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts.add(ns.min((1 << MAX_POWER) - 1), count).expect("below the maximum");
        self.sum_ns.fetch_add(ns.saturating_mul(count), Relaxed);
    }

    /// Returns the durations in few, wide buckets.
    #[must_use]
    pub fn buckets(&self) -> DurationBuckets {
        let mut buckets: Vec<(Duration, u64)> =
            BOUND_POWERS.map(|power| (Duration::from_nanos(1 << power), 0)).collect();
        let mut longer = 0;
        // Each power of two is a bound between two buckets of the histogram.
        for bucket in &self.counts.load() {
            let last = Duration::from_nanos(bucket.end());
            let wide = buckets.iter_mut().find(|(bound, _)| last < *bound);
            *wide.map_or(&mut longer, |(_, count)| count) += bucket.count();
        }
        DurationBuckets { buckets, longer, sum: Duration::from_nanos(self.sum_ns.load(Relaxed)) }
    }

    /// Returns these quantiles, each in 0..=1; 0 if nothing was counted. They are within 1/32 of what was counted.
    #[must_use]
    pub fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> [Duration; N] {
        let counts = self.counts.load();
        quantiles.map(|quantile| {
            let bucket = counts.quantile_bucket(quantile).expect("a quantile lies in 0..=1");
            bucket.map_or(Duration::ZERO, |bucket| {
                Duration::from_nanos(bucket.start() + (bucket.end() - bucket.start()).div_ceil(2))
            })
        })
    }
}

impl fmt::Debug for DurationHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DurationHistogram").field(&self.quantiles([0.5, 0.99])).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thirty_second_from_nanoseconds_to_hours() {
        for ns in [0, 1, 7, 8, 9, 1000, 123_456, 1_000_000, 987_654_321, 7_200_000_000_000] {
            let histogram = DurationHistogram::default();
            histogram.record(Duration::from_nanos(ns));
            let [median] = histogram.quantiles([0.5]).map(|found| found.as_nanos() as u64);
            assert!(median.abs_diff(ns) <= ns / 32, "{ns} is shown as {median}");
        }
        let long = DurationHistogram::default();
        long.record(Duration::MAX);
        assert!(long.quantiles([1.0])[0] > Duration::from_secs(4 * 3600));
    }

    #[test]
    fn quantiles_follow_the_durations() {
        let histogram = DurationHistogram::default();
        assert_eq!(histogram.quantiles([0.5, 0.99]), [Duration::ZERO; 2]);
        (1..=1000).for_each(|ms| histogram.record(Duration::from_millis(ms)));
        for (found, expected) in histogram.quantiles([0.5, 0.9, 0.99]).into_iter().zip([500, 900, 990]) {
            let expected = Duration::from_millis(expected);
            assert!(found.abs_diff(expected) <= expected / 16, "{found:?} where {expected:?} was due");
        }
    }

    #[test]
    fn equal_durations_count_as_one_by_one() {
        let (together, single) = (DurationHistogram::default(), DurationHistogram::default());
        together.record_many(Duration::from_micros(70), 3);
        (0..3).for_each(|_| single.record(Duration::from_micros(70)));
        assert_eq!(together.buckets(), single.buckets());
    }

    #[test]
    fn wide_buckets_hold_every_duration_once_and_their_sum() {
        let histogram = DurationHistogram::default();
        let durations = [0, 1, 65_535, 65_536, 131_071, 131_072, 1_000_000, 68_719_476_735, 68_719_476_736, 1 << 43];
        durations.iter().for_each(|ns| histogram.record(Duration::from_nanos(*ns)));
        let DurationBuckets { buckets, longer, sum } = histogram.buckets();
        assert_eq!(sum, durations.iter().map(|ns| Duration::from_nanos(*ns)).sum());
        for (at, (bound, count)) in buckets.iter().enumerate() {
            let least = if at == 0 { Duration::ZERO } else { buckets[at - 1].0 };
            let inside = durations.iter().filter(|ns| (least..*bound).contains(&Duration::from_nanos(**ns))).count();
            assert_eq!(*count, inside as u64, "{least:?} to {bound:?}");
        }
        assert_eq!(longer, 2);
    }

    #[test]
    fn one_long_wait_in_fifty_is_in_the_last_hundredth_and_not_in_the_middle() {
        let waits = DurationHistogram::default();
        for wait in 0..50 {
            waits.record(Duration::from_millis(if wait == 20 { 500 } else { 2 }));
        }
        let [median, last] = waits.quantiles([0.5, 0.99]).map(|found| found.as_secs_f64() * 1e3);
        assert!((1.9..2.1).contains(&median) && (480.0..520.0).contains(&last), "{median} {last}");
    }
}
