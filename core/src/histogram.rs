//! A histogram of durations: how long items took, or how long batches were waited for.

use std::{fmt, time::Duration};

use histogram::AtomicHistogram;

/// Log2 of the buckets per doubling: the middle of a bucket is within 1/32 of its durations.
const GROUPING_POWER: u8 = 4;
/// Durations from 2^44 ns (about five hours) on share the last bucket.
const MAX_POWER: u8 = 44;

/// Counts durations. Lock-free, of a fixed size of 5 kB, and without an allocation per duration.
pub struct DurationHistogram(AtomicHistogram);

impl Default for DurationHistogram {
    fn default() -> Self {
        Self(AtomicHistogram::new(GROUPING_POWER, MAX_POWER).expect("valid powers"))
    }
}

impl DurationHistogram {
    /// Counts a duration.
    pub fn record(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.increment(ns.min((1 << MAX_POWER) - 1)).expect("below the maximum");
    }

    /// Returns these quantiles, each in 0..=1; 0 if nothing was counted. They are within 1/32 of what was counted.
    #[must_use]
    pub fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> [Duration; N] {
        let counts = self.0.load();
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
    fn one_long_wait_in_fifty_is_in_the_last_hundredth_and_not_in_the_middle() {
        let waits = DurationHistogram::default();
        for wait in 0..50 {
            waits.record(Duration::from_millis(if wait == 20 { 500 } else { 2 }));
        }
        let [median, last] = waits.quantiles([0.5, 0.99]).map(|found| found.as_secs_f64() * 1e3);
        assert!((1.9..2.1).contains(&median) && (480.0..520.0).contains(&last), "{median} {last}");
    }
}
