//! One batch of a rank, from the plan to its slot. Read from top to bottom:
//!
//! 1. [`PlannedBatch::plan`] asks the order for the batch's samples, groups them by block, and starts to fetch the
//!    blocks. [`ahead`] keeps the batches that are planned until they are filled.
//! 2. [`records`] finds the records of a group in the shard's index and waits for their bytes; [`mod@parts`] reads of large scalable
//!    pictures what their crops need, if the worker is to.
//! 3. [`Filling::decode`] waits until the scheduler grants a permit for the groups that have come.
//! 4. [`decode`] decodes their samples in parallel, each straight into its entry of the slot, while [`lend`] has helpers decode
//!    what would wait for long; where all columns are numbers, [`mod@gather`] copies them column by column.
//! 5. [`settle`] decides about the samples that were not decoded: other bytes, a substitute, or the end of the
//!    job. Those to be decoded go back to 2.
//! 6. [`mod@mix`] mixes the samples in pairs, if the job has a mix.
//! 7. [`BatchBuffer::finish`] copies the values of ragged columns to their places, whose lengths are known by then, and writes
//!    the header. The driver publishes the slot.
//!
//! Values of ragged columns take [room](super::room) as they are decoded. Where there is none, the rest of the batch is
//! decoded only to learn how much it needs; then the batch gives back all it has, waits for as much, and begins again at 2.

mod ahead;
mod buffer;
mod decode;
mod filling;
mod gather;
mod held;
mod lend;
mod mix;
mod parts;
mod records;
mod settle;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use smallvec::SmallVec;
use spdl_feed::SampleDraw;
use spdl_job::layout::entry_flags;
use spdl_order::{Item, ItemKind, Located, Step};
use spdl_types::{BatchId, Position, SampleId};
use spdl_wire::{slab::SlotMut, spans};
use tokio::sync::watch;
use tracing::Span;

pub use self::held::HeldSamples;
pub(super) use self::{ahead::PlannedBatches, mix::Mixer, parts::PartReads};
use self::{buffer::BatchBuffer, filling::Filling, mix::PlannedMixes};
use super::{
    FeedError,
    open::{Feed, FeedWork},
    progress::Wait,
    room::{BatchRoom, RoomAnswer},
};
use crate::fetch::{BlockHold, for_batch_now};

/// Values of at least this many bytes in all are copied on a thread that may block.
const BLOCKING_BYTES: u64 = 256 << 10;

/// A sample of a batch, from the plan to its entry in the slot.
#[derive(Clone, Copy, Debug)]
struct BatchSample {
    /// Index of its entry in the batch.
    entry: u32,
    at: Position,
    id: SampleId,
    /// Number of the block that holds it.
    block: u32,
    flags: u32,
    /// Number of substitutes that were tried before it.
    attempts: u32,
    /// Whether it waits while another rank decodes it.
    may_wait: bool,
    wrong: WrongFetches,
}

/// Samples of a batch that lie in one block, at least one: mostly one or two, as samples are shuffled.
type SampleGroup = SmallVec<[BatchSample; 2]>;

impl BatchSample {
    fn new(entry: u32, item: &Item) -> Self {
        let flags = match item.kind {
            ItemKind::Sample => 0,
            ItemKind::Padding => entry_flags::PADDING,
            ItemKind::Invalid => entry_flags::INVALID,
        };
        let Located { id, block, .. } = item.located;
        Self { entry, at: item.at, id, block, flags, attempts: 0, may_wait: true, wrong: WrongFetches::default() }
    }

    /// Returns what its random operations are keyed by, beside the seed.
    const fn draw(&self) -> SampleDraw {
        SampleDraw { epoch: self.at.epoch, id: self.id }
    }

    /// Returns the substitute that takes this sample's entry.
    fn substitute(self, Located { id, block, .. }: Located) -> Self {
        let flags = self.flags | entry_flags::SUBSTITUTED;
        Self { id, block, flags, attempts: self.attempts + 1, wrong: WrongFetches::default(), ..self }
    }
}

/// Counts how often a sample's bytes were fetched and did not match their checksum.
#[derive(Clone, Copy, Debug, Default)]
struct WrongFetches {
    fetches: u32,
    /// Number of latest fetches in a row that had the same wrong checksum.
    alike: u32,
    checksum: u32,
}

impl WrongFetches {
    /// After this many fetches with the same wrong bytes, the store is taken to hold no others.
    const MAX_ALIKE: u32 = 4;
    /// After this many fetches with differing wrong bytes, the store is taken not to recover.
    const MAX: u32 = 16;

    /// Counts one more fetch with wrong bytes. Returns `false` if the bytes are not worth fetching again.
    fn note(&mut self, checksum: u32) -> bool {
        self.alike = if self.fetches > 0 && self.checksum == checksum { self.alike + 1 } else { 1 };
        self.checksum = checksum;
        self.fetches += 1;
        self.alike < Self::MAX_ALIKE && self.fetches < Self::MAX
    }
}

/// A batch whose samples are known.
pub(super) struct PlannedBatch {
    step: Step,
    entries: usize,
    groups: Vec<SampleGroup>,
    /// Entries past the end of the epoch, which hold no sample.
    invalid: Vec<BatchSample>,
    mixes: PlannedMixes,
    /// Keeps the blocks in memory until the batch is filled.
    holds: Vec<BlockHold>,
    span: Span,
}

impl PlannedBatch {
    fn plan(feed: &Feed, step: Step) -> Self {
        let (items, mixes) = items_of(feed, &step);
        let all = (0..).zip(items.iter().chain(&mixes.partners)).map(|(entry, item)| BatchSample::new(entry, item));
        let (invalid, mut samples): (Vec<_>, Vec<_>) = all.partition(|sample| sample.flags & entry_flags::INVALID != 0);
        samples.sort_unstable_by_key(|sample| sample.id);
        let groups = samples.chunk_by(|a, b| a.block == b.block).map(SampleGroup::from).collect();
        let span = spans::batch(step.from);
        spdl_process::describe_batch(&span, feed.session.id, &feed.session.job.name, feed.rank);
        Self { step, entries: items.len(), groups, invalid, mixes, holds: Vec::new(), span }
    }

    /// Returns the span of everything that is done for the batch.
    pub(super) const fn span(&self) -> &Span {
        &self.span
    }

    /// Starts to fetch the blocks, as far as there is room for them.
    fn prefetch(&mut self, feed: &Feed) {
        if feed.parts.is_on() {
            return;
        }
        let prefetch = |group: &SampleGroup| {
            let block = group[0].block;
            let member = feed.shared();
            if member.is_some_and(|member| group.iter().all(|sample| member.is_kept(sample.draw(), false))) {
                return None;
            }
            feed.fetcher.prefetch(feed.dataset.block_key(block), || feed.dataset.place(block))
        };
        let batch = feed.batch_id(self.step.from);
        self.span.in_scope(|| for_batch_now(batch, || self.holds.extend(self.groups.iter().filter_map(prefetch))));
    }
}

/// Returns the items of a rank's batch, and what is mixed in it.
fn items_of(feed: &Feed, step: &Step) -> (Vec<Item>, PlannedMixes) {
    let mut items = Vec::new();
    feed.plan.rank_items(step, feed.rank, feed.session.world, &mut items);
    let mixes = feed.mixer.as_ref().map(|mixer| mixer.plan(feed, &items)).unwrap_or_default();
    (items, mixes)
}

/// A slot that holds a batch and is not published yet.
#[derive(Debug)]
pub(super) struct FilledBatch {
    pub(super) slot: SlotMut,
    pub(super) room: Option<Arc<BatchRoom>>,
    pub(super) used_bytes: u64,
    pub(super) batch: BatchId,
}

/// The memory that a batch is put in, and its turn to be handed over.
pub(super) struct BatchPlace {
    pub(super) slot: SlotMut,
    /// The room for ragged values; `None` if there are none.
    pub(super) room: Option<BatchRoom>,
    /// Receives the number of the first batch that is not filled.
    pub(super) turn: watch::Receiver<u64>,
}

/// Fills a slot with the planned batch. A batch with ragged values is returned only once all batches before it are
/// filled and the trainer can have it: until then other batches can take its room.
pub(super) async fn fill(
    feed: Arc<Feed>,
    sequence: u64,
    mut planned: PlannedBatch,
    BatchPlace { mut slot, room, mut turn }: BatchPlace,
) -> Result<FilledBatch, FeedError> {
    let room = room.map(Arc::new);
    loop {
        if let Some(room) = &room {
            await_room(&feed, sequence, room, &mut slot).await?;
        }
        let filling = Filling::new(feed.clone(), sequence, planned.step.from, room.clone());
        let buffer = filling.run(&planned, slot).await?;
        planned.holds.clear();
        let Some(room) = &room else {
            return finish(&feed, sequence, &planned, buffer).await;
        };
        if room.is_short() || room.is_revoked() {
            slot = buffer.into_slot();
        } else {
            let mut filled = finish(&feed, sequence, &planned, buffer).await?;
            room.settle(&mut filled.slot, usize::try_from(filled.used_bytes).expect("a slot lies in memory"));
            if may_hand_over(&feed, sequence, room, &mut turn).await {
                return Ok(FilledBatch { room: Some(room.clone()), ..filled });
            }
            slot = filled.slot;
        }
        restart(&feed, room, &mut slot)?;
    }
}

/// Waits until all batches before a filled one are handed over and the trainer can have this one, too. Returns true
/// then, and false if the batch has to start again.
async fn may_hand_over(feed: &Feed, sequence: u64, room: &BatchRoom, turn: &mut watch::Receiver<u64>) -> bool {
    tokio::select! {
        biased;
        () = comes(turn, sequence) => {}
        () = room.revoked() => return false,
    }
    if !room.is_released() {
        feed.progress.waits_for(sequence, Wait::Trainer);
    }
    let is_released = room.released().await;
    feed.progress.forget_wait(sequence);
    is_released
}

/// Waits until all batches before this one are filled.
async fn comes(turn: &mut watch::Receiver<u64>, sequence: u64) {
    // The driver, which sends it, lives as long as the batches that it fills.
    let _ = turn.wait_for(|next| *next >= sequence).await;
}

/// Waits until a batch may take room for its values.
async fn await_room(feed: &Feed, sequence: u64, room: &BatchRoom, slot: &mut SlotMut) -> Result<(), FeedError> {
    loop {
        if let Some(waits) = room.waits() {
            feed.progress.waits_for(sequence, Wait::Memory(waits));
        }
        match room.answer().await {
            RoomAnswer::Granted => return Ok(()),
            RoomAnswer::Revoked => restart(feed, room, slot)?,
            RoomAnswer::Refused(refusal) => {
                return Err(feed.memory.no_room(&feed.session.job.name, feed.rank, refusal));
            }
        }
    }
}

/// Lets a batch give its room back and wait for as much as it needs.
fn restart(feed: &Feed, room: &BatchRoom, slot: &mut SlotMut) -> Result<(), FeedError> {
    room.restart(slot).map_err(|error| feed.memory.too_large(&feed.session.job.name, feed.rank, &feed.layout, error))
}

/// Mixes the samples of a batch that is decoded, and completes its slot.
async fn finish(
    feed: &Arc<Feed>,
    sequence: u64,
    planned: &PlannedBatch,
    mut buffer: BatchBuffer,
) -> Result<FilledBatch, FeedError> {
    if feed.work == FeedWork::All && !planned.mixes.pairs.is_empty() {
        buffer = mix(feed, planned, buffer).await?;
    }
    let filled = if buffer.value_bytes() < BLOCKING_BYTES {
        buffer.finish(feed, &planned.step)
    } else {
        let (feed, job, step) = (feed.clone(), feed.session.job.name.clone(), planned.step);
        let finished = tokio::task::spawn_blocking(move || buffer.finish(&feed, &step));
        finished.await.map_err(|_| FeedError::Panicked { job })?
    };
    feed.progress.forget_wait(sequence);
    Ok(filled)
}

/// Mixes the samples of a batch that is decoded.
async fn mix(feed: &Arc<Feed>, planned: &PlannedBatch, mut buffer: BatchBuffer) -> Result<BatchBuffer, FeedError> {
    let (feed, job, span) = (feed.clone(), feed.session.job.name.clone(), Span::current());
    let (at, pairs) = (planned.step.from, planned.mixes.pairs.clone());
    let mixed = tokio::task::spawn_blocking(move || {
        let _entered = span.entered();
        buffer.mix(&feed, feed.batch_id(at), &pairs);
        buffer
    });
    mixed.await.map_err(|_| FeedError::Panicked { job })
}
