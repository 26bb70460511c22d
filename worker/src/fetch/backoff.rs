//! The delay before a retry.

use std::time::Duration;

/// Exponential back-off with full jitter. A delay is random between 0 and a limit, so that requests that failed
/// together are not retried together; the limit doubles. The randomness affects no data.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    limit: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, max: Duration) -> Self {
        Self { limit: first, max }
    }

    /// Returns the next delay; `random` must lie in 0..1.
    pub(crate) fn delay(&mut self, random: f64) -> Duration {
        let delay = self.limit.mul_f64(random);
        self.limit = (self.limit * 2).min(self.max);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_most_and_are_anything_below() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let delays: Vec<u128> = (0..4).map(|_| backoff.delay(1.0).as_millis()).collect();
        assert_eq!(delays, [100, 200, 350, 350]);
        assert_eq!(backoff.delay(0.5).as_millis(), 175);
        assert_eq!(backoff.delay(0.0).as_millis(), 0);
    }
}
