//! The `[[stage]]` tables of a job file: other weights of the sources, from a sample of the training on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spdl_order::{BLEND_PERIOD, BlendStage, MAX_STAGES, blend_weights};
use spdl_types::{Fingerprint, Position};

use super::{JobFile, JobSource, is_whole};
use crate::{Job, JobError, check::wrong};

/// Upper limit of the first sample of a stage: no job has more samples.
const MAX_FROM: u64 = 1 << 62;

/// Other weights of the sources, from a sample of the training on.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobStageFile {
    /// The number of samples that come before, counted over all epochs, at least 1 and more than that of the stage before.
    pub from: u64,
    /// The weight of each source by its name, as `weight` of a source; 0 for one that gives no samples in this stage.
    pub weights: BTreeMap<String, f64>,
}

impl JobFile {
    /// Returns the stages with the weights of the sources in their order.
    pub(crate) fn read_stages(&self) -> Result<Vec<BlendStage>, JobError> {
        self.stage.iter().map(|stage| self.read_stage(stage)).collect()
    }

    fn read_stage(&self, JobStageFile { from, weights }: &JobStageFile) -> Result<BlendStage, JobError> {
        let names: Vec<&str> = self.source.iter().map(|source| source.name.as_str()).collect();
        let weights = weights_by_name(&names, weights)
            .map_err(|problem| wrong(&self.name, format!("stage from {from}: `weights`"), problem))?;
        Ok(BlendStage { from: *from, weights })
    }
}

/// Returns the weights of sources with these names, in their order.
fn weights_by_name(names: &[&str], weights: &BTreeMap<String, f64>) -> Result<Vec<u32>, String> {
    if let Some(unknown) = weights.keys().find(|name| !names.contains(&name.as_str())) {
        let unknown: String = unknown.chars().take(128).collect();
        return Err(format!("has `{unknown}`, and no source has this name"));
    }
    let mut shares = Vec::with_capacity(names.len());
    for name in names {
        match weights.get(*name) {
            None => return Err(format!("lacks source `{name}`; write 0 if it gives no samples there")),
            Some(share) if share.is_finite() && *share >= 0.0 => shares.push(*share),
            Some(share) => return Err(format!("has {share} for `{name}`; it must be 0 or more")),
        }
    }
    if shares.iter().all(|share| *share == 0.0) {
        return Err("has only weights of 0".to_owned());
    }
    Ok(blend_weights(&shares))
}

impl Job {
    /// Checks the stages of a job with sources.
    pub(super) fn check_stages(&self) -> Result<(), JobError> {
        let Self { name, sources, stages, .. } = self;
        if stages.len() > MAX_STAGES {
            let problem = format!("is there {} times; a job has at most {MAX_STAGES} of them", stages.len());
            return Err(wrong(name, "`stage`", problem));
        }
        let mut before = 0;
        for (number, BlendStage { from, weights }) in stages.iter().enumerate() {
            let of_stage =
                |key: &str, problem: String| Err(wrong(name, format!("stage from {from}: `{key}`"), problem));
            if *from <= before || *from > MAX_FROM {
                return of_stage(
                    "from",
                    format!("must be above {before}, where the one before begins, and at most 2^62"),
                );
            }
            let is_end = weights.is_empty() && number + 1 == stages.len();
            if !is_end && (weights.len() != sources.len() || !is_whole(weights.iter().copied())) {
                return of_stage("weights", format!("must be those of all sources, {BLEND_PERIOD} in all"));
            }
            before = *from;
        }
        for (number, source) in sources.iter().enumerate() {
            if source.weight == 0 && self.weights_of(number).all(|(_, weight)| weight == 0) {
                let key = format!("source `{}`: `weight`", source.name);
                return Err(wrong(name, key, "is 0, and no `stage` gives it another one"));
            }
        }
        Ok(())
    }

    /// Returns the number of samples before a position, over all epochs.
    #[must_use]
    pub const fn samples_before(&self, at: Position) -> u64 {
        at.epoch.saturating_mul(self.samples).saturating_add(at.offset)
    }

    /// Returns the position with so many samples before it, over all epochs.
    #[must_use]
    pub fn position_of(&self, samples_before: u64) -> Position {
        let samples = self.samples.max(1);
        Position::new(samples_before / samples, samples_before % samples)
    }

    /// Returns the names of the sources with their shares at a position.
    pub(super) fn shares_text(&self, at: Position) -> String {
        // At the end, those up to there.
        let sample = self.samples_before(at).min(self.end_of_sources().map_or(u64::MAX, |end| end.saturating_sub(1)));
        let share = |(number, source): (usize, &JobSource)| {
            let weight =
                self.weights_of(number).take_while(|(from, _)| *from <= sample).last().map_or(0, |(_, now)| now);
            format!("{} {:.1} %", source.name, 100.0 * f64::from(weight) / f64::from(BLEND_PERIOD))
        };
        self.sources.iter().enumerate().map(share).collect::<Vec<_>>().join(" + ")
    }

    /// Returns the weights of the job's sources, in their order, as parts of a period.
    ///
    /// # Errors
    /// [`JobError::Key`] if a source has none, or one that is no weight, or there is no such source.
    pub fn weights_by_name(&self, weights: &BTreeMap<String, f64>) -> Result<Vec<u32>, JobError> {
        let names: Vec<&str> = self.sources.iter().map(|source| source.name.as_str()).collect();
        weights_by_name(&names, weights).map_err(|problem| wrong(&self.name, "`weights`", problem))
    }

    /// Iterates over the weights of source number `source`: the number of samples before each stage, and the weight there.
    pub(super) fn weights_of(&self, source: usize) -> impl Iterator<Item = (u64, u32)> {
        let first = self.sources.get(source).map_or(0, |source| source.weight);
        let later = move |stage: &BlendStage| (stage.from, stage.weights.get(source).copied().unwrap_or(0));
        std::iter::once((0, first)).chain(self.stages.iter().map(later))
    }

    /// Returns how many of the first `samples` samples of the job, counted over all epochs, source number `source` gives, in parts of
    /// [`BLEND_PERIOD`]. It is off by less than one sample for each stage.
    pub(super) fn parts_given(&self, source: usize, samples: u64) -> u128 {
        let ends = self.stages.iter().map(|stage| stage.from).chain([u64::MAX]);
        let parts = self
            .weights_of(source)
            .zip(ends)
            .map(|((from, weight), end)| u128::from(end.min(samples).saturating_sub(from)) * u128::from(weight));
        parts.sum()
    }

    /// Returns how many of the first `samples` samples of the job, counted over all epochs, source number `source` gives. It is off by less
    /// than one sample for each stage.
    #[must_use]
    pub fn samples_given(&self, source: usize, samples: u64) -> u64 {
        let period = u128::from(BLEND_PERIOD);
        u64::try_from((self.parts_given(source, samples) + period / 2) / period).unwrap_or(u64::MAX)
    }

    /// Returns how often the samples of source number `source` come in the first `samples` samples of the job, counted over all epochs.
    ///
    /// # Panics
    /// If there is no such source.
    #[must_use]
    pub fn times_read(&self, source: usize, samples: u64) -> f64 {
        self.parts_given(source, samples) as f64 / f64::from(BLEND_PERIOD) / self.sources[source].samples.max(1) as f64
    }

    /// Returns the share of the samples that source number `source` gives where it begins, which later stages do not change.
    pub(crate) fn first_share(&self, source: usize) -> f64 {
        let first = self.weights_of(source).map(|(_, weight)| weight).find(|weight| *weight > 0).unwrap_or(0);
        f64::from(first) / f64::from(BLEND_PERIOD)
    }

    /// Returns the job as it is up to a position: without the stages and redactions that begin there or later. Both have the same
    /// samples before it.
    fn up_to(&self, at: Position) -> Self {
        let before = self.samples_before(at);
        let mut job = self.clone();
        job.stages.retain(|stage| stage.from < before);
        job.redactions.retain(|redaction| redaction.from < before);
        job
    }

    /// Returns whether nothing of the job begins at a position of the stream.
    const fn is_the_same_throughout(&self) -> bool {
        self.stages.is_empty() && self.redactions.is_empty()
    }

    /// Returns the fingerprint of everything that decides the samples before a position. It is that of the [job](Self::fingerprint),
    /// unless there are stages or redactions that begin at the position or later: these may still change.
    #[must_use]
    pub fn fingerprint_up_to(&self, at: Position) -> Fingerprint {
        if self.is_the_same_throughout() { self.fingerprint() } else { self.up_to(at).fingerprint() }
    }

    /// Returns whether the job goes on from a checkpoint at this position with this fingerprint: it is
    /// [identified](Self::is_identified_by) by it, or it has other stages or redactions only from there on.
    #[must_use]
    pub fn continues(&self, fingerprint: Fingerprint, at: Position) -> bool {
        self.is_identified_by(fingerprint)
            || (!self.is_the_same_throughout() && self.up_to(at).is_identified_by(fingerprint))
    }
}
