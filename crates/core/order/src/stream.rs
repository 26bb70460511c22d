//! The stream of one dataset or view: which sample is at which position.

use std::sync::{Arc, Mutex, PoisonError};

use super::{
    Located, ORDER_VERSION, OrderParams, PlanError,
    batch::rank_of_entry,
    deal::Deal,
    epoch::EpochOrder,
    permutation::{Key, Purpose},
};
use spdl_types::{Position, SampleId, mix::splitmix64};

/// Number of epochs whose order is cached: those that prefetching reads at once, and one for lookups of another epoch.
const KEPT_EPOCHS: usize = 3;

/// Number of attempts to find a substitute in the bad sample's own block, which has been fetched already.
const NEAR_ATTEMPTS: u32 = 8;

/// The stream of one dataset or view.
pub(super) struct DatasetStream {
    pub(super) seed: u64,
    pub(super) params: OrderParams,
    pub(super) deal: Deal,
    /// The epochs used last, the latest first. Locked once per batch, not per sample.
    epochs: Mutex<Vec<Arc<EpochOrder>>>,
}

/// An epoch's order, held while a batch is looked up.
pub(super) struct EpochLease(Arc<EpochOrder>);

impl DatasetStream {
    /// Creates the stream of a deal, which gets the number of lanes.
    pub(super) fn new(
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
        Ok(Self { seed, params, deal, epochs: Mutex::default() })
    }

    /// Returns the position from which on the block of the sample at `at` is certainly no longer in use, see
    /// [`Plan::in_use_until`](super::Plan::in_use_until).
    pub(super) fn in_use_until(&self, at: Position) -> Position {
        let Self { params, deal, .. } = self;
        let mut lease = self.lease(at.epoch);
        let (block, index) = self.in_block(at.epoch, at.offset, &mut lease);
        if !params.shuffle {
            return Position::new(at.epoch, at.offset - u64::from(index) + deal.block_samples(block));
        }
        let (lane, lane_offset) = deal.lane_of(at.offset);
        let rounds = lease.0.in_use_until(lane, lane_offset);
        Position::new(at.epoch, rounds.saturating_mul(u64::from(deal.lanes())).min(deal.samples()))
    }

    /// Returns a sample with its block; `None` if the stream has no such sample.
    pub(super) fn locate(&self, id: SampleId) -> Option<Located> {
        self.deal.number_of(id).map(|number| self.nth(number))
    }

    /// Returns the sample with this number among those of the stream, in the dataset's order.
    pub(super) fn nth(&self, number: u64) -> Located {
        self.deal.located(self.deal.block_of(number))
    }

    #[inline]
    pub(super) fn at_leased(&self, epoch: u64, offset: u64, lease: &mut EpochLease) -> Located {
        self.deal.located(self.in_block(epoch, offset, lease))
    }

    /// Returns the deal's block that holds the sample at a position, and the sample's number in it.
    #[inline]
    fn in_block(&self, epoch: u64, offset: u64, lease: &mut EpochLease) -> (u32, u32) {
        let Self { seed, params, deal, .. } = self;
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

    pub(super) fn lease(&self, epoch: u64) -> EpochLease {
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = epochs.iter().position(|order| order.epoch == epoch) {
            epochs[..=found].rotate_right(1);
        } else {
            epochs.truncate(KEPT_EPOCHS - 1);
            epochs.insert(0, Arc::new(EpochOrder::new(epoch, self.deal.lanes())));
        }
        EpochLease(epochs[0].clone())
    }

    /// Returns a substitute, see [`Plan::substitute`](super::Plan::substitute).
    pub(super) fn substitute(&self, epoch: u64, offset: u64, attempt: u32) -> Located {
        let (block, bad) = self.in_block(epoch, offset, &mut self.lease(epoch));
        let deal = &self.deal;
        let key = self.substitute_key(epoch, offset, attempt);
        let neighbours = deal.block_samples(block) - 1;
        if attempt < NEAR_ATTEMPTS && neighbours > 0 {
            let index = (u64::from(bad) + 1 + key.below(neighbours)) % (neighbours + 1);
            return deal.located((block, index as u32));
        }
        self.nth(key.below(deal.samples()))
    }

    fn substitute_key(&self, epoch: u64, offset: u64, attempt: u32) -> Key {
        Key::new(self.seed, Purpose::Substitute).with(epoch).with(offset).with(u64::from(attempt))
    }

    /// Returns sample number `after` of those that follow one that is drawn for an attempt, in the dataset's order.
    pub(super) fn after_substitute(&self, epoch: u64, offset: u64, attempt: u32, after: u64) -> Located {
        let samples = self.deal.samples();
        self.nth((self.substitute_key(epoch, offset, attempt).below(samples) + after) % samples)
    }

    /// Returns the rank that is responsible for a block, see [`Plan::owner`](super::Plan::owner), where the entries of a batch are
    /// sorted by lane in `classes` classes of equal size. `None` if the stream has no sample of the block.
    pub(super) fn owner(&self, block: u32, classes: u64, global_batch: u32, world: u32) -> Option<u32> {
        let lane = self.deal.lane_at(self.deal.line_start(block)?);
        let class_size = u64::from(global_batch) / classes;
        let entry = u64::from(lane) % classes * class_size + splitmix64(block.into()) % class_size;
        Some(rank_of_entry(global_batch, entry, world))
    }
}
