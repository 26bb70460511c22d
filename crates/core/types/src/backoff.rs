//! Exponential back-off: how long to pause after failures in a row.
//!
//! The published crates do not fit. `backon` adds its jitter to the limit, so that pauses exceed the maximum that our
//! settings promise, and never pauses for less than the limit; `retry-policies` decides by the system's clock. Both
//! draw their own random numbers, which the simulator could not repeat.

use std::time::Duration;

/// The pauses after failures in a row: their limit doubles with each failure, up to a maximum. It has no clock and draws
/// nothing: the caller counts the failures and passes random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
}

impl Backoff {
    /// Creates a back-off with the limit `first` after one failure, and `max` after many.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max }
    }

    /// Returns the longest pause after `failures` failures in a row, which is at least 1.
    #[must_use]
    pub fn limit(&self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.saturating_sub(1).min(31)).min(self.max)
    }

    /// Returns a pause between 0 and the limit, so that requests that failed together are not repeated together.
    /// `random` must lie in 0..1.
    #[must_use]
    pub fn full_jitter(&self, failures: u32, random: f64) -> Duration {
        self.limit(failures).mul_f64(random)
    }

    /// Returns a pause between half of the limit and all of it, for a caller that must not come back at once. `random`
    /// must lie in 0..1.
    #[must_use]
    pub fn equal_jitter(&self, failures: u32, random: f64) -> Duration {
        self.limit(failures).mul_f64(0.5 + random / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));

    #[test]
    fn limits_double_up_to_the_maximum() {
        let limits = [0, 1, 2, 3, 4, 33, u32::MAX].map(|failures| BACKOFF.limit(failures).as_millis());
        assert_eq!(limits, [100, 100, 200, 350, 350, 350, 350]);
    }

    #[test]
    fn pauses_lie_below_the_limit_and_equal_ones_above_its_half() {
        assert_eq!([0.0, 0.5, 1.0].map(|random| BACKOFF.full_jitter(2, random).as_millis()), [0, 100, 200]);
        assert_eq!([0.0, 0.5, 1.0].map(|random| BACKOFF.equal_jitter(2, random).as_millis()), [100, 150, 200]);
    }
}
