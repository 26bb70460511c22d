//! Steps: how the stream is cut into global batches, and what happens at the end of an epoch. All of it is arithmetic on
//! the number of samples, so that a process without a plan can use it.

use serde::{Deserialize, Serialize};

use super::PlanError;
use spdl_types::Position;

/// What happens when fewer samples than a global batch are left in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EpochEnd {
    /// The samples that do not fill a batch are left out of this epoch; the next epoch leaves out others. For training.
    #[default]
    Drop,
    /// The last batch is filled up with the epoch's first samples, which are marked as padding. For training in which
    /// every sample has to come.
    Pad,
    /// The last samples share their batch with the first samples of the next epoch. For training that needs full
    /// batches of all samples.
    Continuous,
    /// The last batch is filled up with entries that are zeros and not valid (`batch.valid`), so that all ranks make
    /// the same steps, of one size. For evaluation in programs that need steps of one size.
    Exact,
    /// The last batch is short, and each rank gets an even share of it; where there are fewer samples than ranks, some
    /// ranks end a step earlier. For evaluation.
    Partial,
}

impl EpochEnd {
    /// Returns the name of this policy in a job.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Pad => "pad",
            Self::Continuous => "continuous",
            Self::Exact => "exact",
            Self::Partial => "partial",
        }
    }

    /// Returns whether the batches of each epoch hold all of its samples, and none of the next epoch.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Pad | Self::Exact | Self::Partial)
    }
}

/// Upper limit of the samples per step over all ranks, because a rank's samples of a step are held in a list.
pub const MAX_GLOBAL_BATCH: u32 = 1 << 24;

/// How the stream is cut into steps. These parameters are not part of the order: a resumed run may change all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchParams {
    /// B, the number of samples per step over all ranks: 1 to [`MAX_GLOBAL_BATCH`].
    pub global_batch: u32,
    /// Number of epochs to deliver.
    pub epochs: u64,
    /// Policy at the end of an epoch.
    pub epoch_end: EpochEnd,
    /// The number of samples, over all epochs, after which the stream ends, unless its epochs are over before: the last step is the last
    /// one that ends there or earlier. `None` if the epochs alone end it.
    pub end: Option<u64>,
}

/// What is left of a stream from a position on.
pub(super) struct RemainingSamples {
    /// The samples from the position to the end of its epoch, if the stream goes on to there.
    pub(super) to_epoch_end: u64,
    /// The number of whole epochs that follow.
    pub(super) epochs: u64,
    /// The samples from there, or from the position, to an end within an epoch.
    pub(super) in_last_epoch: u64,
}

/// One global batch of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// Its first sample.
    pub from: Position,
    /// Where the search for the next step begins: the position to resume from once this step is done. At the end of an
    /// epoch fewer than B samples may follow it; a resumed run with smaller batches still delivers them.
    pub next: Position,
    /// The number of entries over all ranks: B, or fewer in the last step of an epoch with [`EpochEnd::Partial`].
    pub global_batch: u32,
    /// What the entries past the end of the epoch hold.
    pub epoch_end: EpochEnd,
}

impl BatchParams {
    /// Checks that at least one batch can be cut from a dataset of `samples`. Every entry point that takes a job calls
    /// this: a job without a batch would train on nothing and succeed.
    ///
    /// # Errors
    /// [`PlanError::NoBatch`] for a global batch of 0, [`PlanError::BatchTooLarge`] for one of more than [`MAX_GLOBAL_BATCH`],
    /// [`PlanError::Empty`] for a dataset without samples, and [`PlanError::BatchExceedsDataset`] if there would be no step because the samples never fill one batch.
    pub fn check(&self, samples: u64) -> Result<(), PlanError> {
        if self.global_batch == 0 {
            return Err(PlanError::NoBatch);
        }
        if self.global_batch > MAX_GLOBAL_BATCH {
            return Err(PlanError::BatchTooLarge { global_batch: self.global_batch });
        }
        if samples == 0 {
            return Err(PlanError::Empty);
        }
        if self.epochs > 0 && self.step(samples, Position::START).is_none() {
            let Self { global_batch, epochs, .. } = *self;
            let samples = self.end.map_or(samples, |end| samples.min(end));
            return Err(PlanError::BatchExceedsDataset { global_batch, samples, epochs });
        }
        Ok(())
    }

    /// Returns the same as [`Plan::step`](super::Plan::step), for a caller that knows the number of samples and has no plan.
    ///
    /// # Panics
    /// If the global batch or the number of samples is 0.
    #[must_use]
    pub fn step(&self, samples: u64, from: Position) -> Option<Step> {
        assert!(self.global_batch > 0, "a global batch of 0 samples");
        let size = u64::from(self.global_batch);
        let mut from = if from.offset < samples { from } else { Position::new(from.epoch.saturating_add(1), 0) };
        let mut end = from.offset + size;
        match self.epoch_end {
            EpochEnd::Drop if size > samples => return None,
            EpochEnd::Drop if end > samples => {
                from = Position::new(from.epoch.saturating_add(1), 0);
                end = size;
            }
            EpochEnd::Pad | EpochEnd::Exact | EpochEnd::Partial => end = end.min(samples),
            EpochEnd::Drop | EpochEnd::Continuous => {}
        }
        if from.epoch >= self.epochs {
            return None;
        }
        let next = Position::new(from.epoch + end / samples, end % samples);
        let is_past = |end| next.epoch.saturating_mul(samples).saturating_add(next.offset) > end;
        if next > Position::new(self.epochs, 0) || self.end.is_some_and(is_past) {
            return None;
        }
        let is_short = self.epoch_end == EpochEnd::Partial;
        let global_batch = if is_short { (end - from.offset) as u32 } else { self.global_batch };
        Some(Step { from, next, global_batch, epoch_end: self.epoch_end })
    }

    /// Returns the largest number of steps that start in an epoch of `samples`. Every epoch has as many, except that
    /// where epochs share batches (`continuous`) some have one fewer.
    ///
    /// # Panics
    /// If the global batch is 0.
    #[must_use]
    pub const fn max_steps_per_epoch(&self, samples: u64) -> u64 {
        let batch = self.global_batch as u64;
        match self.epoch_end {
            EpochEnd::Drop => samples / batch,
            EpochEnd::Pad | EpochEnd::Exact | EpochEnd::Partial | EpochEnd::Continuous => samples.div_ceil(batch),
        }
    }

    /// Returns the number of steps of an epoch of `samples`, or `None` where a batch can span two epochs. The last epoch has fewer if the
    /// stream ends within it.
    ///
    /// # Panics
    /// If the global batch is 0.
    #[must_use]
    pub fn steps_per_epoch(&self, samples: u64) -> Option<u64> {
        let is_shared = self.epoch_end == EpochEnd::Continuous && !samples.is_multiple_of(self.global_batch.into());
        match self.steps_of_cut_epoch(samples) {
            None => (!is_shared).then(|| self.max_steps_per_epoch(samples)),
            cut => cut,
        }
    }

    /// Returns the number of steps of the only epoch, if the stream ends within it.
    pub(super) const fn steps_of_cut_epoch(&self, samples: u64) -> Option<u64> {
        match self.end {
            Some(end) if end < samples => Some(end / self.global_batch as u64),
            _ => None,
        }
    }

    /// Returns the number of samples of an epoch that come: with [`EpochEnd::Drop`] those that fill batches, else all.
    ///
    /// # Panics
    /// If the global batch is 0.
    #[must_use]
    pub const fn epoch_samples(&self, samples: u64) -> u64 {
        match self.epoch_end {
            EpochEnd::Drop => samples - samples % self.global_batch as u64,
            EpochEnd::Pad | EpochEnd::Exact | EpochEnd::Partial | EpochEnd::Continuous => samples,
        }
    }

    /// Returns the number of steps from `position` to the end of the stream.
    ///
    /// # Panics
    /// If the global batch or the number of samples is 0.
    #[must_use]
    pub fn steps_left(&self, samples: u64, position: Position) -> u64 {
        let batch = u64::from(self.global_batch);
        let RemainingSamples { to_epoch_end, epochs, in_last_epoch } = self.remaining(samples, position);
        if self.epoch_end == EpochEnd::Continuous {
            let whole = u128::from(epochs) * u128::from(samples);
            let left = u128::from(to_epoch_end) + whole + u128::from(in_last_epoch);
            return u64::try_from(left / u128::from(batch)).unwrap_or(u64::MAX);
        }
        self.max_steps_per_epoch(to_epoch_end) + epochs * self.max_steps_per_epoch(samples) + in_last_epoch / batch
    }

    /// Returns the samples from `position` to the end of the stream.
    pub(super) fn remaining(&self, samples: u64, position: Position) -> RemainingSamples {
        let end = self.end_position(samples);
        match end.epoch.checked_sub(position.epoch) {
            None => RemainingSamples { to_epoch_end: 0, epochs: 0, in_last_epoch: 0 },
            Some(0) => {
                let in_last_epoch = end.offset.saturating_sub(position.offset);
                RemainingSamples { to_epoch_end: 0, epochs: 0, in_last_epoch }
            }
            Some(epochs) => RemainingSamples {
                to_epoch_end: samples.saturating_sub(position.offset),
                epochs: epochs - 1,
                in_last_epoch: end.offset,
            },
        }
    }

    /// Returns the position at which the stream of epochs of `samples` ends. Samples before it that fill no batch do not come.
    ///
    /// # Panics
    /// If the number of samples is 0.
    #[must_use]
    pub fn end_position(&self, samples: u64) -> Position {
        let of_epochs = Position::new(self.epochs, 0);
        self.end.map_or(of_epochs, |end| of_epochs.min(Position::new(end / samples, end % samples)))
    }

    /// Returns the number of epochs in which steps start: all of them, or those up to an end within one.
    ///
    /// # Panics
    /// If the global batch or the number of samples is 0.
    #[must_use]
    pub fn epochs_with_steps(&self, samples: u64) -> u64 {
        let (end, batch) = (self.end_position(samples), u64::from(self.global_batch));
        let starts_in_last = match self.epoch_end {
            EpochEnd::Continuous => {
                let before = end.epoch.saturating_mul(samples);
                let steps = before.saturating_add(end.offset) / batch;
                end.offset > 0 && steps > 0 && (steps - 1) * batch >= before
            }
            _ => end.offset >= batch,
        };
        end.epoch + u64::from(starts_in_last)
    }

    /// Returns the epoch in which the step at `position` starts, or the number of epochs with steps when none is left.
    ///
    /// # Panics
    /// If the global batch or the number of samples is 0.
    #[must_use]
    pub fn epoch_at(&self, samples: u64, position: Position) -> u64 {
        if self.steps_left(samples, position) == 0 {
            self.epochs_with_steps(samples)
        } else {
            position.epoch + u64::from(self.drops_rest(samples, position))
        }
    }

    /// Returns whether the step `from`..`next` is the last that starts in its epoch.
    #[must_use]
    pub fn ends_epoch(&self, samples: u64, from: Position, next: Position) -> bool {
        let is_last = || self.end.is_some() && self.steps_left(samples, next) == 0;
        next.epoch != from.epoch || self.drops_rest(samples, next) || is_last()
    }

    /// Returns whether the samples of the epoch from `position` on fill no batch and are left out.
    fn drops_rest(&self, samples: u64, position: Position) -> bool {
        self.epoch_end == EpochEnd::Drop && samples.saturating_sub(position.offset) < u64::from(self.global_batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_job_file() {
        for epoch_end in [EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Continuous, EpochEnd::Exact, EpochEnd::Partial] {
            assert_eq!(serde_json::to_value(epoch_end).unwrap(), epoch_end.name());
        }
    }

    /// 2 epochs, cut into batches of 24.
    const fn batches(epoch_end: EpochEnd) -> BatchParams {
        BatchParams { global_batch: 24, epochs: 2, epoch_end, end: None }
    }

    #[test]
    fn steps_follow_the_policy_at_the_end_of_an_epoch() {
        for (epoch_end, per_epoch, all, from_90, at_end) in [
            (EpochEnd::Drop, Some(4), 8, 4, 0),
            (EpochEnd::Pad, Some(5), 10, 6, 0),
            (EpochEnd::Exact, Some(5), 10, 6, 0),
            (EpochEnd::Partial, Some(5), 10, 6, 0),
            (EpochEnd::Continuous, None, 8, 4, 0),
        ] {
            let batches = batches(epoch_end);
            let left = |epoch, offset| batches.steps_left(100, Position::new(epoch, offset));
            assert_eq!(batches.steps_per_epoch(100), per_epoch, "{epoch_end:?}");
            assert_eq!([left(0, 0), left(0, 90), left(2, 0), left(3, 7)], [all, from_90, at_end, 0], "{epoch_end:?}");
            let come = if epoch_end == EpochEnd::Drop { 96 } else { 100 };
            assert_eq!(batches.epoch_samples(100), come, "{epoch_end:?}");
        }
        let whole = BatchParams { global_batch: 25, ..batches(EpochEnd::Continuous) };
        assert_eq!(whole.steps_per_epoch(100), Some(4));
    }

    #[test]
    fn the_counts_are_those_of_the_steps_themselves() {
        for epoch_end in [EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Exact, EpochEnd::Partial, EpochEnd::Continuous] {
            for (samples, global_batch) in [(100, 24), (100, 25), (100, 1), (7, 16), (7, 7), (16, 5)] {
                let batches = BatchParams { global_batch, epochs: 3, epoch_end, end: None };
                let case = format!("{epoch_end:?}, {samples} samples, batches of {global_batch}");
                for at in (0..=samples).flat_map(|offset| [0, 1, 2].map(|epoch| Position::new(epoch, offset))) {
                    let first = batches.step(samples, at);
                    let steps: Vec<Step> =
                        std::iter::successors(first, |step| batches.step(samples, step.next)).collect();
                    assert_eq!(batches.steps_left(samples, at), steps.len() as u64, "{case}, from {at}");
                    let epoch = steps.first().map_or(3, |step| step.from.epoch);
                    if at.offset < samples {
                        assert_eq!(batches.epoch_at(samples, at), epoch, "{case}, at {at}");
                    }
                    for pair in steps.windows(2) {
                        let ends = pair[0].from.epoch != pair[1].from.epoch;
                        assert_eq!(batches.ends_epoch(samples, pair[0].from, pair[0].next), ends, "{case}, {pair:?}");
                    }
                }
                let all = std::iter::successors(batches.step(samples, Position::START), |step| {
                    batches.step(samples, step.next)
                });
                let mut per_epoch = [0; 3];
                all.for_each(|step| per_epoch[step.from.epoch as usize] += 1);
                let most = batches.max_steps_per_epoch(samples);
                assert!(per_epoch.iter().all(|steps| *steps <= most), "{case}: {per_epoch:?}");
                if let Some(steps) = batches.steps_per_epoch(samples) {
                    assert_eq!((per_epoch, most), ([steps; 3], steps), "{case}");
                }
            }
        }
    }

    #[test]
    fn a_stream_that_ends_within_an_epoch_has_the_steps_up_to_there_of_one_that_goes_on() {
        for epoch_end in [EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Exact, EpochEnd::Partial, EpochEnd::Continuous] {
            for (end, global_batch) in (0..=70).flat_map(|end| [1, 5, 7, 16].map(|batch| (end, batch))) {
                let samples = 16;
                let whole = BatchParams { global_batch, epochs: 3, epoch_end, end: None };
                let batches = BatchParams { end: Some(end), ..whole };
                let steps_from = |batches: BatchParams, at: Position| -> Vec<Step> {
                    std::iter::successors(batches.step(samples, at), |step| batches.step(samples, step.next)).collect()
                };
                let case = format!("{epoch_end:?}, end {end}, batches of {global_batch}");
                for at in (0..=samples).flat_map(|offset| [0, 1, 2, 3].map(|epoch| Position::new(epoch, offset))) {
                    let (mut expected, steps) = (steps_from(whole, at), steps_from(batches, at));
                    expected.retain(|step| step.next.epoch * samples + step.next.offset <= end);
                    assert_eq!(steps, expected, "{case}, from {at}");
                    assert_eq!(batches.steps_left(samples, at), steps.len() as u64, "{case}, from {at}");
                    if let Some(last) = steps.last() {
                        assert!(batches.ends_epoch(samples, last.from, last.next), "{case}, {last:?}");
                        let epoch = if at.offset < samples { steps[0].from.epoch } else { at.epoch };
                        assert!(at.offset == samples || batches.epoch_at(samples, at) == epoch, "{case}, at {at}");
                    }
                }
                let first = steps_from(batches, Position::START);
                if end < samples {
                    assert_eq!(batches.steps_per_epoch(samples), Some(first.len() as u64), "{case}");
                }
                let epochs = first.last().map_or(0, |last| last.from.epoch + 1);
                assert_eq!(batches.epochs_with_steps(samples), epochs, "{case}");
                assert_eq!(batches.epoch_at(samples, Position::new(3, 0)), epochs, "{case}");
                let too_short = first.is_empty();
                assert_eq!(batches.check(samples).is_err(), too_short, "{case}");
            }
        }
        let none = BatchParams { end: Some(20), ..batches(EpochEnd::Drop) };
        let error = none.check(100).unwrap_err().to_string();
        assert!(error.contains("the 20 samples of an epoch (2 in all) never fill it"), "{error}");
    }

    #[test]
    fn the_next_step_is_of_the_next_epoch_where_the_rest_of_this_one_is_dropped() {
        for (epoch_end, (epoch, offset), expected) in [
            (EpochEnd::Drop, (0, 76), 0),
            (EpochEnd::Drop, (0, 96), 1),
            (EpochEnd::Drop, (1, 96), 2),
            (EpochEnd::Exact, (0, 96), 0),
            (EpochEnd::Exact, (2, 0), 2),
            (EpochEnd::Continuous, (0, 96), 0),
            (EpochEnd::Continuous, (1, 92), 2),
        ] {
            let at = batches(epoch_end).epoch_at(100, Position::new(epoch, offset));
            assert_eq!(at, expected, "{epoch_end:?} {epoch}:{offset}");
        }
    }

    #[test]
    fn an_epoch_ends_with_the_last_step_that_starts_in_it() {
        let at = |(epoch, offset)| Position::new(epoch, offset);
        for (epoch_end, from, next, expected) in [
            (EpochEnd::Drop, (0, 48), (0, 72), false),
            (EpochEnd::Drop, (0, 72), (0, 96), true),
            (EpochEnd::Drop, (0, 72), (1, 0), true),
            (EpochEnd::Exact, (1, 72), (1, 96), false),
            (EpochEnd::Exact, (1, 96), (2, 0), true),
            (EpochEnd::Continuous, (0, 96), (1, 20), true),
            (EpochEnd::Continuous, (0, 72), (0, 96), false),
        ] {
            let ends = batches(epoch_end).ends_epoch(100, at(from), at(next));
            assert_eq!(ends, expected, "{epoch_end:?} {from:?}..{next:?}");
        }
    }
}
