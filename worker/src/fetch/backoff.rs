//! How long to wait before trying again.

use std::time::Duration;

/// Exponential back-off with full jitter: a delay is anything up to its limit, so that what failed together does not
/// come back together, and the limit doubles. Randomness here touches no data.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    limit: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, max: Duration) -> Self {
        Self { limit: first, max }
    }

    /// The next delay; `random` lies in 0..1.
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
