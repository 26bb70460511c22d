//! The redactions of a job: samples that do not come from a position on, for reasons of licence or privacy.

use crate::{Job, JobError, check::wrong};
use spdl_order::{EpochEnd, MAX_REDACTED_BYTES, MAX_REDACTIONS, RedactedSamples, Redaction};

/// Upper limit of the first sample of a redaction, and of ids: no job has more samples.
const MAX_SAMPLES: u64 = 1 << 62;

impl Job {
    /// Returns the job in which samples do not come from sample number `from` of the training on, or from the first one after it where a
    /// redaction can begin; and where that is. Samples that are redacted from an earlier one on stay so, and `None` is returned if
    /// these are all.
    ///
    /// # Errors
    /// [`JobError::Key`] if the job cannot have the redaction.
    pub fn redacting(&self, from: u64, samples: &RedactedSamples) -> Result<Option<(Self, u64)>, JobError> {
        let from = self.redaction_start(from);
        let earlier: Vec<_> = self.redactions.iter().filter(|of| of.from <= from).map(|of| &of.samples).collect();
        let new = samples.without(&earlier);
        if new.is_empty() {
            return Ok(None);
        }
        let mut job = self.clone();
        // Each sample is in the first redaction that has it.
        let later = job.redactions.iter_mut().filter(|of| of.from > from);
        later.for_each(|of| of.samples = of.samples.without(&[&new]));
        job.redactions.retain(|of| !of.samples.is_empty());
        match job.redactions.iter_mut().find(|of| of.from == from) {
            Some(same) => same.samples = same.samples.with(&new),
            None => {
                let before = job.redactions.partition_point(|of| of.from < from);
                job.redactions.insert(before, Redaction { from, samples: new });
            }
        }
        job.check()?;
        Ok(Some((job, from)))
    }

    /// Returns the first sample of the training, at or after sample number `from`, with which a redaction can begin. Batches that are
    /// filled with the first samples of their epoch would otherwise repeat a sample that was redacted meanwhile, and samples that are
    /// mixed in pairs could have a partner from before.
    #[must_use]
    pub fn redaction_start(&self, from: u64) -> u64 {
        let (epoch, offset) = (from / self.samples.max(1), from % self.samples.max(1));
        let unit = match &self.mix {
            _ if self.epoch_end == EpochEnd::Pad => self.samples,
            Some(mix) => u64::from(mix.params.distance).saturating_mul(2),
            None => 1,
        };
        let offset = offset.checked_next_multiple_of(unit.max(1)).unwrap_or(self.samples).min(self.samples);
        epoch.saturating_mul(self.samples).saturating_add(offset)
    }

    /// Returns whether a sample with the same id of both jobs is the same one.
    #[must_use]
    pub fn has_ids_of(&self, other: &Self) -> bool {
        self.dataset_fingerprint == other.dataset_fingerprint && self.sources.is_empty() == other.sources.is_empty()
    }

    /// Returns the job in which all redactions begin with the first sample.
    #[must_use]
    pub fn redacted_from_the_beginning(mut self) -> Self {
        let all = self.redactions.iter().map(|of| of.samples.clone()).reduce(|all, of| all.with(&of));
        self.redactions = all.map(|samples| Redaction { from: 0, samples }).into_iter().collect();
        self
    }

    /// Checks that samples of the job can be redacted at all.
    ///
    /// # Errors
    /// [`JobError::Key`] if others give what is in them, too.
    pub fn check_redactable(&self) -> Result<(), JobError> {
        let refuse = |problem: String| Err(wrong(&self.name, "`redactions`", problem));
        if self.sequence.is_some() {
            return refuse(
                "are not for a job with `sequence`, whose samples are several documents each: make a `view` without these documents, or a \
                 dataset, and another job of that"
                    .to_owned(),
            );
        }
        match self.columns.iter().find(|column| !column.value.deltas.is_empty()) {
            Some(column) => refuse(format!(
                "are not for column `{}` with `deltas`, which reads the records of other samples, too: make a dataset without the episodes \
                 of these samples, and another job of that",
                column.name
            )),
            None => Ok(()),
        }
    }

    /// Checks the redactions, as far as that is possible without the dataset.
    pub(super) fn check_redactions(&self) -> Result<(), JobError> {
        let refuse = |problem: String| Err(wrong(&self.name, "`redactions`", problem));
        if self.redactions.is_empty() {
            return Ok(());
        }
        self.check_redactable()?;
        if self.redactions.len() > MAX_REDACTIONS {
            return refuse(format!("are {}; a job has at most {MAX_REDACTIONS}", self.redactions.len()));
        }
        let mut next = 0;
        let mut bytes = 0;
        for Redaction { from, samples } in &self.redactions {
            if *from < next || *from > MAX_SAMPLES || self.redaction_start(*from) != *from || samples.is_empty() {
                return refuse(format!("have one from sample {from} on, where none can begin"));
            }
            next = from + 1;
            bytes += samples.encode().len();
            let bound = self.id_bound().unwrap_or(MAX_SAMPLES);
            if samples.id_bound() > bound {
                return refuse(format!("have sample {}, and ids are below {bound}", samples.id_bound() - 1));
            }
        }
        if bytes > MAX_REDACTED_BYTES {
            return refuse(format!(
                "are too many: they take {bytes} bytes, and have room for {MAX_REDACTED_BYTES}; make a view without these samples"
            ));
        }
        let ids = |ids: &std::ops::Range<u64>| self.redactions.iter().map(|of| of.samples.count_in(ids)).sum::<u64>();
        let one = self.sources.is_empty().then_some((0..u64::MAX, self.samples));
        let of_sources = self.source_ids().map(|(source, ids)| (ids, source.samples));
        match one.into_iter().chain(of_sources).map(|(range, all)| (ids(&range), all)).find(|(of, all)| *of > all / 2) {
            Some((of, all)) => refuse(format!(
                "have {of} of {all} samples; at most half of them can be redacted: make a view of the others, and a job of that"
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mix, testing};
    use spdl_order::MixParams;
    use spdl_types::{Position, SampleId};

    fn set(ids: &[u64]) -> RedactedSamples {
        RedactedSamples::new(ids.iter().copied().map(SampleId).collect())
    }

    fn job() -> Job {
        let job = testing::frozen("global_batch = 8\nepochs = 3", 100);
        job.check().unwrap();
        job
    }

    fn redact(job: &Job, from: u64, ids: &[u64]) -> Job {
        job.redacting(from, &set(ids)).unwrap().unwrap().0
    }

    #[test]
    fn each_sample_is_redacted_once_from_the_first_position_that_says_so() {
        let first = redact(&job(), 120, &[5, 6]);
        let second = redact(&first, 40, &[6, 7]);
        let shown = |job: &Job| -> Vec<_> { job.redactions.iter().map(|of| (of.from, of.samples.clone())).collect() };
        assert_eq!(shown(&second), [(40, set(&[6, 7])), (120, set(&[5]))]);
        assert_eq!(shown(&redact(&second, 120, &[9, 7])), [(40, set(&[6, 7])), (120, set(&[5, 9]))]);
        assert_eq!(second.redacting(150, &set(&[5, 7])).unwrap(), None, "they are redacted already");
        let whole = second.clone().redacted_from_the_beginning();
        assert_eq!(shown(&whole), [(0, set(&[5, 6, 7]))]);
    }

    #[test]
    fn a_redaction_is_part_of_the_fingerprint_from_its_position_on_and_reads_back() {
        let (plain, redacted) = (job(), redact(&job(), 120, &[5, 6]));
        assert_ne!(plain.fingerprint(), redacted.fingerprint());
        let at = |sample: u64| Position::new(sample / 100, sample % 100);
        assert_eq!(plain.fingerprint_up_to(at(120)), redacted.fingerprint_up_to(at(120)));
        assert_ne!(plain.fingerprint_up_to(at(121)), redacted.fingerprint_up_to(at(121)));
        assert!(redacted.continues(plain.fingerprint(), at(120)) && !redacted.continues(plain.fingerprint(), at(121)));
        let text = serde_json::to_string(&redacted).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), redacted, "{text}");
        assert!(!serde_json::to_string(&plain).unwrap().contains("redactions"));
    }

    #[test]
    fn a_redaction_begins_where_no_batch_or_pair_of_samples_reaches_back() {
        let padded = Job { epoch_end: EpochEnd::Pad, ..job() };
        assert_eq!([0, 1, 100, 101].map(|from| padded.redaction_start(from)), [0, 100, 100, 200]);
        assert_eq!(job().redaction_start(101), 101);
        let params = MixParams { mixup: Some(0.2), cutmix: None, p: 1.0, cutmix_p: 0.5, distance: 6 };
        let mixed = Job { mix: Some(Mix { columns: Vec::new(), params }), ..job() };
        assert_eq!([1, 12, 13, 98].map(|from| mixed.redaction_start(from)), [12, 12, 24, 100]);
    }

    #[test]
    fn redactions_that_no_job_can_have_are_refused() {
        let refused = |ids: &[u64]| job().redacting(7, &set(ids)).unwrap_err().to_string();
        assert!(refused(&[100]).contains("have sample 100, and ids are below 100"));
        assert!(refused(&(0..51).collect::<Vec<_>>()).contains("51 of 100 samples; at most half"));
        let twice = Redaction { from: 7, samples: set(&[1]) };
        let job = Job { redactions: vec![twice.clone(), twice], ..job() };
        assert!(job.check().unwrap_err().to_string().contains("from sample 7 on, where none can begin"));
    }

    #[test]
    fn samples_whose_content_others_give_too_are_not_redacted() {
        let mut deltas = job();
        deltas.columns[0].value.deltas = vec![0, 1];
        assert!(job().check_redactable().is_ok());
        for error in [deltas.check_redactable().unwrap_err(), deltas.redacting(7, &set(&[1])).unwrap_err()] {
            let error = error.to_string();
            let problem = "column `label` with `deltas`, which reads the records of other samples, too: make a dataset";
            assert!(error.contains(problem), "{error}");
        }
    }
}
