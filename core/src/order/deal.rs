//! The deal: the dataset's blocks in a keyed order, end to end on one line that is cut into lanes. It is fixed for the
//! whole run.

use std::ops::Range;

use super::{
    Located, MAX_LANES, PlanError,
    permutation::{Key, Purpose},
};
use crate::SampleId;

/// The blocks and lanes of a run. It takes 20 bytes per block.
pub(super) struct Deal {
    lanes: u32,
    samples: u64,
    /// The first sample of each block of the manifest, and N at the end.
    block_starts: Box<[u64]>,
    /// The manifest's number of each dealt block.
    blocks: Box<[u32]>,
    /// The place on the line where each dealt block starts, and N at the end.
    line_starts: Box<[u64]>,
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
        Ok(Self { lanes, samples, block_starts, blocks: dealt, line_starts })
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

    /// Returns the dealt block that holds a place of the line; an empty block holds none.
    pub(super) fn block_at(&self, place: u64) -> usize {
        self.line_starts.partition_point(|&start| start <= place) - 1
    }

    /// Returns the range of the line that a dealt block occupies.
    #[inline]
    pub(super) fn block_range(&self, dealt: usize) -> Range<u64> {
        self.line_starts[dealt]..self.line_starts[dealt + 1]
    }

    /// Returns the sample at `place` of the line, which lies in dealt block `dealt`.
    #[inline]
    pub(super) fn located(&self, dealt: usize, place: u64) -> Located {
        let block = self.blocks[dealt];
        let index = place - self.line_starts[dealt];
        Located { id: SampleId(self.block_starts[block as usize] + index), block, index: index as u32 }
    }

    /// Returns a sample of the manifest with its block.
    pub(super) fn locate(&self, id: SampleId) -> Located {
        let block = self.block_starts.partition_point(|&start| start <= id.0) - 1;
        Located { id, block: block as u32, index: (id.0 - self.block_starts[block]) as u32 }
    }

    /// Returns sample number `index` of a block of the manifest.
    pub(super) fn sample_of(&self, block: u32, index: u32) -> Located {
        Located { id: SampleId(self.block_starts[block as usize] + u64::from(index)), block, index }
    }

    /// Returns the number of samples in a block of the manifest.
    pub(super) fn block_samples(&self, block: u32) -> u64 {
        self.block_starts[block as usize + 1] - self.block_starts[block as usize]
    }
}
