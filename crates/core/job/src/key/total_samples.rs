//! After how many samples or tokens a run ends. Of several sources, this is the length of an epoch instead.

use super::{JobFile, PlainKey};
use crate::{JobError, check::wrong};

/// Upper limit of the samples of a run, so that sums of positions cannot overflow.
const MAX_TOTAL: u64 = 1 << 62;

pub(super) struct TotalSamples;

impl PlainKey for TotalSamples {
    type Value = Option<u64>;

    fn value(file: &JobFile, _samples: u64) -> Option<u64> {
        file.run_samples()
    }

    fn check(value: &Option<u64>) -> Result<(), String> {
        match *value {
            Some(0) => Err("must be at least 1".to_owned()),
            Some(samples) if samples > MAX_TOTAL => Err(format!("is {samples}; it must be at most 2^62")),
            _ => Ok(()),
        }
    }

    fn shown(value: &Option<u64>) -> String {
        value.map_or_else(|| "none".to_owned(), |samples| samples.to_string())
    }
}

impl JobFile {
    /// Returns the number of samples after which a run of one dataset ends; `None` if it ends with its epochs.
    pub(super) fn run_samples(&self) -> Option<u64> {
        self.total().filter(|_| self.source.is_empty())
    }

    /// Returns the number of samples that the file gives, itself or by tokens: of a run, or of an epoch of several sources.
    pub(crate) fn total(&self) -> Option<u64> {
        let of_tokens = |tokens: u64| Some(tokens / u64::from(self.sequence.as_ref()?.seq_len.max(1)));
        self.total_samples.or_else(|| self.total_tokens.and_then(of_tokens))
    }

    /// Checks the keys that say when a run ends.
    pub(crate) fn check_end(&self) -> Result<(), JobError> {
        let refuse = |key: &str, problem: &str| Err(wrong(&self.name, format!("`{key}`"), problem));
        if let Some(tokens) = self.total_tokens {
            let Some(sequence) = &self.sequence else {
                return refuse("total_tokens", "is for jobs with `sequence`; write `total_samples`");
            };
            if self.total_samples.is_some() {
                return refuse("total_tokens", "and `total_samples` are both there; leave one out");
            }
            if tokens < sequence.seq_len.into() {
                return refuse("total_tokens", "must be at least `seq_len` of `sequence`");
            }
        }
        if self.total_samples == Some(0) {
            return refuse("total_samples", "must be at least 1");
        }
        if self.run_samples().is_some() && self.epochs > 1 {
            let key = if self.total_tokens.is_some() { "total_tokens" } else { "total_samples" };
            return refuse(
                "epochs",
                &format!("and `{key}` are both there; leave one out: the other says when the run ends"),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use spdl_order::EpochEnd;
    use spdl_types::Position;

    use crate::testing;

    #[test]
    fn a_run_ends_after_total_samples_in_as_many_epochs_as_that_takes() {
        for (total, epochs, steps) in
            [(1, 1, None), (8, 1, Some(1)), (64, 1, Some(8)), (100, 1, Some(12)), (230, 3, Some(27))]
        {
            let job = testing::job_of(&format!("total_samples = {total}\n{}", testing::LABEL));
            let Some(steps) = steps else {
                assert!(job.unwrap_err().to_string().contains("the 1 samples of an epoch (1 in all) never fill it"));
                continue;
            };
            let job = job.unwrap();
            assert_eq!((job.samples, job.epochs, job.total_samples), (100, epochs, Some(total)));
            assert_eq!(job.batches(8).steps_left(job.samples, Position::START), steps, "of {total}");
            assert_eq!(
                job.fingerprint(),
                testing::job_of(testing::LABEL).unwrap().fingerprint(),
                "the stream is the same"
            );
            let text = serde_json::to_string(&job).unwrap();
            assert_eq!(serde_json::from_str::<crate::Job>(&text).unwrap(), job);
        }
        let without = serde_json::to_string(&testing::job_of(testing::LABEL).unwrap()).unwrap();
        assert!(!without.contains("total"), "{without}");
        // It is no evaluation, of which all samples have to come.
        let job = testing::job_of(&format!("shuffle = false\ntotal_samples = 90\n{}", testing::LABEL)).unwrap();
        assert_eq!((job.epoch_end, job.is_evaluation()), (EpochEnd::Drop, false));
        let start = job.start_problem(8, Position::new(0, 85)).unwrap();
        assert_eq!(start, "no batch of 8 is left there: the stream ends after 90 samples");
    }

    #[test]
    fn keys_that_contradict_each_other_are_refused() {
        for (keys, expected) in [
            ("total_samples = 0", "`total_samples` must be at least 1"),
            ("total_tokens = 9", "`total_tokens` is for jobs with `sequence`; write `total_samples`"),
            ("total_samples = 9\nepochs = 2", "`epochs` and `total_samples` are both there; leave one out"),
            (
                "total_samples = 5_000_000_000_000_000_000",
                "`total_samples` is 5000000000000000000; it must be at most 2^62",
            ),
            ("sequence = { seq_len = 8 }\ntotal_tokens = 7", "`total_tokens` must be at least `seq_len`"),
            (
                "sequence = { seq_len = 8 }\ntotal_tokens = 99\ntotal_samples = 9",
                "`total_tokens` and `total_samples` are both",
            ),
            ("sequence = { seq_len = 8 }\ntotal_tokens = 99\nepochs = 3", "`epochs` and `total_tokens` are both there"),
        ] {
            let error = testing::job_of(&format!("{keys}\n{}", testing::LABEL)).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn tokens_are_counted_as_places_of_sequences() {
        let file = testing::file("global_batch = 8\nsequence = { seq_len = 100 }\ntotal_tokens = 12_399");
        assert_eq!(file.run_samples(), Some(123));
        assert_eq!(file.job(spdl_types::Fingerprint(1), 50, testing::order()).epochs, 3);
    }
}
