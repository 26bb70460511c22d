//! How long to wait before trying again.

use std::time::Duration;

/// Exponential back-off with jitter: half of each delay is random, so that what failed together does not come back
/// together. Randomness here touches no data.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, max: Duration) -> Self {
        Self { next: first, max }
    }

    /// The next delay; `random` lies in 0..1.
    pub(crate) fn delay(&mut self, random: f64) -> Duration {
        let delay = self.next.mul_f64(0.5 + 0.5 * random);
        self.next = (self.next * 2).min(self.max);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_most() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let delays: Vec<u128> = (0..4).map(|_| backoff.delay(1.0).as_millis()).collect();
        assert_eq!(delays, [100, 200, 350, 350]);
        assert_eq!(backoff.delay(0.0).as_millis(), 175);
    }
}
