//! The deal: the dataset's blocks in a keyed order, end to end on one line that is cut into lanes. It is fixed for the
//! whole run.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use super::{
    Located, MAX_LANES, PlanError,
    permutation::{Key, Purpose},
};
use crate::view::{ClassSampling, EpochSamples, SampleSet};
use spdl_types::SampleId;

/// The blocks and lanes of a run. It takes 20 bytes per block.
///
/// For a view, it has only the blocks that hold samples of the view, and it counts only those samples, from 0. For an epoch of a sampling it
/// has the same blocks, and each sample as often as it comes.
pub(super) struct Deal {
    lanes: u32,
    samples: u64,
    /// The first sample of each block, and N at the end.
    block_starts: Box<[u64]>,
    /// The number of each dealt block.
    blocks: Box<[u32]>,
    /// The place on the line where each dealt block starts, and N at the end.
    line_starts: Box<[u64]>,
    /// The place of each block in `blocks`, computed on first use; 4 bytes per block.
    places: OnceLock<Box<[u32]>>,
    view: Option<ViewBlocks>,
}

/// Where the samples of a view are in the dataset.
struct ViewBlocks {
    samples: DealtSamples,
    places: Arc<BlockPlaces>,
}

/// The samples that a deal has of a dataset, in the order of their ids.
enum DealtSamples {
    Set(Arc<SampleSet>),
    Epoch(EpochSamples),
}

/// Where the blocks of a view are in the dataset. It takes 12 bytes per block.
struct BlockPlaces {
    /// The manifest's number of each block of the view.
    numbers: Box<[u32]>,
    /// The manifest's first sample of each block of the view.
    first_samples: Box<[u64]>,
}

/// Returns the sum of the elements before each element, and the sum of all elements at the end.
fn starts(lengths: impl ExactSizeIterator<Item = u64>) -> Box<[u64]> {
    let mut sum = 0;
    let mut starts = Vec::with_capacity(lengths.len() + 1);
    starts.push(0);
    starts.extend(lengths.map(|length| {
        sum += length;
        sum
    }));
    starts.into()
}

impl Deal {
    /// Deals the blocks of a dataset that hold samples of a view.
    pub(super) fn of_view(
        block_samples: &[u32],
        set: &Arc<SampleSet>,
        seed: u64,
        lanes: u32,
    ) -> Result<Self, PlanError> {
        let (mut first_sample, mut before) = (0, 0);
        let (mut kept, mut numbers, mut first_samples) = (Vec::new(), Vec::new(), Vec::new());
        for (number, samples) in (0..).zip(block_samples) {
            let end = first_sample + u64::from(*samples);
            let below = set.below(SampleId(end));
            if below > before {
                // At most the number of samples of one block, which fits 32 bits.
                kept.push((below - before) as u32);
                numbers.push(number);
                first_samples.push(first_sample);
            }
            (first_sample, before) = (end, below);
        }
        if first_sample != set.universe() {
            return Err(PlanError::OtherView { view: set.universe(), samples: first_sample });
        }
        let mut deal = Self::new(&kept, seed, lanes)?;
        let places = BlockPlaces { numbers: numbers.into(), first_samples: first_samples.into() };
        deal.view = Some(ViewBlocks { samples: DealtSamples::Set(set.clone()), places: Arc::new(places) });
        Ok(deal)
    }

    /// Deals the samples of an epoch of a sampling, where this is the deal of the samples that it keeps. The blocks are the same in each
    /// epoch, in the same order on the line, though one may have no sample.
    pub(super) fn of_epoch(
        &self,
        sampling: &ClassSampling,
        epoch: u64,
        seed: u64,
        lanes: u32,
    ) -> Result<Self, PlanError> {
        let kept = self.view.as_ref().expect("what a sampling keeps is a view");
        let (samples, of_blocks) = sampling.of_epoch(epoch, &self.block_starts);
        let mut deal = Self::new(&of_blocks, seed, lanes)?;
        deal.view = Some(ViewBlocks { samples: DealtSamples::Epoch(samples), places: kept.places.clone() });
        Ok(deal)
    }

    pub(super) fn new(block_samples: &[u32], seed: u64, lanes: u32) -> Result<Self, PlanError> {
        let blocks = u32::try_from(block_samples.len())
            .map_err(|_| PlanError::TooManyBlocks { blocks: block_samples.len() as u64 })?;
        let block_starts = starts(block_samples.iter().map(|&samples| u64::from(samples)));
        let samples = block_starts[block_samples.len()];
        if samples == 0 {
            return Err(PlanError::Empty);
        }
        let most = samples.min(MAX_LANES);
        if u64::from(lanes) > most {
            return Err(PlanError::TooManyLanes { lanes, samples, most });
        }
        let key = Key::new(seed, Purpose::Deal);
        let dealt: Box<[u32]> =
            (0..blocks).map(|place| key.permute(u64::from(blocks), u64::from(place)) as u32).collect();
        let line_starts = starts(dealt.iter().map(|&block| u64::from(block_samples[block as usize])));
        Ok(Self { lanes, samples, block_starts, blocks: dealt, line_starts, places: OnceLock::new(), view: None })
    }

    pub(super) const fn samples(&self) -> u64 {
        self.samples
    }

    pub(super) const fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Returns floor(lane * N / L), computed without overflow of u64.
    pub(super) const fn lane_start(&self, lane: u32) -> u64 {
        let (lane, lanes) = (lane as u64, self.lanes as u64);
        lane * (self.samples / lanes) + lane * (self.samples % lanes) / lanes
    }

    /// Returns the lane that holds stream offset `offset`, and the offset within that lane. A lane has `N div L`
    /// samples or one more; the last round deals only from the lanes that have one more, in the order of lanes.
    #[inline]
    pub(super) const fn lane_of(&self, offset: u64) -> (u32, u64) {
        let lanes = self.lanes as u64;
        let (round, index) = (offset / lanes, offset % lanes);
        if round < self.samples / lanes {
            return (index as u32, round);
        }
        let longer = self.samples % lanes;
        (((index + 1) * lanes).div_ceil(longer) as u32 - 1, round)
    }

    /// Returns the place of the line where a block of the dataset starts; `None` if it holds no sample of the deal.
    pub(super) fn line_start(&self, block: u32) -> Option<u64> {
        let block = match &self.view {
            None => block as usize,
            Some(view) => view.places.numbers.binary_search(&block).ok()?,
        };
        let places = self.places.get_or_init(|| {
            let mut places = vec![0; self.blocks.len()];
            for (place, block) in (0..).zip(&self.blocks) {
                places[*block as usize] = place;
            }
            places.into()
        });
        Some(self.line_starts[*places.get(block)? as usize])
    }

    /// Returns the lane that owns a place of the line.
    pub(super) fn lane_at(&self, place: u64) -> u32 {
        let lane = ((u128::from(place) + 1) * u128::from(self.lanes) - 1) / u128::from(self.samples);
        lane.min(u128::from(self.lanes) - 1) as u32
    }

    /// Returns the dealt block that holds a place of the line; an empty block holds none.
    pub(super) fn block_at(&self, place: u64) -> usize {
        self.line_starts.partition_point(|&start| start <= place) - 1
    }

    /// Returns the range of the line that a dealt block occupies.
    #[inline]
    pub(super) fn block_range(&self, dealt: usize) -> Range<u64> {
        self.line_starts[dealt]..self.line_starts[dealt + 1]
    }

    /// Returns the block that the sample at `place` of the line lies in, which is dealt block `dealt`, and the sample's
    /// number in it.
    #[inline]
    pub(super) fn in_block(&self, dealt: usize, place: u64) -> (u32, u32) {
        (self.blocks[dealt], (place - self.line_starts[dealt]) as u32)
    }

    /// Returns the block that sample number `number` of the deal lies in, and its number in the block.
    pub(super) fn block_of(&self, number: u64) -> (u32, u32) {
        let block = self.block_starts.partition_point(|&start| start <= number) - 1;
        (block as u32, (number - self.block_starts[block]) as u32)
    }

    /// Returns the number in the deal of a sample of the dataset; `None` if the view has no such sample.
    pub(super) fn number_of(&self, id: SampleId) -> Option<u64> {
        match self.view.as_ref().map(|view| &view.samples) {
            None => Some(id.0).filter(|number| *number < self.samples),
            Some(DealtSamples::Set(set)) => set.contains(id).then(|| set.below(id)),
            Some(DealtSamples::Epoch(_)) => unreachable!("a sample has its number in the deal of all that are kept"),
        }
    }

    /// Returns how often the sample with this number in a block comes before it in an epoch of a sampling, of at most `most` times.
    pub(super) fn repeat(&self, (block, index): (u32, u32), most: u64) -> u64 {
        match self.view.as_ref().map(|view| &view.samples) {
            Some(DealtSamples::Epoch(epoch)) => {
                epoch.repeat(self.block_starts[block as usize] + u64::from(index), most)
            }
            _ => 0,
        }
    }

    /// Returns sample number `index` of a block, as the manifest has it.
    #[inline]
    pub(super) fn located(&self, (block, index): (u32, u32)) -> Located {
        let number = self.block_starts[block as usize] + u64::from(index);
        match &self.view {
            None => Located { id: SampleId(number), block, index },
            Some(view) => {
                let id = match &view.samples {
                    DealtSamples::Set(set) => set.select(number),
                    DealtSamples::Epoch(epoch) => epoch.select(number),
                };
                let index = (id.0 - view.places.first_samples[block as usize]) as u32;
                Located { id, block: view.places.numbers[block as usize], index }
            }
        }
    }

    /// Returns the number of samples in a block.
    pub(super) fn block_samples(&self, block: u32) -> u64 {
        self.block_starts[block as usize + 1] - self.block_starts[block as usize]
    }
}
