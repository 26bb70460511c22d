//! The policy for dripping answers: decides when an answer arrives so slowly that it is dropped and requested again.
//!
//! An answer is judged by its own rate: the time that all of it would take is compared with the usual time of answers
//! of its size. The limit doubles with each earlier try of the request that was given up, after the first. While many
//! answers are dropped, no further one is: then the store as a whole is slow, and more requests would make it slower.

use std::time::Duration;

use super::durations::RecentDurations;

/// Minimum number of answers of a size for an estimate of the time that they take.
const ENOUGH: usize = 4;
/// An answer may take this many times the median duration of the others.
const SLOWER: u32 = 8;
/// An answer may take this long in any case: a pause of the network is shorter.
const MIN_LIMIT: Duration = Duration::from_secs(3);
/// Time after which an answer is judged for the first time. When raised, one that drips delays batches more; when
/// lowered, one that begins slowly is thrown away.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// Maximum number of dropped answers among the last 64 at which further ones are dropped.
const MAX_DROPPED: u32 = 16;

/// What has come of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerProgress {
    /// Bytes that have come.
    pub bytes: u64,
    /// Bytes of the whole answer.
    pub expected_bytes: u64,
    /// Time since the answer began.
    pub elapsed: Duration,
}

/// Returns the factor by which the time limits of a request grow after `given_up` of its tries were given up because
/// they were silent, slow, or took too long: 1 up to the first, then twice as much with each. So a store that has
/// become slow as a whole answers each request in the end.
#[must_use]
pub fn patience(given_up: u32) -> u32 {
    1 << given_up.saturating_sub(1).min(16)
}

/// The recent durations of answers, and how many of them were dropped.
#[derive(Debug)]
pub struct DripPolicy {
    recent: RecentDurations,
    /// The last 64 answers, the newest in the lowest bit; a set bit means that it was dropped.
    dropped: u64,
    longest: Duration,
}

impl DripPolicy {
    /// Creates a policy. `longest` limits the time of an answer on the first try, and is the limit itself while no
    /// other answers are known.
    #[must_use]
    pub fn new(longest: Duration) -> Self {
        Self { recent: RecentDurations::new(50, ENOUGH), dropped: 0, longest }
    }

    /// Records that an answer of `bytes` bytes came whole, `took` after it began.
    pub fn note_done(&mut self, bytes: u64, took: Duration) {
        self.recent.note(bytes, took);
        self.dropped <<= 1;
    }

    /// Records that an answer was dropped.
    pub const fn note_dropped(&mut self) {
        self.dropped = self.dropped << 1 | 1;
    }

    /// Returns whether to drop an answer. `given_up` is the number of earlier tries of its request that were given up.
    #[must_use]
    pub fn is_dripping(&self, progress: &AnswerProgress, given_up: u32) -> bool {
        let AnswerProgress { bytes, expected_bytes, elapsed } = *progress;
        let patience = patience(given_up);
        if elapsed < FIRST_LOOK * patience || self.dropped.count_ones() >= MAX_DROPPED {
            return false;
        }
        let usual = self.recent.of_class_or_others(expected_bytes);
        let limit = usual.map_or(self.longest, |usual| (usual * SLOWER).max(MIN_LIMIT).min(self.longest)) * patience;
        elapsed.as_secs_f64() * expected_bytes as f64 > limit.as_secs_f64() * bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const BLOCK: u64 = 256 * KIB;

    /// A policy that has seen this many answers of a block, each of which took `took_ms`.
    fn seen(answers: u32, took_ms: u64) -> DripPolicy {
        let mut policy = DripPolicy::new(Duration::from_secs(60));
        (0..answers).for_each(|_| policy.note_done(BLOCK, Duration::from_millis(took_ms)));
        policy
    }

    /// Returns the seconds after which an answer of `bytes_per_s` is dropped; `None` if all of it arrives first.
    fn dropped_after(policy: &DripPolicy, bytes_per_s: u64, dropped_before: u32) -> Option<f64> {
        let looks = (1..).map(|look| Duration::from_millis(250) * look);
        let progress = |elapsed: Duration| AnswerProgress {
            bytes: (elapsed.as_secs_f64() * bytes_per_s as f64) as u64,
            expected_bytes: BLOCK,
            elapsed,
        };
        let coming = looks.map(progress).take_while(|progress| progress.bytes < BLOCK);
        let mut coming = coming.take_while(|progress| progress.elapsed < Duration::from_secs(600));
        coming.find(|progress| policy.is_dripping(progress, dropped_before)).map(|found| found.elapsed.as_secs_f64())
    }

    #[test]
    fn an_answer_that_drips_is_dropped_after_a_second_however_little_is_known() {
        assert_eq!(dropped_after(&seen(500, 10), KIB, 0), Some(1.0));
        assert_eq!(dropped_after(&seen(4, 10), KIB, 0), Some(1.0));
        assert_eq!(dropped_after(&seen(0, 0), KIB, 0), Some(1.0), "it would not end within the limit of a request");
        assert_eq!(dropped_after(&seen(0, 0), 0, 0), Some(1.0));
        assert_eq!(dropped_after(&seen(0, 0), 8 * KIB, 0), None, "nothing says that others are faster");
        assert_eq!(dropped_after(&seen(4, 10), 8 * KIB, 0), Some(1.0));
    }

    #[test]
    fn an_answer_that_is_slow_within_reason_comes_whole() {
        assert_eq!(dropped_after(&seen(500, 10), 100 * KIB, 0), None, "2.6 s");
        assert_eq!(dropped_after(&seen(500, 5_000), 8 * KIB, 0), None, "32 s where others take 5");
        assert_eq!(dropped_after(&seen(500, 5_000), 4 * KIB, 0), Some(1.0));
    }

    #[test]
    fn an_answer_that_stops_in_the_middle_is_dropped_when_it_takes_too_long() {
        let half = |ms| AnswerProgress { bytes: BLOCK / 2, expected_bytes: BLOCK, elapsed: Duration::from_millis(ms) };
        assert!(!seen(500, 10).is_dripping(&half(1_500), 0));
        assert!(seen(500, 10).is_dripping(&half(1_501), 0));
    }

    #[test]
    fn a_request_gets_twice_the_time_with_each_answer_that_was_dropped_after_the_first() {
        let policy = seen(500, 10);
        let dropped = [0, 1, 2, 3, 4].map(|before| dropped_after(&policy, KIB, before));
        assert_eq!(dropped, [1.0, 1.0, 2.0, 4.0, 8.0].map(Some));
        assert_eq!(dropped_after(&policy, KIB, 8), None, "so a store of which all is slow answers in the end");
        assert_eq!(dropped_after(&policy, KIB, u32::MAX), None);
    }

    #[test]
    fn a_store_that_is_slow_as_a_whole_is_asked_no_more_than_before() {
        let mut policy = seen(500, 10);
        let dropped = (0..100).filter(|_| {
            let is_dropped = dropped_after(&policy, KIB, 0).is_some();
            is_dropped.then(|| policy.note_dropped()).is_some()
        });
        assert_eq!(dropped.count(), MAX_DROPPED as usize);
        (0..64).for_each(|_| policy.note_done(BLOCK, Duration::from_millis(10)));
        assert_eq!(dropped_after(&policy, KIB, 0), Some(1.0), "it is fast again");
    }
}
