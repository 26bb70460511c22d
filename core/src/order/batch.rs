//! Steps: how the stream is cut into global batches, what happens at the end of an epoch, and how a batch is divided
//! among ranks.

use serde::{Deserialize, Serialize};

use super::{EpochLease, Located, Plan, PlanError};
use crate::{
    Position, Receipt, SampleId,
    job::{EpochEnd, Job},
};

/// How the stream is cut into steps. These parameters are not part of the order: a resumed run may change all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchParams {
    /// B, the number of samples per step over all ranks; at least 1.
    pub global_batch: u32,
    /// Number of epochs to deliver.
    pub epochs: u64,
    /// Policy at the end of an epoch.
    pub epoch_end: EpochEnd,
}

impl From<&Job> for BatchParams {
    fn from(job: &Job) -> Self {
        Self { global_batch: job.global_batch, epochs: job.epochs, epoch_end: job.epoch_end }
    }
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
    /// B.
    pub global_batch: u32,
    /// What the entries past the end of the epoch hold.
    pub epoch_end: EpochEnd,
}

/// The kind of an entry of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A sample of the stream.
    Sample,
    /// One of the epoch's first samples again, to fill the epoch's last batch ([`EpochEnd::Pad`]).
    Padding,
    /// Nothing: an entry past the end of the epoch ([`EpochEnd::Exact`]).
    Invalid,
}

/// One entry of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its position in the stream. Padding has the position of the sample that it repeats; an invalid entry has the
    /// position that it would have if the epoch went on, at or past offset N.
    pub at: Position,
    /// The sample; for an invalid entry an arbitrary valid one.
    pub located: Located,
    /// Sample, padding or invalid.
    pub kind: ItemKind,
}

impl BatchParams {
    /// Checks that at least one batch can be cut from a dataset of `samples`. Every entry point that takes a job calls
    /// this: a job without a batch would train on nothing and succeed.
    ///
    /// # Errors
    /// [`PlanError::NoBatch`] for a global batch of 0, [`PlanError::Empty`] for a dataset without samples, and
    /// [`PlanError::BatchExceedsDataset`] if there would be no step because the samples never fill one batch.
    pub fn check(&self, samples: u64) -> Result<(), PlanError> {
        if self.global_batch == 0 {
            return Err(PlanError::NoBatch);
        }
        if samples == 0 {
            return Err(PlanError::Empty);
        }
        if self.epochs > 0 && self.step(samples, Position::START).is_none() {
            let Self { global_batch, epochs, .. } = *self;
            return Err(PlanError::BatchExceedsDataset { global_batch, samples, epochs });
        }
        Ok(())
    }

    /// Returns the same as [`Plan::step`], for a caller that knows the number of samples and has no plan.
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
            EpochEnd::Pad | EpochEnd::Exact => end = end.min(samples),
            EpochEnd::Drop | EpochEnd::Continuous => {}
        }
        if from.epoch >= self.epochs {
            return None;
        }
        let next = Position::new(from.epoch + end / samples, end % samples);
        if next > Position::new(self.epochs, 0) {
            return None;
        }
        Some(Step { from, next, global_batch: self.global_batch, epoch_end: self.epoch_end })
    }
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Plan {
    /// Checks that these batches can be cut from this dataset.
    ///
    /// # Errors
    /// As for [`BatchParams::check`].
    pub fn check(&self, batch: &BatchParams) -> Result<(), PlanError> {
        batch.check(self.samples())
    }

    /// Returns the next step at or after `from`; `None` when all epochs are over.
    ///
    /// `drop` skips the samples at the end of each epoch that do not fill a batch; `continuous` skips those at the end
    /// of the last epoch only. An offset at or past N means the start of the next epoch.
    ///
    /// # Panics
    /// If the global batch is 0.
    #[must_use]
    pub fn step(&self, from: Position, batch: &BatchParams) -> Option<Step> {
        batch.step(self.samples(), from)
    }

    /// Iterates over all steps at or after `from`.
    pub fn steps(&self, from: Position, batch: &BatchParams) -> impl Iterator<Item = Step> + use<'_> {
        let batch = *batch;
        let first = self.step(from, &batch);
        std::iter::successors(first, move |step| self.step(step.next, &batch))
    }

    /// Replaces the contents of `items` by the entries of `rank` of `world` in a step.
    ///
    /// The batch's entries are sorted by (g mod q, g), where g is the offset, counted on past the end of the epoch, and
    /// q = gcd(L, B). The rank takes the entries [rank * B / world, (rank + 1) * B / world). The concatenation over the
    /// ranks is the same for every world.
    ///
    /// # Panics
    /// If `rank` is not below `world`.
    pub fn rank_items(&self, step: &Step, rank: u32, world: u32, items: &mut Vec<Item>) {
        assert!(rank < world, "rank {rank} of {world}");
        let size = u64::from(step.global_batch);
        let classes = u64::from(gcd(self.lanes(), step.global_batch));
        let class_size = size / classes;
        let (start, end) = (u64::from(rank) * size / u64::from(world), (u64::from(rank) + 1) * size / u64::from(world));
        let (mut class, mut index) = (start / class_size, start % class_size);
        let before = step.from.offset % classes;
        let mut lease = self.lease(step.from.epoch);
        items.clear();
        items.reserve((end - start) as usize);
        for _ in start..end {
            let first = if class >= before { class - before } else { class + classes - before };
            items.push(self.item(step, step.from.offset + first + index * classes, &mut lease));
            index += 1;
            if index == class_size {
                (class, index) = (class + 1, 0);
            }
        }
    }

    /// Returns the entry of a step at offset `counted`, which counts on past the end of the epoch.
    fn item(&self, step: &Step, counted: u64, lease: &mut EpochLease) -> Item {
        let samples = self.samples();
        let epoch = step.from.epoch;
        let (at, kind) = if counted < samples {
            (Position::new(epoch, counted), ItemKind::Sample)
        } else {
            match step.epoch_end {
                EpochEnd::Pad => (Position::new(epoch, counted % samples), ItemKind::Padding),
                EpochEnd::Exact => {
                    let located = self.locate(SampleId(0));
                    return Item { at: Position::new(epoch, counted), located, kind: ItemKind::Invalid };
                }
                EpochEnd::Continuous | EpochEnd::Drop => {
                    (Position::new(epoch + counted / samples, counted % samples), ItemKind::Sample)
                }
            }
        };
        Item { at, located: self.at_leased(at.epoch, at.offset, lease), kind }
    }

    /// Computes the receipt of a run without bad samples: of the first `steps` steps at or after `from`, or of all
    /// steps if `steps` is `None`. This costs as much as locating every sample.
    #[must_use]
    pub fn receipt(&self, from: Position, steps: Option<u64>, batch: &BatchParams) -> Receipt {
        let mut receipt = Receipt::default();
        let mut lease = self.lease(from.epoch);
        let steps = usize::try_from(steps.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        for step in self.steps(from, batch).take(steps) {
            for counted in step.from.offset..step.from.offset + u64::from(step.global_batch) {
                if counted >= self.samples() && step.epoch_end != EpochEnd::Continuous {
                    break;
                }
                let item = self.item(&step, counted, &mut lease);
                receipt.add_sample(item.at, item.located.id);
            }
        }
        receipt
    }
}
