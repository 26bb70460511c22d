//! The default order parameters of a job.

use spdl_types::Fingerprint;

use super::OrderParams;

/// The facts about a dataset that creating a job needs; they come from the manifest. For a job with a view, they cover
/// only the samples that the view keeps, and the blocks that hold those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetFacts {
    /// Fingerprint of the manifest.
    pub fingerprint: Fingerprint,
    /// Number of samples.
    pub samples: u64,
    /// Number of records or documents that these are made of: as many, unless samples are sequences.
    pub documents: u64,
    /// Number of tokens in all samples, where samples are sequences; else 0.
    pub tokens: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Mean size of a block in bytes.
    pub block_bytes: u64,
    /// Whether the manifest lists classes.
    pub has_classes: bool,
}

impl DatasetFacts {
    /// Returns the facts of a dataset that lists classes, with blocks of 1 MiB.
    #[must_use]
    pub const fn new(fingerprint: Fingerprint, samples: u64, blocks: u64) -> Self {
        Self { fingerprint, samples, documents: samples, tokens: 0, blocks, block_bytes: 1 << 20, has_classes: true }
    }
}

/// Lower bound of the blocks per lane that the default lane count leaves, so that a lane has something to permute.
const MIN_BLOCKS_PER_LANE: u64 = 64;
/// Bytes of a block up to which a default window has as many blocks as a lane has samples of the global batch.
const USUAL_BLOCK_BYTES: u64 = 8 << 20;
/// Bytes that larger blocks in use take in the windows of all lanes: half the memory that a worker has by default. Many of them are row
/// groups without pages to cut them at, which are decoded as a whole each time that they are not kept.
const LARGE_BLOCKS_BYTES: u64 = 512 << 20;

impl OrderParams {
    /// Returns the defaults for a dataset. L is the largest divisor of the global batch that leaves at least 64 blocks
    /// per lane. M is the average block times B/L blocks per lane, so that about one global batch of blocks is in use
    /// at once. Of blocks above 8 MiB, as many are in use as take 512 MiB in all lanes, and at least a window of one block in each.
    #[must_use]
    pub fn default_for(facts: &DatasetFacts, global_batch: u32, shuffle: bool) -> Self {
        let most = (facts.blocks / MIN_BLOCKS_PER_LANE).max(1);
        let divides = |lanes: &u32| global_batch.is_multiple_of(*lanes);
        let largest = u32::try_from(most).unwrap_or(u32::MAX).min(global_batch);
        let lanes = (1..=largest).rev().find(divides).unwrap_or(1);
        let samples_per_block = facts.samples.div_ceil(facts.blocks.max(1)).max(1);
        let mut blocks_per_window = u64::from(global_batch / lanes).max(1);
        if facts.block_bytes > USUAL_BLOCK_BYTES {
            let per_lane = LARGE_BLOCKS_BYTES / facts.block_bytes / u64::from(lanes);
            // The two passes that shuffle a window take samples from twice its length, and a block more at its end.
            blocks_per_window = blocks_per_window.min((per_lane.saturating_sub(1) / 2).max(1));
        }
        let samples_per_lane = facts.samples.div_ceil(u64::from(lanes)).max(1);
        let window = (samples_per_block * blocks_per_window).clamp(1, samples_per_lane);
        Self { version: 1, lanes, window, shuffle }
    }
}
