//! The hedging policy: decides when a request counts as slow and whether a second one may be made. It has no clock; the
//! caller passes durations.
//!
//! A hedge is sent when a request has taken longer than the 99th percentile of recent requests of similar size (J. Dean
//! and L. A. Barroso, "The Tail at Scale", 2013). Each hedge uses up an allowance that finished requests earn. There
//! are no hedges while the store fails: a failing store should get fewer requests, not more.

use std::time::Duration;

use super::durations::RecentDurations;

/// Minimum number of durations of a size class for an estimate of the 99th percentile. Of fewer than a hundred
/// durations, the estimate is the longest.
const ENOUGH: usize = 16;
/// Number of hedges that may be made before any request has finished: trainings start when nothing is known yet.
const SAVED_AT_FIRST: f64 = 2.0;
/// Maximum number of hedges that can be saved up.
const MAX_SAVED: f64 = 4.0;
/// Minimum delay before a hedge: a hedge of a faster request would save too little time to matter to a batch.
const MIN_DELAY: Duration = Duration::from_millis(10);
/// Maximum number of failures among the last 64 requests at which hedges are made.
const MAX_FAILED: u32 = 8;

/// The recent durations of requests, and the allowance for hedges.
#[derive(Debug)]
pub struct HedgePolicy {
    recent: RecentDurations,
    /// Outcomes of the last 64 requests, the newest in the lowest bit; a set bit means failure.
    failed: u64,
    earned_per_request: f64,
    saved: f64,
}

impl HedgePolicy {
    /// Creates a policy with hedges for at most `percent` of all requests; 0 for none.
    #[must_use]
    pub fn new(percent: f64) -> Self {
        let earned_per_request = percent.max(0.0) / 100.0;
        let saved = if earned_per_request > 0.0 { SAVED_AT_FIRST } else { 0.0 };
        Self { recent: RecentDurations::new(99, ENOUGH), failed: 0, earned_per_request, saved }
    }

    /// Records that a request for `bytes` bytes succeeded after `took`.
    pub fn note_done(&mut self, bytes: u64, took: Duration) {
        self.recent.note(bytes, took);
        self.failed <<= 1;
        self.saved = (self.saved + self.earned_per_request).min(MAX_SAVED);
    }

    /// Records that a request failed.
    pub const fn note_failed(&mut self) {
        self.failed = self.failed << 1 | 1;
    }

    /// Returns the time after which a request for `bytes` bytes counts as slow; `None` while that is unknown, or while
    /// hedges would do harm.
    #[must_use]
    pub fn slow_after(&self, bytes: u64) -> Option<Duration> {
        let p99 = self.recent.of_class(bytes)?;
        (self.earned_per_request > 0.0 && !self.is_failing()).then_some(p99.max(MIN_DELAY))
    }

    /// Takes one hedge from the allowance. Returns false if none is left or the store is failing.
    pub fn take_hedge(&mut self) -> bool {
        let may = self.saved >= 1.0 && !self.is_failing();
        if may {
            self.saved -= 1.0;
        }
        may
    }

    const fn is_failing(&self) -> bool {
        self.failed.count_ones() > MAX_FAILED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn warmed_up(requests: u64) -> HedgePolicy {
        let mut policy = HedgePolicy::new(3.0);
        for request in 0..requests {
            policy.note_done(MIB, Duration::from_millis(20 + request % 50));
        }
        policy
    }

    #[test]
    fn slow_is_what_is_slower_than_the_p99_of_its_like() {
        assert_eq!(warmed_up(ENOUGH as u64 - 1).slow_after(MIB), None, "too few for an estimate");
        let policy = warmed_up(500);
        assert_eq!(policy.slow_after(MIB).unwrap(), Duration::from_millis(69));
        assert_eq!(policy.slow_after(MIB + 5).unwrap(), Duration::from_millis(69));
        assert_eq!(policy.slow_after(4 * MIB), None, "nothing is known of longer ones");
        let mut quick = HedgePolicy::new(3.0);
        (0..100).for_each(|_| quick.note_done(10, Duration::from_micros(50)));
        assert_eq!(quick.slow_after(10), Some(MIN_DELAY));
    }

    #[test]
    fn hedges_are_a_few_per_cent_of_the_requests_however_slow_all_are() {
        let (mut policy, mut hedges) = (warmed_up(500), 0);
        while policy.take_hedge() {
            hedges += 1;
        }
        assert_eq!(f64::from(hedges), MAX_SAVED, "no more are saved up");
        for _ in 0..1000 {
            hedges += u32::from(policy.take_hedge());
            policy.note_done(MIB, Duration::from_secs(1));
        }
        assert!((30..=34).contains(&hedges), "{hedges}");
        let mut none = HedgePolicy::new(0.0);
        (0..1000).for_each(|_| none.note_done(MIB, Duration::from_millis(1)));
        assert!(none.slow_after(MIB).is_none() && !none.take_hedge());
    }

    #[test]
    fn a_store_that_fails_gets_no_hedges_and_one_that_recovers_does() {
        let mut policy = warmed_up(500);
        for request in 0..64 {
            match request % 20 {
                0 => policy.note_failed(),
                _ => policy.note_done(MIB, Duration::from_millis(20)),
            }
        }
        assert!(policy.slow_after(MIB).is_some(), "one request in twenty is no reason");
        (0..9).for_each(|_| policy.note_failed());
        assert!(policy.slow_after(MIB).is_none() && !policy.take_hedge());
        (0..64).for_each(|_| policy.note_done(MIB, Duration::from_millis(20)));
        assert!(policy.slow_after(MIB).is_some() && policy.take_hedge());
    }
}
