//! The policy for bad samples, and the ledger that counts each distinct bad sample once. Too many of them end the job.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use spdl_job::{BadSamples, Job};
use spdl_order::{Located, Plan};
use spdl_types::{BadSample, Fingerprint, Position};

/// Number of causes that the error about too many bad samples names.
const NAMED_CAUSES: usize = 3;
/// Maximum number of kinds of bad samples of a job that the log distinguishes.
const MAX_KINDS: usize = 64;
/// Maximum number of bad samples that are kept until the coordinator acknowledges them; any more are only counted.
const UNREPORTED_LIMIT: usize = 4096;

/// The action taken for a bad sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The job fails.
    Fail,
    /// The entry stays zero, with a flag.
    Mask,
    /// Another sample takes its place.
    Substitute(Located),
    /// The job fails, as too many substitutes were bad as well.
    GiveUp,
}

/// Returns what `policy` does about a bad sample at position `at` after `attempts` substitutes were tried.
#[must_use]
pub fn remedy(policy: BadSamples, plan: &Plan, at: Position, attempts: u32) -> Remedy {
    match policy {
        BadSamples::Fail => Remedy::Fail,
        BadSamples::Mask => Remedy::Mask,
        BadSamples::Substitute => {
            plan.substitute(at.epoch, at.offset, attempts).map_or(Remedy::GiveUp, Remedy::Substitute)
        }
    }
}

/// The error of a job with more bad samples than it allows.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "job `{job}` has {bad} bad samples of {samples}, more than the {allowed} that `max_bad_fraction` allows; {causes}"
)]
pub struct TooManyBad {
    /// Name of the job.
    pub job: String,
    /// Number of distinct bad samples found.
    pub bad: u64,
    /// Samples in the dataset.
    pub samples: u64,
    /// Number of them that the job allows.
    pub allowed: u64,
    /// The records and causes of the first bad samples, or the one cause that all have in common.
    pub causes: String,
}

/// The kind of a bad sample, by which the log groups them instead of logging each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadSampleKind {
    /// The cause without the details of the single sample.
    text: String,
    /// A question to the user, asked while no sample has been good.
    question: Option<String>,
}

impl BadSampleKind {
    /// Returns the kind of samples whose cause has this text, without the details of the single sample. `question` is a
    /// question to the user, asked while no sample has been good.
    #[must_use]
    pub const fn new(text: String, question: Option<String>) -> Self {
        Self { text, question }
    }

    /// Returns the kind of samples that are quarantined because they ended the worker.
    #[must_use]
    pub fn quarantined() -> Self {
        Self { text: "the worker died while it was being decoded".to_owned(), question: None }
    }
}

/// The log line about a distinct bad sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadSampleNote {
    /// It is the first of its kind: a warning.
    First,
    /// All samples so far are of this kind: a warning that asks the user.
    Question {
        /// Number of samples of this kind.
        count: u64,
        /// The question.
        question: String,
    },
    /// Their number has reached a power of ten: a warning.
    Many {
        /// Number of samples of this kind.
        count: u64,
    },
    /// It is one more of a known kind.
    Another,
}

/// What came of recording a bad sample.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedBad {
    /// The line for the log, if the sample was not recorded before.
    pub line: Option<(BadSampleNote, BadSample)>,
    /// The error if the job has more bad samples than it allows.
    pub verdict: Result<(), TooManyBad>,
}

/// Maximum bytes of a shard's name, a key or a cause that are kept. A tar may give each member a name of a megabyte,
/// and the heartbeat would then be too long to send.
const TEXT_BYTES: usize = 512;

/// The bad samples that this process has found, for all jobs.
#[derive(Debug, Default)]
pub struct BadLedger {
    /// By the job's name and fingerprint: jobs of other names may have the same one, and the coordinator has a list for each.
    jobs: BTreeMap<(String, Fingerprint), JobLedger>,
    unreported: VecDeque<BadSample>,
}

#[derive(Debug, Default)]
struct JobLedger {
    distinct: BTreeSet<u64>,
    first: Vec<String>,
    /// Number of distinct bad samples of each kind.
    kinds: BTreeMap<String, u64>,
}

impl JobLedger {
    /// Counts a distinct sample, and returns the log line about it: for the first of each kind, and one at each power of
    /// ten.
    fn note(&mut self, kind: &BadSampleKind) -> BadSampleNote {
        let known = if self.kinds.len() < MAX_KINDS || self.kinds.contains_key(&kind.text) { &kind.text } else { "" };
        let count = self.kinds.entry(known.to_owned()).or_default();
        *count += 1;
        match (*count, &kind.question) {
            (1, _) => BadSampleNote::First,
            (10, Some(question)) => BadSampleNote::Question { count: 10, question: question.clone() },
            (count, _) if count.ilog10() > (count - 1).ilog10() => BadSampleNote::Many { count },
            _ => BadSampleNote::Another,
        }
    }
}

impl BadLedger {
    /// Records a bad sample of the given kind, of the job with this fingerprint.
    pub fn record(
        &mut self,
        job: &Job,
        fingerprint: Fingerprint,
        mut sample: BadSample,
        kind: &BadSampleKind,
    ) -> RecordedBad {
        for text in [&mut sample.shard, &mut sample.key, &mut sample.cause] {
            text.truncate(text.floor_char_boundary(TEXT_BYTES));
        }
        let ledger = self.jobs.entry((job.name.clone(), fingerprint)).or_default();
        let mut line = None;
        if ledger.distinct.insert(sample.sample.0) {
            line = Some((ledger.note(kind), sample.clone()));
            let BadSample { shard, key, cause, .. } = &sample;
            if ledger.first.len() < NAMED_CAUSES {
                ledger.first.push(format!("record `{key}` of shard `{shard}`: {cause}"));
            }
            if self.unreported.len() < UNREPORTED_LIMIT {
                self.unreported.push_back(sample);
            }
        }
        let bad = ledger.distinct.len() as u64;
        if bad <= job.bad_samples_allowed() {
            return RecordedBad { line, verdict: Ok(()) };
        }
        let verdict = Err(TooManyBad {
            job: job.name.clone(),
            bad,
            samples: job.countable_samples(),
            allowed: job.bad_samples_allowed(),
            causes: match &kind.question {
                Some(question) if ledger.kinds.len() == 1 => question.clone(),
                _ => format!("the first: {}", ledger.first.join("; ")),
            },
        });
        RecordedBad { line, verdict }
    }

    /// Returns the oldest bad samples that the coordinator has not acknowledged, at most `limit`.
    #[must_use]
    pub fn unreported(&self, limit: usize) -> Vec<BadSample> {
        self.unreported.iter().take(limit).cloned().collect()
    }

    /// Notes that the coordinator has acknowledged the oldest `count` bad samples.
    pub fn acknowledge(&mut self, count: usize) {
        self.unreported.drain(..count.min(self.unreported.len()));
    }
}

#[cfg(test)]
mod tests {
    use spdl_job::{BadSamples, testing};
    use spdl_order::{MAX_SUBSTITUTES, OrderParams};
    use spdl_types::SampleId;

    use super::*;

    fn job(max_bad_fraction: f64) -> Job {
        Job { max_bad_fraction, ..testing::job(1000, 8, Vec::new()) }
    }

    fn bad(sample: u64) -> BadSample {
        BadSample {
            job: "train".into(),
            sample: SampleId(sample),
            shard: "a.tar".into(),
            key: format!("{sample:04}"),
            cause: "cut short".into(),
        }
    }

    #[test]
    fn distinct_bad_samples_above_the_fraction_end_the_job_with_the_reason() {
        let (mut ledger, job) = (BadLedger::default(), job(0.002));
        for sample in [3, 4, 3, 4, 4] {
            ledger.record(&job, Fingerprint(5), bad(sample), &BadSampleKind::default()).verdict.unwrap();
        }
        ledger.record(&job, Fingerprint(6), bad(5), &BadSampleKind::default()).verdict.unwrap();
        let error = ledger.record(&job, Fingerprint(5), bad(5), &BadSampleKind::default()).verdict.unwrap_err();
        assert_eq!((error.bad, error.samples), (3, 1000));
        let text = error.to_string();
        for part in ["`train`", "`0003` of shard `a.tar`: cut short", "more than the 2 that"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_bad_sample_is_reported_for_each_job_that_has_it() {
        let (mut ledger, job) = (BadLedger::default(), job(1.0));
        let copy = Job { name: "copy".to_owned(), ..job.clone() };
        for (job, sample) in [(&job, bad(3)), (&copy, BadSample { job: "copy".to_owned(), ..bad(3) }), (&job, bad(3))] {
            ledger.record(job, Fingerprint(5), sample, &BadSampleKind::default()).verdict.unwrap();
        }
        let jobs: Vec<String> = ledger.unreported(9).into_iter().map(|bad| bad.job).collect();
        assert_eq!(jobs, ["train", "copy"]);
    }

    #[test]
    fn a_dataset_of_bad_samples_only_is_given_up_after_so_many_substitutes() {
        let order = OrderParams { version: 1, lanes: 1, window: 1, shuffle: true };
        let plan = Plan::new(&[10], 0, order).unwrap();
        let of = |attempts| remedy(BadSamples::Substitute, &plan, Position::new(0, 3), attempts);
        for attempts in 0..MAX_SUBSTITUTES {
            assert_eq!(of(attempts), Remedy::Substitute(plan.substitute(0, 3, attempts).unwrap()));
        }
        assert_eq!((of(MAX_SUBSTITUTES), of(u32::MAX)), (Remedy::GiveUp, Remedy::GiveUp));
        assert_eq!(remedy(BadSamples::Fail, &plan, Position::START, 0), Remedy::Fail);
        assert_eq!(remedy(BadSamples::Mask, &plan, Position::START, u32::MAX), Remedy::Mask);
    }

    #[test]
    fn only_the_first_bad_samples_are_kept_for_the_coordinator_and_named_in_the_error() {
        let mut ledger = BadLedger::default();
        let job = Job { samples: 1 << 20, ..job(1.0) };
        for sample in 0..UNREPORTED_LIMIT as u64 + 3 {
            ledger.record(&job, Fingerprint(5), bad(sample), &BadSampleKind::default()).verdict.unwrap();
        }
        assert_eq!(ledger.unreported(usize::MAX).len(), UNREPORTED_LIMIT);
        let strict = Job { max_bad_fraction: 0.0, ..job };
        let error = ledger.record(&strict, Fingerprint(5), bad(0), &BadSampleKind::default()).verdict.unwrap_err();
        assert_eq!(error.causes.matches("cut short").count(), NAMED_CAUSES);
    }

    #[test]
    fn what_was_not_acknowledged_is_sent_again() {
        let (mut ledger, job) = (BadLedger::default(), job(1.0));
        for sample in 0..5 {
            ledger.record(&job, Fingerprint(5), bad(sample), &BadSampleKind::default()).verdict.unwrap();
        }
        let reported: Vec<u64> = ledger.unreported(2).iter().map(|bad| bad.sample.0).collect();
        assert_eq!(reported, [0, 1]);
        ledger.acknowledge(2);
        let reported: Vec<u64> = ledger.unreported(9).iter().map(|bad| bad.sample.0).collect();
        assert_eq!(reported, [2, 3, 4]);
    }

    #[test]
    fn a_question_about_all_samples_is_the_reason_and_otherwise_the_first_are_named() {
        let question = "no sample so far has `nofield`: check `from` of column `caption`";
        for (asked, expected) in [(true, question), (false, "the first: record `0000` of shard")] {
            let (mut ledger, job) = (BadLedger::default(), job(0.001));
            let kind = BadSampleKind::new("caption".into(), asked.then(|| question.to_owned()));
            ledger.record(&job, Fingerprint(5), bad(0), &kind).verdict.unwrap();
            let text = ledger.record(&job, Fingerprint(5), bad(1), &kind).verdict.unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn the_log_has_the_first_of_a_kind_and_each_power_of_ten() {
        let (mut ledger, job) = (BadLedger::default(), job(1.0));
        let mut note = |sample, text: &str, question: Option<&str>| {
            let kind = BadSampleKind::new(text.to_owned(), question.map(str::to_owned));
            ledger.record(&job, Fingerprint(5), bad(sample), &kind).line.map(|(note, _)| note)
        };
        assert_eq!(note(0, "a", None), Some(BadSampleNote::First));
        assert_eq!(note(0, "a", None), None, "it was recorded before");
        assert_eq!(note(1, "b", None), Some(BadSampleNote::First));
        for sample in 2..10 {
            assert_eq!(note(sample, "a", None), Some(BadSampleNote::Another));
        }
        assert_eq!(note(10, "a", None), Some(BadSampleNote::Many { count: 10 }));
        for sample in 11..19 {
            note(sample, "b", None);
        }
        let asked = Some(BadSampleNote::Question { count: 10, question: "why?".into() });
        assert_eq!(note(19, "b", Some("why?")), asked);
    }
}
