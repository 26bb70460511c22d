//! The order: which sample is at which position of a job's stream, and which samples a rank gets at a step.
//!
//! The stream is a pure function of the blocks, the seed and the [`OrderParams`]. World size, rank and batch
//! size only slice it. `docs/spec/order.md` has the mathematics.

mod balance;
mod batch;
mod blend;
mod buckets;
mod deal;
mod defaults;
mod epoch;
mod limits;
mod mixes;
pub mod permutation;
mod rank_steps;
mod readers;
mod receipt;
mod redactions;
mod stages;
#[cfg(test)]
mod statistics;
mod steps;
mod stream;
mod substitutes;
mod table;
pub mod view;
mod weights;

pub use balance::{BalancedBatch, CostSpread, deal_by_cost};
pub use batch::{Item, ItemKind};
pub use blend::{BlendSource, source_seed};
pub use buckets::{BucketParams, SizeOfSample};
pub use defaults::DatasetFacts;
pub use limits::{SourceLimit, WhenDone, stages_with_limits};
pub use mixes::{Cut, DrawnMix, MixMethod, MixParams, PastedArea, WHOLE_WEIGHT};
pub use rank_steps::RankSteps;
pub use receipt::Receipt;
pub use redactions::{MAX_REDACTED_BYTES, MAX_REDACTIONS, RedactedSamples, RedactedSamplesError, Redaction};
pub use stages::{BlendStage, MAX_STAGES};
pub use steps::{BatchParams, EpochEnd, MAX_GLOBAL_BATCH, Step};
pub use substitutes::MAX_SUBSTITUTES;
pub use table::{BLEND_PERIOD, MAX_SOURCES, samples_once_through};
pub use weights::blend_weights;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::{
    blend::{Blend, BlendLease},
    buckets::Buckets,
    stream::{DatasetStream, EpochLease},
};
use crate::view::ViewSamples;
use spdl_types::{Position, SampleId};

/// The version of the order that this code computes.
pub const ORDER_VERSION: u32 = 1;

/// Upper limit of the number of lanes. Lanes cost memory, and more lanes than a global batch has samples gain nothing.
const MAX_LANES: u64 = 1 << 20;

/// The parameters of the order, fixed when a job is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderParams {
    /// Version of the order's algorithm; this code knows version 1.
    pub version: u32,
    /// L, the number of lanes; at least 1.
    pub lanes: u32,
    /// M, the number of samples of a lane that are shuffled among themselves; at least 1.
    pub window: u64,
    /// Whether blocks, spans and windows are permuted at all.
    pub shuffle: bool,
}

/// Why a dataset and order parameters make no stream, or why batches cannot be cut from it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum PlanError {
    /// The parameters were made by another version of the software.
    #[error("order version `{version}` is not known; this build knows version {ORDER_VERSION}")]
    Version { version: u32 },
    /// The number of lanes or the size of the window is 0.
    #[error("`{parameter}` is 0; it must be at least 1")]
    Zero { parameter: &'static str },
    /// No block has a sample.
    #[error("the dataset has no samples")]
    Empty,
    /// A lane would be empty, or there are more than 2^20 lanes.
    #[error("`lanes` is {lanes}; a dataset of {samples} samples has at most {most}")]
    TooManyLanes { lanes: u32, samples: u64, most: u64 },
    /// The number of blocks does not fit into 32 bits.
    #[error("the dataset has `{blocks}` blocks, more than 2^32 - 1; pack it with larger blocks")]
    TooManyBlocks { blocks: u64 },
    /// The view is of another dataset.
    #[error("the view is of a dataset of {view} samples; this one has {samples}")]
    OtherView { view: u64, samples: u64 },
    /// The weights of sources are no parts of a period.
    #[error(
        "the weights of sources are {weights:?}; they must be 1 to {MAX_SOURCES} whole numbers that add up to {BLEND_PERIOD}, one for \
         each source"
    )]
    Weights { weights: Vec<u32> },
    /// The weights change too often.
    #[error("the weights of sources change {stages} times; they can change {MAX_STAGES} times")]
    TooManyStages { stages: usize },
    /// A stage does not begin after the one before it.
    #[error("a stage begins at sample {from}, not after sample {after}, where the one before it begins")]
    StageOrder { from: u64, after: u64 },
    /// A source has no stream.
    #[error("source number {number}: {problem}")]
    Source { number: usize, problem: Box<Self> },
    /// More than half of the samples of the stream, or of one of its sources, are redacted.
    #[error(
        "{redacted} of {samples} samples are redacted; at most half of them can be: make a view of the others, and a job of that"
    )]
    TooManyRedacted { redacted: u64, samples: u64 },
    /// The number of samples per step is 0.
    #[error("`global_batch` is 0; it must be at least 1")]
    NoBatch,
    /// The number of samples per step is above [`MAX_GLOBAL_BATCH`].
    #[error("`global_batch` is {global_batch}; it must be at most {MAX_GLOBAL_BATCH}")]
    BatchTooLarge { global_batch: u32 },
    /// There would be no step at all.
    #[error(
        "`global_batch` is {global_batch}, and the {samples} samples of an epoch ({epochs} in all) never fill it: there would be \
         no batch; lower it, or set epoch_end to \"pad\" or \"partial\""
    )]
    BatchExceedsDataset { global_batch: u32, samples: u64, epochs: u64 },
}

/// A sample and its place in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Its global number.
    pub id: SampleId,
    /// Its block's number in the manifest.
    pub block: u32,
    /// Its number within the block.
    pub index: u32,
}

/// A job's stream: computes in O(1) which sample is at which position. It is cheap to clone; all clones share one
/// cache.
///
/// Memory is O(blocks): 20 bytes per block, 12 more for a view, and 12 more for each of the few epochs used last. The table of
/// each stage of a blend takes 320 KiB. Each of the epochs of a sampling takes 20 bytes more per block, and up to two bits per sample.
/// Each of the few windows of buckets used last takes 4 bytes per sample of it.
#[derive(Clone)]
pub struct Plan {
    kind: Arc<PlanKind>,
    /// Samples that are not delivered, from a position on.
    redactions: Arc<[Redaction]>,
    /// How samples of like size come together; `None` if they do not.
    buckets: Option<Arc<Buckets>>,
}

/// What a plan orders.
enum PlanKind {
    /// One dataset or view.
    Dataset(DatasetStream),
    /// Several of them, by their weights.
    Blend(Blend),
}

/// The orders of epochs, held while a batch is looked up.
enum PlanLease {
    Dataset(EpochLease),
    Blend(BlendLease),
}

impl Plan {
    /// Creates the stream of a dataset whose blocks have these numbers of samples, in the manifest's order.
    ///
    /// With `params.shuffle` off the stream follows the manifest's order in every epoch, as one lane: stream offset g
    /// is sample g, and ranks take contiguous slices.
    ///
    /// # Errors
    /// [`PlanError`] if the parameters make no stream of this dataset.
    pub fn new(block_samples: &[u32], seed: u64, params: OrderParams) -> Result<Self, PlanError> {
        Ok(Self::of_kind(PlanKind::Dataset(DatasetStream::new(block_samples, None, seed, params)?)))
    }

    /// Creates the stream of a view's samples, in a dataset whose blocks have these numbers of samples. The stream is
    /// as if the dataset had only the view's samples, and no blocks without any. Samples and blocks keep the numbers
    /// that they have in the dataset. Of a sampling, each epoch has each sample as often as it comes, and an epoch is dealt when it is
    /// first looked at, in a pass over the samples.
    ///
    /// # Errors
    /// [`PlanError`] if the parameters make no stream of this view, or if it is a view of another dataset.
    pub fn of_view(
        block_samples: &[u32],
        view: &ViewSamples,
        seed: u64,
        params: OrderParams,
    ) -> Result<Self, PlanError> {
        Ok(Self::of_kind(PlanKind::Dataset(DatasetStream::new(block_samples, Some(view), seed, params)?)))
    }

    /// Creates the stream of several datasets or views. Each has a stream of its own, with epochs of its own, and gives the share of
    /// the samples that its weight says, at every prefix to less than one sample. An epoch has `samples` samples, and the next one
    /// goes on in the sources where it ended. With each of the `stages`, in their order, the sources have other weights from there
    /// on, and each goes on where it was: what comes before a stage does not depend on it.
    ///
    /// The blocks and samples of all datasets are numbered on: those of the first source, then those of the second, and so on.
    ///
    /// # Errors
    /// [`PlanError`] if a source has no stream, the weights do not add up to [`BLEND_PERIOD`], or the stages are out of order.
    pub fn of_sources(
        sources: &[BlendSource<'_>],
        stages: &[BlendStage],
        samples: u64,
        seed: u64,
    ) -> Result<Self, PlanError> {
        Ok(Self::of_kind(PlanKind::Blend(Blend::new((sources, stages), samples, seed)?)))
    }

    fn of_kind(kind: PlanKind) -> Self {
        Self { kind: Arc::new(kind), redactions: Arc::default(), buckets: None }
    }

    /// Returns the stream in which samples of like size come in one batch, within windows; `size_of` returns the sizes.
    ///
    /// # Panics
    /// If the windows are smaller than their batches, or these have no sample.
    #[must_use]
    pub fn bucketed(self, params: BucketParams, seed: u64, size_of: SizeOfSample) -> Self {
        Self { buckets: Some(Arc::new(Buckets::new(params, seed, size_of))), ..self }
    }

    /// Returns the stream without buckets.
    #[must_use]
    pub fn unbucketed(&self) -> Self {
        Self { buckets: None, ..self.clone() }
    }

    /// Returns the offset in the stream without buckets of the sample at a position.
    #[inline]
    fn unsorted_offset(&self, at: Position, lease: &mut PlanLease) -> u64 {
        match &self.buckets {
            None => at.offset,
            Some(buckets) => {
                let id_at = |offset| self.ordered(at.epoch, offset, lease).id;
                buckets.unsorted_offset(at, self.samples(), id_at)
            }
        }
    }

    /// Returns the position in the stream without buckets of the sample at a position.
    fn unsorted(&self, at: Position) -> Position {
        match &self.buckets {
            None => at,
            Some(_) => Position::new(at.epoch, self.unsorted_offset(at, &mut self.lease(at.epoch))),
        }
    }

    /// Returns the stream in which the samples of each redaction do not come from its position on: a [substitute](Self::substitute)
    /// takes the place of each, as that of a bad sample. What comes before a redaction does not depend on it. The redactions are in the
    /// order of their positions, and no sample is in two of them.
    ///
    /// # Errors
    /// [`PlanError::TooManyRedacted`] if they have more than half of the samples of the stream, or of one of its sources.
    pub fn redacting(mut self, redactions: &[Redaction]) -> Result<Self, PlanError> {
        let redacted_of =
            |ids: &std::ops::Range<u64>| redactions.iter().map(|of| of.samples.count_in(ids)).sum::<u64>();
        let check = |(ids, samples): (std::ops::Range<u64>, u64)| match redacted_of(&ids) {
            redacted if redacted > samples / 2 => Err(PlanError::TooManyRedacted { redacted, samples }),
            _ => Ok(()),
        };
        match &*self.kind {
            PlanKind::Dataset(stream) => check((0..u64::MAX, stream.different_samples()))?,
            PlanKind::Blend(blend) => blend.source_ids().try_for_each(check)?,
        }
        self.redactions = redactions.into();
        Ok(self)
    }

    /// Returns N, the number of samples in each epoch: those of the dataset or of the view, or as many as an epoch of several sources
    /// has.
    #[must_use]
    pub fn samples(&self) -> u64 {
        match &*self.kind {
            PlanKind::Dataset(stream) => stream.deal.samples(),
            PlanKind::Blend(blend) => blend.samples(),
        }
    }

    /// Returns the number of lanes that the stream is dealt from: L, or 1 if nothing is shuffled; of several sources the largest
    /// number.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        match &*self.kind {
            PlanKind::Dataset(stream) => stream.deal.lanes(),
            PlanKind::Blend(blend) => blend.lanes(),
        }
    }

    /// Returns the sample at a position of the stream: of a redacted one, its substitute.
    ///
    /// # Panics
    /// If `offset` is not below [`samples`](Self::samples).
    #[must_use]
    pub fn at(&self, epoch: u64, offset: u64) -> Located {
        let planned = self.at_leased(epoch, offset, &mut self.lease(epoch));
        self.redacted_for(Position::new(epoch, offset), &planned).unwrap_or(planned)
    }

    /// Returns the epoch of the sample's own source at a position, with which its random operations are drawn. A small source goes
    /// through several epochs within one of the stream, and a sample that comes twice gets other draws. With one dataset it is
    /// the epoch of the position. In a sampling in which samples come up to R times in an epoch, R numbers take the place of each epoch.
    #[must_use]
    pub fn source_epoch(&self, at: Position) -> u64 {
        match &*self.kind {
            PlanKind::Dataset(stream) => stream.draw_epoch(self.unsorted(at)),
            PlanKind::Blend(blend) => blend.draw_epoch(at),
        }
    }

    /// Returns the position of this epoch from which on the block of the sample at `at` is certainly no longer in use:
    /// no later sample of its lane is in this block. A block that the deal cuts in two is used in two lanes, at
    /// different times. Of several sources it is the block's source whose epoch counts, and the position may be in a later epoch
    /// of the stream.
    ///
    /// # Panics
    /// If the offset of `at` is not below [`samples`](Self::samples).
    #[must_use]
    pub fn in_use_until(&self, at: Position) -> Position {
        let at = self.unsorted(at);
        let until = match &*self.kind {
            PlanKind::Dataset(stream) => stream.in_use_until(at),
            PlanKind::Blend(blend) => blend.in_use_until(at),
        };
        self.buckets.as_ref().map_or(until, |buckets| buckets.all_come_before(until, self.samples()))
    }

    /// Returns a sample with its block.
    ///
    /// # Panics
    /// If there is no such sample.
    #[must_use]
    pub fn locate(&self, id: SampleId) -> Located {
        let located = match &*self.kind {
            PlanKind::Dataset(stream) => stream.locate(id),
            PlanKind::Blend(blend) => blend.locate(id),
        };
        located.unwrap_or_else(|| panic!("sample {id} is none of the {} of the stream", self.samples()))
    }

    /// Returns the first sample of the stream, in the dataset's order.
    fn first(&self) -> Located {
        match &*self.kind {
            PlanKind::Dataset(stream) => stream.nth(0),
            PlanKind::Blend(blend) => blend.first(),
        }
    }

    #[inline]
    fn at_leased(&self, epoch: u64, offset: u64, lease: &mut PlanLease) -> Located {
        let offset = self.unsorted_offset(Position::new(epoch, offset), lease);
        self.ordered(epoch, offset, lease)
    }

    /// Returns the sample at an offset of the stream without buckets.
    #[inline]
    fn ordered(&self, epoch: u64, offset: u64, lease: &mut PlanLease) -> Located {
        match (&*self.kind, lease) {
            (PlanKind::Dataset(stream), PlanLease::Dataset(lease)) => stream.at_leased(epoch, offset, lease),
            (PlanKind::Blend(blend), PlanLease::Blend(lease)) => blend.at_leased(epoch, offset, lease),
            _ => unreachable!("a lease is of its own plan"),
        }
    }

    fn lease(&self, epoch: u64) -> PlanLease {
        match &*self.kind {
            PlanKind::Dataset(stream) => PlanLease::Dataset(stream.lease(epoch)),
            PlanKind::Blend(blend) => PlanLease::Blend(blend.lease()),
        }
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut plan = f.debug_struct("Plan");
        plan.field("samples", &self.samples());
        match &*self.kind {
            PlanKind::Dataset(stream) => plan.field("seed", &stream.seed).field("params", &stream.params),
            PlanKind::Blend(blend) => plan.field("sources", &blend.sources()),
        };
        plan.finish_non_exhaustive()
    }
}
