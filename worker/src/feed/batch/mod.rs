//! One batch of a rank, from the plan to its slot. Read from top to bottom:
//!
//! 1. [`PlannedBatch::plan`] asks the order for the batch's samples, groups them by block, and starts to fetch the
//!    blocks.
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

mod decode;
mod gather;
mod held;
mod lend;
mod mix;
mod parts;
mod records;
mod settle;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
    sync::Arc,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use smallvec::{SmallVec, smallvec};
use spdl_feed::SampleDraw;
use spdl_job::layout::entry_flags;
use spdl_order::{Item, ItemKind, Located, Step};
use spdl_types::{BatchId, Position, SampleId};
use spdl_wire::{slab::SlotMut, spans};
use tokio::sync::watch;
use tracing::{Instrument, Span};

pub use self::held::HeldSamples;
pub(super) use self::{decode::shared, mix::Mixer, parts::PartReads};
use self::{
    decode::{BatchBuffer, KeptInBatch, LeftSamples, Samples, decode_samples, shared_for},
    mix::PlannedMixes,
    records::FetchedGroup,
};
use super::{
    FeedError,
    driver::{Feed, FeedWork},
    progress::Wait,
    room::{BatchRoom, RoomAnswer},
    scheduler::DecodeRequest,
    sharing::SharingMember,
};
use crate::fetch::{BlockHold, WorkingWindow, for_batch, for_batch_now};

/// A rank announces more steps until it has announced as many samples, so that none takes long to plan.
const ANNOUNCED_AT_ONCE: u64 = 1024;
/// Values of as many bytes are copied on a thread that may block.
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
type Group = SmallVec<[BatchSample; 2]>;

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
    /// After as many fetches with the same wrong bytes, the store holds no others.
    const MAX_ALIKE: u32 = 4;
    /// After as many fetches with differing wrong bytes, the store does not recover.
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
    groups: Vec<Group>,
    /// Entries past the end of the epoch, which hold no sample.
    invalid: Vec<BatchSample>,
    mixes: PlannedMixes,
    /// Keep the blocks in memory until the batch is filled.
    holds: Vec<BlockHold>,
    span: Span,
}

impl PlannedBatch {
    fn plan(feed: &Feed, step: Step) -> Self {
        let (items, mixes) = items_of(feed, &step);
        let all = (0..).zip(items.iter().chain(&mixes.partners)).map(|(entry, item)| BatchSample::new(entry, item));
        let (invalid, mut samples): (Vec<_>, Vec<_>) = all.partition(|sample| sample.flags & entry_flags::INVALID != 0);
        samples.sort_unstable_by_key(|sample| sample.id);
        let groups = samples.chunk_by(|a, b| a.block == b.block).map(Group::from).collect();
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
        let prefetch = |group: &Group| {
            let block = group[0].block;
            let member = shared(feed);
            if member.is_some_and(|member| group.iter().all(|sample| member.is_kept(sample.draw(), false))) {
                return None;
            }
            feed.resources.fetcher.prefetch(feed.dataset.block_key(block), || feed.dataset.place(block))
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

/// The batches of a rank that are planned and not being filled yet.
pub(super) struct PlannedBatches {
    is_first: bool,
    ahead: VecDeque<PlannedBatch>,
    window: WorkingWindow,
    announced: AnnouncedSteps,
    feed: Arc<Feed>,
}

impl PlannedBatches {
    pub(super) fn new(feed: Arc<Feed>) -> Self {
        let window = feed.dataset.working_window(&feed.resources.fetcher);
        Self { is_first: true, ahead: VecDeque::new(), window, announced: AnnouncedSteps::default(), feed }
    }

    /// Plans the batch of a step and starts to fetch its blocks.
    pub(super) fn prepare(&mut self, step: Step) {
        if let Some(member) = shared(&self.feed) {
            let oldest = self.ahead.front().map_or(step.from, |batch| batch.step.from);
            self.announced.advance(&self.feed, member, oldest..=step.from);
        } else {
            self.announced = AnnouncedSteps::default();
        }
        let mut batch = PlannedBatch::plan(&self.feed, step);
        if !self.feed.parts.is_on() {
            let in_use_until = |group: &Group| self.feed.plan.in_use_until(group[0].at);
            self.window.add(batch.groups.iter().map(|group| (group[0].block, in_use_until(group))));
        }
        // The first batch does not wait for whole blocks, as a trainer is waiting for it.
        if !std::mem::take(&mut self.is_first) {
            batch.prefetch(&self.feed);
        }
        self.ahead.push_back(batch);
    }

    /// Takes the oldest batch, which must be that of `step`, to be filled.
    pub(super) fn take(&mut self, step: Step) -> PlannedBatch {
        let planned = self.ahead.pop_front().expect("a step is prepared before it is filled");
        assert_eq!(planned.step, step, "steps are filled in the order in which they were prepared");
        // The blocks of the batches that are being filled have holds.
        self.window.advance(step.from);
        planned
    }
}

/// The steps whose samples a rank has announced to those that share with it.
#[derive(Debug, Default)]
struct AnnouncedSteps {
    /// Where the next step begins that is not announced.
    to: Position,
    /// Where each of them begins, and the number of its samples.
    steps: VecDeque<(Position, u64)>,
    samples: u64,
}

impl AnnouncedSteps {
    /// Announces the steps that are planned, which begin in `planned`, and steps after them.
    fn advance(&mut self, feed: &Feed, member: &SharingMember, planned: RangeInclusive<Position>) {
        let (oldest, newest) = planned.into_inner();
        while let Some((_, samples)) = self.steps.pop_front_if(|(begin, _)| *begin < oldest) {
            self.samples -= samples;
        }
        self.to = self.to.max(oldest);
        let mut announced = 0;
        while self.to <= newest || (self.samples < member.ahead() && announced < ANNOUNCED_AT_ONCE) {
            let Some(step) = feed.plan.step(self.to, &feed.session.batches()) else { return };
            let (items, PlannedMixes { partners, .. }) = items_of(feed, &step);
            let draw = |item: &Item| SampleDraw { epoch: item.at.epoch, id: item.located.id };
            let valid = items.iter().filter(|item| item.kind != ItemKind::Invalid);
            member.announce(valid.chain(&partners).map(draw));
            let samples = (items.len() + partners.len()) as u64;
            self.steps.push_back((step.from, samples));
            (self.samples, announced, self.to) = (self.samples + samples, announced + samples, step.next);
        }
    }
}

/// A slot that holds a batch and is not published yet.
#[derive(Debug)]
pub(super) struct FilledBatch {
    pub(super) slot: SlotMut,
    pub(super) room: Option<Arc<BatchRoom>>,
    pub(super) used_bytes: u64,
    pub(super) batch: BatchId,
}

/// Where a batch is put.
pub(super) struct BatchPlace {
    pub(super) slot: SlotMut,
    /// The room for ragged values; `None` if there are none.
    pub(super) room: Option<BatchRoom>,
    /// The number of the first batch that is not filled.
    pub(super) turn: watch::Receiver<u64>,
}

/// Fills a slot with the planned batch. With ragged values it returns once all batches before it are filled and the trainer can
/// have it: until then other batches can take its room.
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

/// Waits until all batches before a filled one are handed over and the trainer can have it, too, and returns true; false if it
/// has to start again.
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
                return Err(feed.resources.no_room(&feed.session.job.name, feed.rank, refusal));
            }
        }
    }
}

/// Lets a batch give its room back and wait for as much as it needs.
fn restart(feed: &Feed, room: &BatchRoom, slot: &mut SlotMut) -> Result<(), FeedError> {
    room.restart(slot).map_err(|error| feed.resources.too_large(&feed.session.job.name, feed.rank, &feed.layout, error))
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

/// A batch that is being filled.
struct Filling {
    feed: Arc<Feed>,
    sequence: u64,
    /// Position at which the global batch begins.
    at: Position,
    fetching: FuturesUnordered<BoxFuture<'static, Result<FetchedGroup, FeedError>>>,
    /// Blocks that are being fetched, and how many groups of samples wait for each.
    awaited: BTreeMap<u32, u32>,
    /// Groups whose bytes have come.
    ready: Vec<FetchedGroup>,
    /// Samples that another rank has decoded.
    kept: Vec<KeptInBatch>,
    /// Samples that another rank is decoding.
    awaiting: FuturesUnordered<BoxFuture<'static, BatchSample>>,
    room: Option<Arc<BatchRoom>>,
}

type Decoded = Result<(BatchBuffer, LeftSamples), FeedError>;

impl Filling {
    fn new(feed: Arc<Feed>, sequence: u64, at: Position, room: Option<Arc<BatchRoom>>) -> Self {
        let (fetching, awaited, ready) = (FuturesUnordered::new(), BTreeMap::new(), Vec::new());
        let (kept, awaiting) = (Vec::new(), FuturesUnordered::new());
        Self { feed, sequence, at, fetching, awaited, ready, kept, awaiting, room }
    }

    /// Fetches and decodes until no sample of the batch is left, or the batch has to start again.
    async fn run(mut self, planned: &PlannedBatch, slot: SlotMut) -> Result<BatchBuffer, FeedError> {
        planned.groups.iter().for_each(|group| self.fetch(group.clone()));
        let partners = planned.mixes.partners.len();
        let buffer =
            BatchBuffer::new(&self.feed.layout, slot, self.room.clone(), planned.entries, partners, &planned.invalid);
        let mut idle = Some(buffer);
        let mut decoding: Option<BoxFuture<'static, Decoded>> = None;
        loop {
            while let Some(Some(group)) = self.fetching.next().now_or_never() {
                self.fetched(group?);
            }
            while let Some(Some(sample)) = self.awaiting.next().now_or_never() {
                self.fetch(smallvec![sample]);
            }
            if let Some(buffer) = idle.take_if(|_| !self.ready.is_empty() || !self.kept.is_empty()) {
                decoding = Some(self.decode(buffer).boxed());
            }
            self.note_wait(decoding.is_some());
            if decoding.is_none() && self.fetching.is_empty() && self.awaiting.is_empty() {
                return Ok(idle.expect("nothing is being decoded"));
            }
            let room = self.room.clone();
            tokio::select! {
                Some(group) = self.fetching.next() => self.fetched(group?),
                Some(sample) = self.awaiting.next() => self.fetch(smallvec![sample]),
                // Samples that are being decoded are done soon.
                () = revoked(room.as_deref()), if decoding.is_none() => {
                    return Ok(idle.expect("nothing is being decoded"));
                }
                Some(decoded) = conditional(&mut decoding) => {
                    decoding = None;
                    let (buffer, left) = decoded?;
                    idle = Some(buffer);
                    left.awaited.into_iter().for_each(|sample| self.await_other(sample));
                    self.settle(left.undecoded)?;
                }
            }
        }
    }

    fn fetch(&mut self, mut group: Group) {
        if shared(&self.feed).is_some() {
            // No block is read for a sample that is kept.
            let kept = |sample: &BatchSample| shared_for(&self.feed, sample)?.kept(sample.draw());
            group.retain(|sample| match kept(sample) {
                Some(kept) => {
                    self.kept.push(KeptInBatch { sample: *sample, kept });
                    false
                }
                None => true,
            });
            if group.is_empty() {
                return;
            }
        }
        match records::in_memory(&self.feed, group) {
            Ok(fetched) => self.ready.push(fetched),
            Err(group) => {
                let block = group[0].block;
                self.await_bytes(block, for_batch(Some(self.batch()), records::fetch(self.feed.clone(), group)));
            }
        }
    }

    /// Fetches a block whose bytes were wrong again, after a random delay: the cause may be temporary.
    fn fetch_again(&mut self, group: Group) {
        let fetches = group.iter().map(|sample| sample.wrong.fetches).max().unwrap_or(1);
        let backoff = self.feed.resources.fetcher.requests().retry().backoff();
        let delay = backoff.full_jitter(fetches + 1, rand::random());
        let (feed, batch) = (self.feed.clone(), self.batch());
        self.await_bytes(group[0].block, async move {
            tokio::time::sleep(delay).await;
            for_batch(Some(batch), records::fetch(feed, group)).await
        });
    }

    /// Waits until another rank has decoded a sample.
    fn await_other(&self, sample: BatchSample) {
        let feed = self.feed.clone();
        let decoded = async move {
            let member = feed.sharing.as_ref().expect("it has begun the sample");
            let may_wait = member.wait(sample.draw()).await;
            BatchSample { may_wait, ..sample }
        };
        self.awaiting.push(decoded.boxed());
    }

    fn batch(&self) -> BatchId {
        self.feed.batch_id(self.at)
    }

    fn await_bytes(
        &mut self,
        block: u32,
        fetched: impl Future<Output = Result<FetchedGroup, FeedError>> + Send + 'static,
    ) {
        *self.awaited.entry(block).or_default() += 1;
        self.fetching.push(fetched.boxed());
    }

    fn fetched(&mut self, group: FetchedGroup) {
        let groups = self.awaited.get_mut(&group.block).expect("what arrives is awaited");
        *groups -= 1;
        if *groups == 0 {
            self.awaited.remove(&group.block);
        }
        self.ready.push(group);
    }

    fn note_wait(&self, is_decoding: bool) {
        let wait = match self.awaited.first_key_value() {
            _ if is_decoding => Wait::Decode,
            None if !self.awaiting.is_empty() => Wait::Decode,
            Some((block, _)) => {
                let shard = self.feed.dataset.shard_url(*block).into();
                Wait::Block { block: *block, shard, others: self.awaited.len() - 1 }
            }
            None => return,
        };
        self.feed.progress.waits_for(self.sequence, wait);
    }

    /// Decodes the samples that are ready, once the scheduler grants a permit.
    fn decode(&mut self, mut buffer: BatchBuffer) -> impl Future<Output = Decoded> + Send + 'static {
        let (groups, kept) = (std::mem::take(&mut self.ready), std::mem::take(&mut self.kept));
        let feed = self.feed.clone();
        let (progress, session) = (feed.progress.clone(), feed.session.id);
        let at = self.at;
        let request = DecodeRequest { progress, sequence: self.sequence, session, at };
        let samples = groups.iter().map(FetchedGroup::len).sum::<usize>() + kept.len();
        let span = spans::decode(samples);
        let entered = span.clone();
        let decoded = async move {
            let permit = feed.resources.scheduler.take(request, samples).await;
            let (job, batch) = (feed.session.job.name.clone(), feed.batch_id(at));
            let decoding = tokio::task::spawn_blocking(move || {
                let _entered = entered.entered();
                let samples = Samples { groups: &groups, kept: &kept };
                let left = decode_samples(&feed, batch, &mut buffer, samples, &permit);
                buffer.hold(groups);
                drop(permit);
                (buffer, left)
            });
            decoding.await.map_err(|_| FeedError::Panicked { job })
        };
        decoded.instrument(span)
    }
}

async fn revoked(room: Option<&BatchRoom>) {
    match room {
        Some(room) => room.revoked().await,
        None => std::future::pending().await,
    }
}

async fn conditional<T>(future: &mut Option<BoxFuture<'static, T>>) -> Option<T> {
    match future {
        Some(future) => Some(future.await),
        None => None,
    }
}
