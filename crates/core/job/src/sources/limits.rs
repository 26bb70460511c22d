//! How often sources may come: the check of `max_epochs`, and the stages that follow from it and `when_done` where sources are used up.

use spdl_order::{BLEND_PERIOD, BlendStage, SourceLimit, stages_with_limits};
use spdl_types::mutations::{Mutation, mutated};

use crate::{ENDLESS_EPOCHS, Job, JobError, JobSource, check::wrong};

impl JobSource {
    /// Returns how many samples it gives, if something happens then.
    fn limit(&self) -> Option<SourceLimit> {
        let (max_epochs, when_done) = (self.max_epochs?, self.when_done?);
        Some(SourceLimit { samples: self.samples.saturating_mul(max_epochs.into()), when_done })
    }
}

impl Job {
    /// Checks that no source comes more often than it may in the epochs of the job. A sample more in an epoch does not count: that is how exact the
    /// share of a source is. A run without an end of its own stops where its trainer stops, so nothing is known of it.
    ///
    /// # Errors
    /// [`JobError::Key`] for the first source that does.
    pub fn check_max_epochs(&self) -> Result<(), JobError> {
        if self.epochs >= ENDLESS_EPOCHS {
            return Ok(());
        }
        let delivered = self.samples.saturating_mul(self.epochs);
        for (number, source) in self.sources.iter().enumerate() {
            let Some(max_epochs) = source.max_epochs.filter(|_| source.when_done.is_none()) else { continue };
            let most = u128::from(source.samples) * u128::from(max_epochs) * u128::from(BLEND_PERIOD);
            let rounding = (u128::from(self.epochs) + self.stages.len() as u128) * u128::from(BLEND_PERIOD);
            if self.parts_given(number, delivered) > most + rounding {
                let problem = format!(
                    "is read {} times; `max_epochs` is {max_epochs}: lower its weight, `total_samples` or `epochs`",
                    shown_times(self.times_read(number, delivered), max_epochs)
                );
                return Err(wrong(&self.name, format!("source `{}`", source.name), problem));
            }
        }
        Ok(())
    }

    /// Returns the job with the stages that follow from sources which are used up, in place of those that it has: see
    /// [`stages_with_limits`].
    ///
    /// # Errors
    /// [`JobError::Key`] for stages that do not follow one another, or that begin after the end of the stream.
    pub fn with_limits(mut self) -> Result<Self, JobError> {
        let limits: Vec<Option<SourceLimit>> = self.sources.iter().map(JobSource::limit).collect();
        if limits.iter().all(Option::is_none) {
            return Ok(self);
        }
        self.check_stages()?;
        let weights: Vec<u32> = self.sources.iter().map(|source| source.weight).collect();
        let stages = stages_with_limits(&weights, &limits, &self.stages)
            .map_err(|problem| wrong(&self.name, "`source`", problem.to_string()))?;
        let end = stages.last().filter(|stage| stage.is_end()).map(|stage| stage.from);
        let is_late = |stage: &&BlendStage| !stage.is_end() && end.is_some_and(|end| end < stage.from);
        if let (Some(end), Some(stage)) = (end, self.stages.iter().find(is_late)) {
            let key = format!("stage from {}: `from`", stage.from);
            let problem =
                format!("is past the end of the stream: after {end} samples a source is used up that ends it");
            return Err(wrong(&self.name, key, problem));
        }
        self.stages = stages;
        Ok(self)
    }

    /// Returns the job with other weights of its sources from a sample on, in place of all stages that begin there or later.
    ///
    /// # Errors
    /// [`JobError::Key`] if the job cannot have them, or they are not 0 for a source that is used up before.
    pub fn with_weights(&self, from: u64, weights: &[u32]) -> Result<Self, JobError> {
        let of_stage = |key: &str, problem: String| wrong(&self.name, format!("stage from {from}: `{key}`"), problem);
        if weights.len() != self.sources.len() {
            let (given, sources) = (weights.len(), self.sources.len());
            return Err(of_stage("weights", format!("are {given}, and the job has {sources} sources")));
        }
        let mut changed = self.clone();
        changed.stages.retain(|stage| stage.from < from);
        if let Some(end) = changed.end_of_sources() {
            return Err(of_stage("from", past_the_end(end)));
        }
        changed.stages.push(BlendStage { from, weights: weights.to_vec() });
        let changed = if mutated(Mutation::ForgetLimits) { changed } else { changed.with_limits()? };
        changed.check()?;
        let made = changed.stages.iter().find(|stage| stage.from == from);
        let is_used_up = |(_, (given, made)): &(&JobSource, (&u32, &u32))| given > made && **made == 0;
        let mut pairs = made.into_iter().flat_map(|made| self.sources.iter().zip(weights.iter().zip(&made.weights)));
        match pairs.find(is_used_up) {
            Some((source, _)) => {
                let problem = format!("give some to source `{}`, which is used up before: set it to 0", source.name);
                Err(of_stage("weights", problem))
            }
            None if made.is_none_or(BlendStage::is_end) => {
                Err(of_stage("weights", "are all of sources that are used up before".to_owned()))
            }
            None => Ok(changed),
        }
    }

    /// Returns where the last stage begins that was given, not one that follows from limits, if it has these weights.
    #[must_use]
    pub fn weights_since(&self, weights: &[u32]) -> Option<u64> {
        let is_since = |stage: &&BlendStage| {
            let mut before = self.clone();
            before.stages.retain(|other| other.from < stage.from);
            before.with_limits().is_ok_and(|before| before.stages != self.stages)
                && self.with_weights(stage.from, weights).is_ok_and(|changed| changed.stages == self.stages)
        };
        self.stages.iter().rev().filter(|stage| stage.weights == weights).find(is_since).map(|stage| stage.from)
    }

    /// Returns the number of samples, over all epochs, after which a source is used up that ends the stream.
    #[must_use]
    pub fn end_of_sources(&self) -> Option<u64> {
        self.stages.last().filter(|stage| stage.is_end()).map(|stage| stage.from)
    }

    /// Returns the names of the sources that are used up where stage number `stage` begins: that gave samples up to there, all that they
    /// may.
    #[must_use]
    pub fn used_up_at(&self, stage: usize) -> Vec<&str> {
        let Some(BlendStage { from, weights }) = self.stages.get(stage) else { return Vec::new() };
        let before = |number: usize| self.weights_of(number).nth(stage).map_or(0, |(_, weight)| weight);
        let is_used_up = |(number, source): &(usize, &JobSource)| {
            let is_over = weights.get(*number).is_none_or(|weight| *weight == 0) && before(*number) > 0;
            // What is given is counted to less than one sample for each stage.
            let given = self.samples_given(*number, *from).saturating_add(stage as u64 + 1);
            is_over && source.limit().is_some_and(|limit| given >= limit.samples)
        };
        self.sources.iter().enumerate().filter(is_used_up).map(|(_, source)| source.name.as_str()).collect()
    }
}

/// Returns the problem of a stage that begins after the end.
fn past_the_end(end: u64) -> String {
    format!("is past the end of the stream: after {end} samples a source is used up that ends it")
}

/// Returns a number of times above a whole number with as many digits as show that, for example 3.2 or 2.0001.
fn shown_times(times: f64, above: u32) -> String {
    let digits = (1..9).find(|digits| {
        let text = format!("{times:.digits$}");
        text.parse::<f64>().is_ok_and(|shown| shown > f64::from(above))
    });
    format!("{times:.0$}", digits.unwrap_or(9))
}
