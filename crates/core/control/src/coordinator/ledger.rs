//! The bad samples of a job, each counted once, and the rule for when there are too many.

use std::{
    collections::BTreeSet,
    ops::{Bound, Range},
};

use serde::{Deserialize, Serialize};
use spdl_job::{BadSamples, Job};
use spdl_types::{BadSample, SampleId};

use super::effect::{BadSampleRecord, BadSampleReport};

/// The largest number of distinct bad samples that are counted per job; 8 MB at most. A job that reaches it has failed
/// unless its `max_bad_fraction` is 1.
pub const LEDGER_SAMPLES: usize = 1 << 20;
/// The largest number of bad samples per job that are kept, and logged, with shard, key and cause.
pub const NAMED_SAMPLES: usize = 1_000;
/// The largest number of bytes kept of a shard's name, a key or a cause.
const TEXT_BYTES: usize = 512;
/// The number of bad samples that the error of a failed job names.
const ERROR_SAMPLES: usize = 3;

/// A bad sample, with its place and its cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct BadSampleStatus {
    pub sample: SampleId,
    /// The source that has it, if the job has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    pub shard: String,
    pub key: String,
    pub cause: String,
}

/// The bad samples of one job.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    samples: BTreeSet<SampleId>,
    named: Vec<(SampleId, BadSampleReport)>,
}

impl Ledger {
    /// Restores a record of the durable state.
    pub(super) fn restore(&mut self, record: BadSampleRecord) {
        if self.samples.insert(record.sample)
            && let Some(cause) = record.named
        {
            self.named.push((record.sample, cause));
        }
    }

    /// Counts a bad sample and returns the record to keep, or `None` if the sample was known or the ledger is full.
    pub(super) fn record(&mut self, bad: BadSample) -> Option<BadSampleRecord> {
        if self.samples.len() >= LEDGER_SAMPLES || !self.samples.insert(bad.sample) {
            return None;
        }
        let named = (self.named.len() < NAMED_SAMPLES).then(|| BadSampleReport {
            shard: shortened(bad.shard),
            key: shortened(bad.key),
            cause: shortened(bad.cause),
        });
        if let Some(cause) = &named {
            self.named.push((bad.sample, cause.clone()));
        }
        Some(BadSampleRecord { job: bad.job, sample: bad.sample, named })
    }

    /// Returns why the job fails, or `None` if it does not.
    pub(super) fn verdict(&self, job: &Job) -> Option<String> {
        let too_many = self.count() > job.bad_samples_allowed();
        let uncountable = self.samples.len() >= LEDGER_SAMPLES && job.max_bad_fraction < 1.0;
        let rule = if job.bad_samples == BadSamples::Fail && self.count() > 0 {
            "`bad_samples` is `fail`".to_owned()
        } else if too_many {
            format!("`max_bad_fraction` allows {}", job.bad_samples_allowed())
        } else if uncountable {
            format!("`max_bad_fraction` is {}", job.max_bad_fraction)
        } else {
            return None;
        };
        let mut text = format!(
            "{} of {} samples are bad (a fraction of {:.6}) and {rule}",
            self.count(),
            job.countable_samples(),
            self.fraction(job)
        );
        for (source, ids) in job.source_ids() {
            match self.count_in(ids) {
                0 => {}
                count => text.push_str(&format!("; {count} of source `{}`", source.name)),
            }
        }
        for BadSampleStatus { sample, source, shard, key, cause } in self.listed(job, ERROR_SAMPLES) {
            let of_source = source.map_or_else(String::new, |source| format!(" of source `{source}`"));
            text.push_str(&format!("; sample {sample}{of_source} in shard `{shard}`, key `{key}`: {cause}"));
        }
        Some(text)
    }

    /// Counts the distinct bad samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.samples.len() as u64
    }

    /// Counts the distinct bad samples with ids in a range.
    pub(super) fn count_in(&self, ids: Range<u64>) -> u64 {
        self.samples.range(SampleId(ids.start)..SampleId(ids.end)).count() as u64
    }

    /// Returns the first `most` ids above `after`, in ascending order.
    pub(super) fn page(&self, after: Option<SampleId>, most: usize) -> Vec<SampleId> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.samples.range((start, Bound::Unbounded)).take(most).copied().collect()
    }

    /// Returns the distinct bad samples as a fraction of the dataset.
    #[must_use]
    pub fn fraction(&self, job: &Job) -> f64 {
        self.count() as f64 / job.countable_samples().max(1) as f64
    }

    /// Returns the first `most` bad samples that are named, as the status shows them.
    pub(super) fn listed(&self, job: &Job, most: usize) -> Vec<BadSampleStatus> {
        let status = |(sample, bad): &(SampleId, BadSampleReport)| BadSampleStatus {
            sample: *sample,
            source: job.source_of(*sample).map(|source| source.name.clone()),
            shard: bad.shard.clone(),
            key: bad.key.clone(),
            cause: bad.cause.clone(),
        };
        self.named.iter().take(most).map(status).collect()
    }

    /// Returns the first bad samples, with their shard, key and cause.
    #[must_use]
    pub fn named(&self) -> &[(SampleId, BadSampleReport)] {
        &self.named
    }
}

/// Cuts a text to the length that is kept.
fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::testing::job;

    fn bad(sample: u64) -> BadSample {
        BadSample {
            job: "j".into(),
            sample: SampleId(sample),
            shard: format!("train-{sample}.tar"),
            key: format!("n01/{sample}"),
            cause: "ends after 12 bytes".into(),
        }
    }

    #[test]
    fn a_sample_counts_once_however_often_it_is_reported() {
        let mut ledger = Ledger::default();
        assert!(ledger.record(bad(7)).is_some());
        assert!(ledger.record(bad(7)).is_none());
        assert_eq!([0..7, 0..8, 7..9, 8..9].map(|ids| ledger.count_in(ids)), [0, 1, 1, 0]);
        assert_eq!(ledger.count(), 1);
    }

    #[test]
    fn a_job_fails_above_its_fraction_and_not_at_it() {
        let job = Job { samples: 1000, max_bad_fraction: 0.002, ..job("j") };
        let mut ledger = Ledger::default();
        for sample in [5, 6] {
            ledger.record(bad(sample));
            assert_eq!(ledger.verdict(&job), None);
        }
        ledger.record(bad(9));
        let text = ledger.verdict(&job).unwrap();
        for part in ["3 of 1000", "0.003", "`max_bad_fraction` allows 2;", "`train-5.tar`", "`n01/9`", "12 bytes"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn under_the_policy_fail_one_bad_sample_fails_the_job() {
        let job = Job { bad_samples: BadSamples::Fail, max_bad_fraction: 1.0, ..job("j") };
        let mut ledger = Ledger::default();
        assert_eq!(ledger.verdict(&job), None);
        ledger.record(bad(5));
        assert!(ledger.verdict(&job).unwrap().contains("`bad_samples` is `fail`"));
    }

    #[test]
    fn a_full_ledger_fails_every_job_but_one_that_allows_any_fraction() {
        let any = Job { samples: 1 << 40, max_bad_fraction: 1.0, ..job("j") };
        let most = Job { max_bad_fraction: 0.999, ..any.clone() };
        let mut ledger = Ledger { samples: (1..LEDGER_SAMPLES as u64).map(SampleId).collect(), named: Vec::new() };
        assert_eq!((ledger.verdict(&any), ledger.verdict(&most)), (None, None), "there is room for one more");
        assert!(ledger.record(bad(0)).is_some());
        assert!(ledger.record(bad(1 << 30)).is_none(), "it is full");
        assert_eq!(ledger.count(), LEDGER_SAMPLES as u64);
        assert_eq!(ledger.verdict(&any), None);
        assert!(ledger.verdict(&most).unwrap().contains("`max_bad_fraction` is 0.999"));
    }

    #[test]
    fn only_the_first_are_named_and_long_texts_are_cut_between_characters() {
        let mut ledger = Ledger::default();
        for sample in 0..=NAMED_SAMPLES as u64 {
            let record = ledger.record(BadSample { cause: "ä".repeat(TEXT_BYTES), ..bad(sample) }).unwrap();
            assert_eq!(record.named.is_some(), sample < NAMED_SAMPLES as u64);
        }
        assert_eq!(ledger.named().len(), NAMED_SAMPLES);
        assert_eq!(ledger.named()[0].1.cause, "ä".repeat(TEXT_BYTES / 2));
        assert_eq!(ledger.count(), NAMED_SAMPLES as u64 + 1);
    }
}
