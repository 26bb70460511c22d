//! Samples whose bytes stay in memory, to measure decoding without the rest of the pipeline.

use std::sync::Arc;

use futures::future::try_join_all;
use spdl_control::messages::Session;
use spdl_types::{Position, SampleId};

use super::{
    buffer::BatchBuffer,
    decode::{ReadySamples, decode_samples},
    records,
    sample::{BatchSample, SampleGroup},
};
use crate::{
    feed::{
        FeedError, Resources,
        dataset::FeedDatasets,
        open::{Feed, FeedRequest, FeedWork, ReservedFeed, SlabKind},
        room::SlabReservation,
        scheduler::DecodePermitRequest,
    },
    fetch::BlockHold,
};

/// The samples come from at least this many blocks, so that they are typical of the dataset.
const MIN_BLOCKS: u64 = 8;

/// Samples of a job with their bytes in memory, which can be decoded over and over.
pub struct HeldSamples {
    feed: Arc<Feed>,
    buffer: BatchBuffer,
    samples: ReadySamples,
    _holds: Vec<BlockHold>,
    _reservation: SlabReservation,
}

impl HeldSamples {
    /// Reads at most as many samples as a global batch of `session` has, from blocks all over the dataset; fewer where
    /// the blocks do not fit the memory budget.
    ///
    /// # Errors
    /// [`FeedError`] if the session is invalid, there is no memory for the batch, or the dataset cannot be read.
    pub async fn read(resources: &Arc<Resources>, session: Session) -> Result<Self, FeedError> {
        let wanted = session.global_batch;
        let request = FeedRequest { session, rank: 0, from: Position::START, slots: 1, slab: SlabKind::Private };
        let (reserved, reservation, _) = ReservedFeed::new(resources, request, FeedWork::All)?;
        let feed = Arc::new(reserved.open().await?);
        let (groups, holds) = hold(&feed, spread(&feed.datasets, wanted));
        let groups = try_join_all(groups.into_iter().map(|group| records::fetch(feed.clone(), group, None))).await?;
        let slot = reserved.slab.try_take(0).expect("nothing fills it");
        let buffer = BatchBuffer::new(&feed.layout, slot, None, feed.layout.capacity() as usize, 0, &[]);
        Ok(Self {
            feed,
            buffer,
            samples: ReadySamples { groups, ..ReadySamples::default() },
            _holds: holds,
            _reservation: reservation,
        })
    }

    /// Decodes all samples once more, on all decoding threads, and returns how many of them could be decoded.
    ///
    /// # Errors
    /// [`FeedError::Panicked`] if a decoder panics.
    pub async fn decode(mut self) -> Result<(Self, usize), FeedError> {
        let (progress, session) = (self.feed.progress.clone(), self.feed.session.id);
        let request = DecodePermitRequest { progress, sequence: 0, session, at: Position::START };
        let samples = self.samples.len();
        let permit = self.feed.decoding.scheduler.take(request, samples).await;
        let feed = self.feed.clone();
        let decoding = feed.blocking(move || {
            let left = decode_samples(&self.feed, Position::START, &mut self.buffer, &self.samples, &permit);
            (self, samples - left.len())
        });
        decoding.await
    }
}

/// Chooses `wanted` samples, or all if there are fewer, from blocks at even distances.
fn spread(datasets: &FeedDatasets, wanted: u32) -> Vec<SampleGroup> {
    let all = u64::from(datasets.block_count());
    let per_block = (datasets.samples() / all).max(1);
    let taken = u64::from(wanted).div_ceil(per_block).max(MIN_BLOCKS).min(all);
    let number = |index: u64| u32::try_from(index * all / taken).expect("below the number of blocks");
    let mut blocks: Vec<_> = (0..taken).map(number).map(|number| (number, datasets.of(number))).collect();
    // Small blocks come first, so that large ones make up for the samples that small ones lack.
    blocks.sort_by_key(|(_, block)| block.facts().samples);
    let mut entries = 0..wanted;
    let mut groups = Vec::new();
    for (left, (number, block)) in (1..=taken).rev().zip(blocks) {
        let share = (entries.len() as u64).div_ceil(left).min(block.facts().samples.into());
        let sample = |(offset, entry)| {
            let first = block.first_sample().0 + offset;
            BatchSample::at(entry, Position::new(0, first), SampleId(first), number)
        };
        let group: SampleGroup = (0..share).zip(entries.by_ref()).map(sample).collect();
        if !group.is_empty() {
            groups.push(group);
        }
    }
    groups
}

/// Starts to fetch the blocks of the groups. Drops every group but the first whose block has no room in memory: a group
/// keeps its bytes, and memory for bytes that are fetched for one use is limited.
fn hold(feed: &Feed, groups: Vec<SampleGroup>) -> (Vec<SampleGroup>, Vec<BlockHold>) {
    let (mut kept, mut holds) = (Vec::new(), Vec::new());
    for group in groups {
        let block = group[0].block;
        let held = feed.fetcher.prefetch(feed.datasets.block_key(block), || feed.datasets.place(block));
        if held.is_some() || kept.is_empty() {
            kept.push(group);
        }
        holds.extend(held);
    }
    (kept, holds)
}
