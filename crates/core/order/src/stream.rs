//! The stream of one dataset or view: which sample is at which position.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{
    Located, ORDER_VERSION, OrderParams, PlanError,
    batch::rank_of_entry,
    deal::Deal,
    epoch::EpochOrder,
    permutation::{Key, Purpose},
    substitutes::MAX_SUBSTITUTES,
};
use crate::view::{ClassSampling, ViewSamples};
use spdl_types::{Position, SampleId, mix::splitmix64};

/// Number of epochs whose order is cached: those that prefetching reads at once, and one for lookups of another epoch.
const KEPT_EPOCHS: usize = 3;

/// Number of attempts to find a substitute in the bad sample's own block, which has been fetched already.
const NEAR_ATTEMPTS: u32 = 8;

/// Number of attempts to find a substitute in the bad sample's own class, in a stream of a sampling.
const CLASS_ATTEMPTS: u32 = MAX_SUBSTITUTES / 2;

/// The stream of one dataset or view.
pub(super) struct DatasetStream {
    pub(super) seed: u64,
    pub(super) params: OrderParams,
    /// The deal of all epochs; of a sampling that of the first one, which has as many samples and lanes as all others.
    pub(super) deal: Arc<Deal>,
    /// If it is the stream of a sampling.
    sampled: Option<SampledStream>,
    /// The epochs used last, the latest first. Locked once per batch, not per sample, and not while an epoch is dealt.
    epochs: Mutex<Vec<(u64, KeptEpoch)>>,
}

type KeptEpoch = Arc<OnceLock<Arc<EpochOrder>>>;

/// What is dealt anew in each epoch.
struct SampledStream {
    sampling: Arc<ClassSampling>,
    /// The deal of all samples that are kept, each once.
    kept: Deal,
}

/// An epoch's order, held while a batch is looked up.
pub(super) struct EpochLease(Arc<EpochOrder>);

impl DatasetStream {
    /// Creates the stream of a dataset whose blocks have these numbers of samples, or of a view of it.
    pub(super) fn new(
        block_samples: &[u32],
        view: Option<&ViewSamples>,
        seed: u64,
        params: OrderParams,
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
        let (deal, sampled) = match view {
            None => (Deal::new(block_samples, seed, lanes)?, None),
            Some(ViewSamples::Set(set)) => (Deal::of_view(block_samples, set, seed, lanes)?, None),
            Some(ViewSamples::Sampling(sampling)) => {
                let kept = Deal::of_view(block_samples, sampling.kept(), seed, 1)?;
                let first = kept.of_epoch(sampling, 0, seed, lanes)?;
                (first, Some(SampledStream { sampling: sampling.clone(), kept }))
            }
        };
        Ok(Self { seed, params, deal: Arc::new(deal), sampled, epochs: Mutex::default() })
    }

    /// Returns the deal that has each sample of the stream once.
    fn once(&self) -> &Deal {
        self.sampled.as_ref().map_or(&self.deal, |sampled| &sampled.kept)
    }

    /// Returns the number of different samples of the stream.
    pub(super) fn different_samples(&self) -> u64 {
        self.once().samples()
    }

    /// Returns the position from which on the block of the sample at `at` is certainly no longer in use, see
    /// [`Plan::in_use_until`](super::Plan::in_use_until).
    pub(super) fn in_use_until(&self, at: Position) -> Position {
        let params = &self.params;
        let mut lease = self.lease(at.epoch);
        let (block, index) = self.in_block(at.epoch, at.offset, &mut lease);
        let deal = &lease.0.deal;
        if !params.shuffle {
            return Position::new(at.epoch, at.offset - u64::from(index) + deal.block_samples(block));
        }
        let (lane, lane_offset) = deal.lane_of(at.offset);
        let rounds = lease.0.in_use_until(lane, lane_offset);
        Position::new(at.epoch, rounds.saturating_mul(u64::from(deal.lanes())).min(deal.samples()))
    }

    /// Returns a sample with its block; `None` if the stream has no such sample.
    pub(super) fn locate(&self, id: SampleId) -> Option<Located> {
        self.once().number_of(id).map(|number| self.nth(number))
    }

    /// Returns the sample with this number among the different ones of the stream, in the dataset's order.
    pub(super) fn nth(&self, number: u64) -> Located {
        let deal = self.once();
        deal.located(deal.block_of(number))
    }

    /// Returns the epoch with which the random operations of the sample at a position are drawn: another one for each time that a sample
    /// comes.
    pub(super) fn draw_epoch(&self, Position { epoch, offset }: Position) -> u64 {
        let repeats = self.sampled.as_ref().map_or(1, |sampled| sampled.sampling.repeats());
        if repeats == 1 {
            return epoch;
        }
        let mut lease = self.lease(epoch);
        let place = self.in_block(epoch, offset, &mut lease);
        epoch.wrapping_mul(repeats).wrapping_add(lease.0.deal.repeat(place, repeats))
    }

    #[inline]
    pub(super) fn at_leased(&self, epoch: u64, offset: u64, lease: &mut EpochLease) -> Located {
        let place = self.in_block(epoch, offset, lease);
        lease.0.deal.located(place)
    }

    /// Returns the deal's block that holds the sample at a position, and the sample's number in it.
    #[inline]
    fn in_block(&self, epoch: u64, offset: u64, lease: &mut EpochLease) -> (u32, u32) {
        let Self { seed, params, .. } = self;
        if lease.0.epoch != epoch {
            *lease = self.lease(epoch);
        }
        let deal = &*lease.0.deal;
        assert!(offset < deal.samples(), "offset {offset} of an epoch of {} samples", deal.samples());
        if !params.shuffle {
            return deal.block_of(offset);
        }
        let (lane, lane_offset) = deal.lane_of(offset);
        let (dealt, place) = lease.0.line_place(*seed, params.window, lane, lane_offset);
        deal.in_block(dealt, place)
    }

    pub(super) fn lease(&self, epoch: u64) -> EpochLease {
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = epochs.iter().position(|(number, _)| *number == epoch) {
            epochs[..=found].rotate_right(1);
        } else {
            epochs.truncate(KEPT_EPOCHS - 1);
            epochs.insert(0, (epoch, KeptEpoch::default()));
        }
        let kept = epochs[0].1.clone();
        drop(epochs);
        EpochLease(kept.get_or_init(|| Arc::new(EpochOrder::new(epoch, self.deal_of(epoch)))).clone())
    }

    /// Returns the deal of an epoch.
    fn deal_of(&self, epoch: u64) -> Arc<Deal> {
        match &self.sampled {
            Some(SampledStream { sampling, kept }) if epoch > 0 => {
                let deal = kept.of_epoch(sampling, epoch, self.seed, self.deal.lanes());
                Arc::new(deal.expect("all epochs have as many blocks and samples as the first"))
            }
            _ => self.deal.clone(),
        }
    }

    /// Returns a substitute, see [`Plan::substitute`](super::Plan::substitute).
    pub(super) fn substitute(&self, epoch: u64, offset: u64, attempt: u32) -> Located {
        let mut lease = self.lease(epoch);
        let place = self.in_block(epoch, offset, &mut lease);
        let (deal, (block, bad)) = (&lease.0.deal, place);
        let key = self.substitute_key(epoch, offset, attempt);
        let neighbours = deal.block_samples(block) - 1;
        let drawn = if attempt < NEAR_ATTEMPTS && neighbours > 0 {
            let index = (u64::from(bad) + 1 + key.below(neighbours)) % (neighbours + 1);
            deal.located((block, index as u32))
        } else {
            self.nth(key.below(self.different_samples()))
        };
        match &self.sampled {
            Some(sampled) if attempt % MAX_SUBSTITUTES < CLASS_ATTEMPTS => {
                let number = |id| sampled.kept.number_of(id).expect("a sample of the stream is kept");
                let other = sampled.sampling.other_of_class(number(deal.located(place).id), number(drawn.id));
                other.map_or(drawn, |other| self.nth(other))
            }
            _ => drawn,
        }
    }

    fn substitute_key(&self, epoch: u64, offset: u64, attempt: u32) -> Key {
        Key::new(self.seed, Purpose::Substitute).with(epoch).with(offset).with(u64::from(attempt))
    }

    /// Returns sample number `after` of those that follow one that is drawn for an attempt, in the dataset's order.
    pub(super) fn after_substitute(&self, epoch: u64, offset: u64, attempt: u32, after: u64) -> Located {
        let samples = self.different_samples();
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
