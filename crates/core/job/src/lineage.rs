//! Which of two versions of a job is the later one: each knows the fingerprints of those before it.

use spdl_order::{BlendStage, Redaction};
use spdl_types::Fingerprint;

use crate::{Job, JobError, check::wrong};

/// The most versions of a job that it remembers.
pub const MAX_EARLIER: usize = 512;

impl Job {
    /// Returns the job as the version that comes after another one, if it differs from that in what the fingerprint is of.
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        self.earlier.clone_from(&before.earlier);
        let fingerprint = before.fingerprint();
        if self.fingerprint() != fingerprint {
            self.earlier.push(fingerprint);
            let too_many = self.earlier.len().saturating_sub(MAX_EARLIER);
            self.earlier.drain(..too_many);
        }
        self
    }

    /// Checks that the job remembers no more versions than it may.
    pub(super) fn check_earlier(&self) -> Result<(), JobError> {
        match self.earlier.len() {
            0..=MAX_EARLIER => Ok(()),
            many => Err(wrong(&self.name, "`earlier`", format!("has {many} versions; the most are {MAX_EARLIER}"))),
        }
    }

    /// Returns whether this is a later version of the job with that fingerprint.
    #[must_use]
    pub fn comes_after(&self, fingerprint: Fingerprint) -> bool {
        self.earlier.contains(&fingerprint)
    }

    /// Returns the number of samples, over all epochs, that two versions of a job have in common at their beginning; `None` if they have
    /// the same stages and redactions.
    #[must_use]
    pub fn samples_in_common(&self, other: &Self) -> Option<u64> {
        fn first<T: PartialEq>(one: &[T], other: &[T], from: impl Fn(&T) -> u64) -> Option<u64> {
            let common = one.iter().zip(other).take_while(|(one, other)| one == other).count();
            one[common..].first().into_iter().chain(other[common..].first()).map(from).min()
        }
        let stages = first(&self.stages, &other.stages, |stage: &BlendStage| stage.from);
        let redactions = first(&self.redactions, &other.redactions, |redaction: &Redaction| redaction.from);
        stages.into_iter().chain(redactions).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use spdl_order::RedactedSamples;
    use spdl_types::SampleId;

    fn redacted(job: &Job, from: u64, id: u64) -> Job {
        let (changed, _) = job.redacting(from, &RedactedSamples::new(vec![SampleId(id)])).unwrap().unwrap();
        changed.after(job)
    }

    #[test]
    fn a_version_comes_after_all_before_it_and_after_none_of_another_line() {
        let first = testing::frozen("global_batch = 8\nepochs = 3", 100);
        let second = redacted(&first, 40, 5);
        let third = redacted(&second, 60, 6);
        let other = redacted(&first, 60, 6);
        for (later, before) in [(&second, &first), (&third, &first), (&third, &second), (&other, &first)] {
            assert!(later.comes_after(before.fingerprint()) && !before.comes_after(later.fingerprint()));
        }
        assert!(!other.comes_after(second.fingerprint()) && !third.comes_after(other.fingerprint()));
        assert_eq!(third.samples_in_common(&first), Some(40));
        assert_eq!(third.samples_in_common(&second), Some(60));
        assert_eq!(third.samples_in_common(&other), Some(40));
        assert_eq!(third.samples_in_common(&third), None);
        assert_eq!(Job { epochs: 4, ..third.clone() }.after(&third).earlier, third.earlier, "its stream is the same");
        assert!(third.is_same_as(&Job { earlier: Vec::new(), ..third.clone() }), "a file has no earlier versions");
    }

    #[test]
    fn only_the_last_versions_are_remembered() {
        let mut job = testing::frozen("global_batch = 8\nepochs = 3", 100);
        job.earlier = (0..MAX_EARLIER as u128).map(Fingerprint).collect();
        let later = redacted(&job, 40, 5);
        assert_eq!(later.earlier.len(), MAX_EARLIER);
        job.check().unwrap();
        job.earlier.push(Fingerprint(0));
        assert!(job.check().unwrap_err().to_string().contains("`earlier` has 513 versions"));
        job.earlier.pop();
        assert!(later.comes_after(job.fingerprint()) && !later.comes_after(Fingerprint(0)));
    }
}
