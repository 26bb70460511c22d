//! The order: which sample is at which position of a job's stream, and which samples a rank gets at a step.
//!
//! The stream is a pure function of the blocks, the seed and the [`OrderParams`]. World size, rank and batch
//! size only slice it. `docs/spec/order.md` has the mathematics.

mod batch;
mod deal;
mod defaults;
mod epoch;
mod mixes;
pub mod permutation;
mod rank_steps;
mod readers;
mod receipt;
#[cfg(test)]
mod statistics;
mod steps;
mod substitutes;
pub mod view;

pub use batch::{Item, ItemKind};
pub use defaults::DatasetFacts;
pub use mixes::{Cut, DrawnMix, MixMethod, MixParams, PastedArea, WHOLE_WEIGHT};
pub use rank_steps::RankSteps;
pub use receipt::Receipt;
pub use steps::{BatchParams, EpochEnd, MAX_GLOBAL_BATCH, Step};
pub use substitutes::MAX_SUBSTITUTES;

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use self::{deal::Deal, epoch::EpochOrder};
use crate::view::SampleSet;
use spdl_types::{Position, SampleId};

/// The version of the order that this code computes.
pub const ORDER_VERSION: u32 = 1;

/// Upper limit of the number of lanes. Lanes cost memory, and more lanes than a global batch has samples gain nothing.
const MAX_LANES: u64 = 1 << 20;

/// Number of epochs whose order is cached: those that prefetching reads at once, and one for lookups of another epoch.
const KEPT_EPOCHS: usize = 3;

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
pub enum PlanError {
    /// The parameters were made by another version of the software.
    #[error("order version `{version}` is not known; this build knows version {ORDER_VERSION}")]
    Version {
        /// The version that was requested.
        version: u32,
    },
    /// The number of lanes or the size of the window is 0.
    #[error("`{parameter}` is 0; it must be at least 1")]
    Zero {
        /// `lanes` or `window`.
        parameter: &'static str,
    },
    /// No block has a sample.
    #[error("the dataset has no samples")]
    Empty,
    /// A lane would be empty, or there are more than 2^20 lanes.
    #[error("`lanes` is {lanes}; a dataset of {samples} samples has at most {most}")]
    TooManyLanes {
        /// The number of lanes, L.
        lanes: u32,
        /// The number of samples, N.
        samples: u64,
        /// The largest number of lanes that is possible.
        most: u64,
    },
    /// The number of blocks does not fit into 32 bits.
    #[error("the dataset has `{blocks}` blocks, more than 2^32 - 1; pack it with larger blocks")]
    TooManyBlocks {
        /// Blocks in the dataset.
        blocks: u64,
    },
    /// The view is of another dataset.
    #[error("the view is of a dataset of {view} samples; this one has {samples}")]
    OtherView {
        /// Samples of the dataset that the view was made of.
        view: u64,
        /// Samples of this dataset.
        samples: u64,
    },
    /// The number of samples per step is 0.
    #[error("`global_batch` is 0; it must be at least 1")]
    NoBatch,
    /// The number of samples per step is above [`MAX_GLOBAL_BATCH`].
    #[error("`global_batch` is {global_batch}; it must be at most {MAX_GLOBAL_BATCH}")]
    BatchTooLarge {
        /// The number of samples per step over all ranks, B.
        global_batch: u32,
    },
    /// There would be no step at all.
    #[error(
        "`global_batch` is {global_batch}, and the {samples} samples of an epoch ({epochs} in all) never fill it: there would be \
         no batch; lower it, or set epoch_end to \"pad\" or \"partial\""
    )]
    BatchExceedsDataset {
        /// The number of samples per step over all ranks, B.
        global_batch: u32,
        /// The number of samples, N.
        samples: u64,
        /// Epochs to deliver.
        epochs: u64,
    },
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
/// Memory is O(blocks): 20 bytes per block, 12 more for a view, and 12 more for each of the few epochs used last.
#[derive(Clone)]
pub struct Plan(Arc<PlanInner>);

struct PlanInner {
    seed: u64,
    params: OrderParams,
    deal: Deal,
    /// The epochs used last, the latest first. Locked once per batch, not per sample.
    epochs: Mutex<Vec<Arc<EpochOrder>>>,
}

/// An epoch's order, held while a batch is looked up.
struct EpochLease(Arc<EpochOrder>);

impl Plan {
    /// Creates the stream of a dataset whose blocks have these numbers of samples, in the manifest's order.
    ///
    /// With `params.shuffle` off the stream follows the manifest's order in every epoch, as one lane: stream offset g
    /// is sample g, and ranks take contiguous slices.
    ///
    /// # Errors
    /// [`PlanError`] if the parameters make no stream of this dataset.
    pub fn new(block_samples: &[u32], seed: u64, params: OrderParams) -> Result<Self, PlanError> {
        Self::of_deal(seed, params, |lanes| Deal::new(block_samples, seed, lanes))
    }

    /// Creates the stream of a view's samples, in a dataset whose blocks have these numbers of samples. The stream is
    /// as if the dataset had only the view's samples, and no blocks without any. Samples and blocks keep the numbers
    /// that they have in the dataset.
    ///
    /// # Errors
    /// [`PlanError`] if the parameters make no stream of this view, or if it is a view of another dataset.
    pub fn of_view(
        block_samples: &[u32],
        view: &Arc<SampleSet>,
        seed: u64,
        params: OrderParams,
    ) -> Result<Self, PlanError> {
        Self::of_deal(seed, params, |lanes| Deal::of_view(block_samples, view, seed, lanes))
    }

    fn of_deal(
        seed: u64,
        params: OrderParams,
        deal: impl FnOnce(u32) -> Result<Deal, PlanError>,
    ) -> Result<Self, PlanError> {
        if params.version != ORDER_VERSION {
            return Err(PlanError::Version { version: params.version });
        }
        for (parameter, is_zero) in [("lanes", params.lanes == 0), ("window", params.window == 0)] {
            if is_zero {
                return Err(PlanError::Zero { parameter });
            }
        }
        let lanes = if params.shuffle { params.lanes } else { 1 };
        let deal = deal(lanes)?;
        Ok(Self(Arc::new(PlanInner { seed, params, deal, epochs: Mutex::default() })))
    }

    /// Returns N, the number of samples in each epoch: those of the dataset or of the view.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.0.deal.samples()
    }

    /// Returns the number of lanes that the stream is dealt from: L, or 1 if nothing is shuffled.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.0.deal.lanes()
    }

    /// Returns the sample at a position of the stream.
    ///
    /// # Panics
    /// If `offset` is not below [`samples`](Self::samples).
    #[must_use]
    pub fn at(&self, epoch: u64, offset: u64) -> Located {
        self.at_leased(epoch, offset, &mut self.lease(epoch))
    }

    /// Returns the position of this epoch from which on the block of the sample at `at` is certainly no longer in use:
    /// no later sample of its lane is in this block. A block that the deal cuts in two is used in two lanes, at
    /// different times.
    ///
    /// # Panics
    /// If the offset of `at` is not below [`samples`](Self::samples).
    #[must_use]
    pub fn in_use_until(&self, at: Position) -> Position {
        let PlanInner { params, deal, .. } = &*self.0;
        let mut lease = self.lease(at.epoch);
        let (block, index) = self.in_block(at.epoch, at.offset, &mut lease);
        if !params.shuffle {
            return Position::new(at.epoch, at.offset - u64::from(index) + deal.block_samples(block));
        }
        let (lane, lane_offset) = deal.lane_of(at.offset);
        let rounds = lease.0.in_use_until(lane, lane_offset);
        Position::new(at.epoch, rounds.saturating_mul(u64::from(self.lanes())).min(deal.samples()))
    }

    /// Returns a sample with its block.
    ///
    /// # Panics
    /// If there is no such sample.
    #[must_use]
    pub fn locate(&self, id: SampleId) -> Located {
        let number = self.0.deal.number_of(id);
        self.nth(number.unwrap_or_else(|| panic!("sample {id} is none of the {} of the stream", self.samples())))
    }

    /// Returns the sample with this number among those of the stream, in the dataset's order.
    fn nth(&self, number: u64) -> Located {
        self.0.deal.located(self.0.deal.block_of(number))
    }

    #[inline]
    fn at_leased(&self, epoch: u64, offset: u64, lease: &mut EpochLease) -> Located {
        self.0.deal.located(self.in_block(epoch, offset, lease))
    }

    /// Returns the deal's block that holds the sample at a position, and the sample's number in it.
    #[inline]
    fn in_block(&self, epoch: u64, offset: u64, lease: &mut EpochLease) -> (u32, u32) {
        let PlanInner { seed, params, deal, .. } = &*self.0;
        assert!(offset < deal.samples(), "offset {offset} of an epoch of {} samples", deal.samples());
        if !params.shuffle {
            return deal.block_of(offset);
        }
        if lease.0.epoch != epoch {
            *lease = self.lease(epoch);
        }
        let (lane, lane_offset) = deal.lane_of(offset);
        let (dealt, place) = lease.0.line_place(deal, *seed, params.window, lane, lane_offset);
        deal.in_block(dealt, place)
    }

    fn lease(&self, epoch: u64) -> EpochLease {
        let mut epochs = self.0.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = epochs.iter().position(|order| order.epoch == epoch) {
            epochs[..=found].rotate_right(1);
        } else {
            epochs.truncate(KEPT_EPOCHS - 1);
            epochs.insert(0, Arc::new(EpochOrder::new(epoch, self.lanes())));
        }
        EpochLease(epochs[0].clone())
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan")
            .field("samples", &self.samples())
            .field("seed", &self.0.seed)
            .field("params", &self.0.params)
            .finish_non_exhaustive()
    }
}
