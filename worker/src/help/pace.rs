//! How fast a helper is, from its answers so far.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use spdl_types::Fingerprint;

/// Maximum number of chunks that one helper is asked for at once by one worker: while it decodes one, the next one arrives.
const IN_FLIGHT: u32 = 4;
/// Seconds that a helper without any answers yet is expected to take for a sample: short, so that it is tried.
const FIRST_S: f64 = 0.001;
/// A helper is late after `LATE_FACTOR` times the time that it is expected to take, and `LATE_AFTER` more.
const LATE_FACTOR: f64 = 4.0;
const LATE_AFTER: Duration = Duration::from_millis(500);
/// The first answer may take this much longer: the helper has to prepare the job. If that takes longer still, because it imports
/// the job's functions, the helper goes on with it and is asked again later.
const FIRST_AFTER: Duration = Duration::from_secs(2);
/// Weight of the newest answer.
const WEIGHT: f64 = 0.25;

/// The pace of one helper.
#[derive(Debug, Default)]
pub(super) struct HelperPace {
    in_flight: u32,
    /// Mean time from a request to its answer, for each of its samples, in seconds.
    sample_s: Option<f64>,
    aside_until: Option<Instant>,
    /// Jobs whose samples it cannot decode.
    excluded: HashSet<Fingerprint>,
}

impl HelperPace {
    /// Returns the time within which an answer with `samples` samples is expected, in seconds; `None` if the helper is not to be asked
    /// now.
    pub(super) fn expected_s(&self, job: Fingerprint, samples: usize, now: Instant) -> Option<f64> {
        let is_usable = self.in_flight < IN_FLIGHT
            && self.aside_until.is_none_or(|until| until <= now)
            && !self.excluded.contains(&job);
        is_usable.then(|| self.of_samples_s(samples))
    }

    /// Returns until when the helper is not asked at all, if it is aside.
    pub(super) fn aside_until(&self, now: Instant) -> Option<Instant> {
        self.aside_until.filter(|until| *until > now)
    }

    /// Returns how long an answer with `samples` samples may take.
    pub(super) fn limit(&self, samples: usize) -> Duration {
        let late_s = LATE_FACTOR * self.of_samples_s(samples);
        LATE_AFTER + if self.sample_s.is_some() { Duration::from_secs_f64(late_s) } else { FIRST_AFTER }
    }

    fn of_samples_s(&self, samples: usize) -> f64 {
        self.sample_s.unwrap_or(FIRST_S) * samples as f64
    }

    pub(super) const fn begin(&mut self) {
        self.in_flight += 1;
    }

    pub(super) const fn end(&mut self) {
        self.in_flight -= 1;
    }

    pub(super) fn done(&mut self, samples: usize, took: Duration) {
        let took_s = took.as_secs_f64() / samples.max(1) as f64;
        self.sample_s = Some(self.sample_s.map_or(took_s, |mean_s| mean_s + WEIGHT * (took_s - mean_s)));
    }

    pub(super) fn put_aside(&mut self, until: Instant) {
        self.aside_until = self.aside_until.max(Some(until));
    }

    /// Excludes a job; returns whether it was not excluded before.
    pub(super) fn exclude(&mut self, job: Fingerprint) -> bool {
        self.excluded.insert(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Fingerprint = Fingerprint(1);

    #[test]
    fn a_helper_is_asked_for_a_few_chunks_at_once_and_not_while_it_is_aside() {
        let (mut pace, now) = (HelperPace::default(), Instant::now());
        for _ in 0..IN_FLIGHT {
            assert_eq!(pace.expected_s(JOB, 2, now), Some(2.0 * FIRST_S), "it is tried");
            pace.begin();
        }
        assert_eq!(pace.expected_s(JOB, 2, now), None);
        pace.end();
        pace.put_aside(now + Duration::from_secs(2));
        pace.put_aside(now + Duration::from_secs(1));
        assert_eq!(pace.aside_until(now), Some(now + Duration::from_secs(2)));
        assert_eq!(pace.aside_until(now + Duration::from_secs(2)), None);
        assert_eq!(pace.expected_s(JOB, 2, now + Duration::from_millis(1500)), None);
        assert!(pace.expected_s(JOB, 2, now + Duration::from_secs(2)).is_some());
        assert!(pace.exclude(JOB) && !pace.exclude(JOB));
        assert_eq!(pace.expected_s(JOB, 2, now + Duration::from_secs(2)), None);
        assert!(pace.expected_s(Fingerprint(2), 2, now + Duration::from_secs(2)).is_some());
    }

    #[test]
    fn the_time_that_is_expected_follows_the_answers() {
        let (mut pace, now) = (HelperPace::default(), Instant::now());
        assert_eq!(pace.limit(1), LATE_AFTER + FIRST_AFTER, "nothing is known");
        pace.done(10, Duration::from_millis(1000));
        assert_eq!(pace.expected_s(JOB, 3, now), Some(0.1 * 3.0));
        for _ in 0..20 {
            pace.done(2, Duration::from_millis(40));
        }
        let expected = pace.expected_s(JOB, 1, now).unwrap();
        assert!((0.02..0.021).contains(&expected), "{expected}");
        assert!(pace.limit(1) > LATE_AFTER + Duration::from_millis(79) && pace.limit(1) < Duration::from_secs(1));
    }
}
