//! Fills one batch: waits for its blocks together, decodes those that have come, and applies the policy for bad
//! samples.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use smallvec::{SmallVec, smallvec};
use spdl_core::feed::{BadSampleKind, BadSampleNote, Remedy, remedy};
use spdl_core::{
    Position,
    layout::{Header, Place, entry_flags},
    messages::BadSample,
    order::{Item, ItemKind, Located, Step},
};
use spdl_wire::slab::SlotMut;

use super::{
    Feed, FeedError,
    chunk::{BatchBuffer, Fetched, Reason, SampleTask, Tasks, Unfinished, WrongFetches, decode_chunk, locate_in},
    dataset::IndexHold,
    progress::Wait,
    scheduler::DecodeRequest,
    steps::PlannedStep,
};
use crate::fetch::FetchError;

/// A slot that holds a batch and is not published yet.
#[derive(Debug)]
pub(crate) struct FilledBatch {
    pub(crate) sequence: u64,
    pub(crate) slot: SlotMut,
    pub(crate) used_bytes: u64,
}

type Decoded = Result<(BatchBuffer, Vec<Unfinished>), FeedError>;

struct Filling {
    feed: Arc<Feed>,
    sequence: u64,
    /// Position at which the global batch begins.
    at: Position,
    fetching: FuturesUnordered<BoxFuture<'static, Result<Fetched, FeedError>>>,
    /// Blocks that are being fetched, and how many groups of samples wait for each.
    awaited: BTreeMap<u32, u32>,
    ready: Vec<Fetched>,
    empty_entries: Vec<SampleTask>,
}

/// Fills `slot` with the planned batch.
pub(crate) async fn fill(
    feed: Arc<Feed>,
    sequence: u64,
    planned: PlannedStep,
    slot: SlotMut,
) -> Result<FilledBatch, FeedError> {
    let PlannedStep { step, items, groups, holds } = planned;
    let started = Instant::now();
    let stage = feed.resources.stages.batch.clone();
    let mut filling = Filling {
        feed: feed.clone(),
        sequence,
        at: step.from,
        fetching: FuturesUnordered::new(),
        awaited: BTreeMap::new(),
        ready: Vec::new(),
        empty_entries: items_of(&items, |kind| kind == ItemKind::Invalid),
    };
    for group in groups {
        let tasks = group.entries.iter().map(|entry| task(*entry, &items[*entry as usize])).collect();
        filling.fetch(group.block, tasks);
    }
    let mut buffer = filling.run(feed.buffer(slot, items.len())).await?;
    drop(holds);
    let used_bytes = feed.layout.finish(&mut buffer.slot, feed.header(&step, items.len()), &buffer.ragged) as u64;
    feed.progress.forget_wait(sequence);
    stage.item(started.elapsed(), used_bytes);
    Ok(FilledBatch { sequence, slot: buffer.slot, used_bytes })
}

fn task(entry: u32, item: &Item) -> SampleTask {
    let flags = match item.kind {
        ItemKind::Sample => 0,
        ItemKind::Padding => entry_flags::PADDING,
        ItemKind::Invalid => entry_flags::INVALID,
    };
    SampleTask { entry, at: item.at, id: item.located.id, flags, attempts: 0, wrong: WrongFetches::default() }
}

fn items_of(items: &[Item], wanted: impl Fn(ItemKind) -> bool) -> Vec<SampleTask> {
    (0..).zip(items).filter(|(_, item)| wanted(item.kind)).map(|(entry, item)| task(entry, item)).collect()
}

impl Filling {
    /// Fetches and decodes until no sample of the batch is left.
    async fn run(&mut self, buffer: BatchBuffer) -> Result<BatchBuffer, FeedError> {
        let mut buffer = Some(buffer);
        let mut decoding: Option<BoxFuture<'static, Decoded>> = None;
        loop {
            while let Some(Some(fetched)) = self.fetching.next().now_or_never() {
                self.arrived(fetched?);
            }
            if let Some(idle) = buffer.take_if(|_| !self.ready.is_empty() || !self.empty_entries.is_empty()) {
                decoding = Some(self.decode(idle).boxed());
            }
            self.note_wait(decoding.is_some());
            tokio::select! {
                Some(fetched) = self.fetching.next() => self.arrived(fetched?),
                Some(decoded) = conditional(&mut decoding) => {
                    decoding = None;
                    let (idle, unfinished) = decoded?;
                    buffer = Some(idle);
                    self.settle(unfinished)?;
                }
                else => return Ok(buffer.expect("nothing is being decoded")),
            }
        }
    }

    fn note_wait(&self, is_decoding: bool) {
        let wait = match self.awaited.first_key_value() {
            _ if is_decoding => Wait::Decode,
            Some((block, _)) => {
                let shard = self.feed.dataset.shard_url(*block).into();
                Wait::Block { block: *block, shard, others: self.awaited.len() - 1 }
            }
            None => return,
        };
        self.feed.progress.waits_for(self.sequence, wait);
    }

    fn arrived(&mut self, fetched: Fetched) {
        let block = fetched.block;
        let groups = self.awaited.get_mut(&block).expect("what arrives is awaited");
        *groups -= 1;
        if *groups == 0 {
            self.awaited.remove(&block);
        }
        self.ready.push(fetched);
    }

    fn fetch(&mut self, block: u32, tasks: Tasks) {
        let tasks = match at_hand(&self.feed, block, tasks) {
            Ok(fetched) => return self.ready.push(fetched),
            Err(tasks) => tasks,
        };
        *self.awaited.entry(block).or_default() += 1;
        self.fetching.push(fetch_group(self.feed.clone(), block, tasks).boxed());
    }

    /// Fetches a block whose bytes were wrong again, after a random delay: the cause may be temporary.
    fn fetch_again(&mut self, block: u32, tasks: Tasks) {
        let retry = self.feed.resources.fetcher.requests().retry();
        let fetches = tasks.iter().map(|task| task.wrong.fetches).max().unwrap_or(1);
        let limit = retry.first_delay.saturating_mul(1 << fetches.min(16)).min(retry.max_delay);
        let delay = limit.mul_f64(rand::random());
        *self.awaited.entry(block).or_default() += 1;
        let feed = self.feed.clone();
        let fetched = async move {
            tokio::time::sleep(delay).await;
            fetch_group(feed, block, tasks).await
        };
        self.fetching.push(fetched.boxed());
    }

    /// Decodes the samples that are ready, once the scheduler grants a permit.
    fn decode(&mut self, mut buffer: BatchBuffer) -> impl Future<Output = Decoded> + Send + 'static {
        let chunk = std::mem::take(&mut self.ready);
        let empty_entries = std::mem::take(&mut self.empty_entries);
        let feed = self.feed.clone();
        let (progress, session) = (feed.progress.clone(), feed.session.id);
        let request = DecodeRequest { progress, sequence: self.sequence, session, at: self.at };
        let samples = chunk.iter().map(|block| block.tasks.len()).sum();
        async move {
            let permit = feed.resources.scheduler.take(request, samples).await;
            let name = feed.session.job.name.clone();
            let decoding = tokio::task::spawn_blocking(move || {
                let unfinished = decode_chunk(&feed, &mut buffer, &chunk, &empty_entries, &permit);
                drop((chunk, permit));
                (buffer, unfinished)
            });
            decoding.await.map_err(|_| FeedError::Panicked { job: name })
        }
    }

    /// Decides what happens to the samples that were not decoded.
    fn settle(&mut self, unfinished: Vec<Unfinished>) -> Result<(), FeedError> {
        let mut wrong: BTreeMap<u32, Tasks> = BTreeMap::new();
        for sample in unfinished {
            let block = sample.block;
            if let Some(task) = self.settle_one(sample)? {
                wrong.entry(block).or_default().push(task);
            }
        }
        for (block, tasks) in wrong {
            self.feed.resources.fetcher.discard(&self.feed.dataset.block_key(block));
            self.fetch_again(block, tasks);
        }
        Ok(())
    }

    /// Decides this for one sample. Returns its task if its bytes have to be fetched again.
    fn settle_one(&mut self, sample: Unfinished) -> Result<Option<SampleTask>, FeedError> {
        let Unfinished { mut task, block, key, why } = sample;
        let shard = self.feed.dataset.shard_url(block).to_owned();
        match why {
            Reason::NotIndexed { sample } => Err(FeedError::Index { shard, sample }),
            Reason::WrongBytes { field, expected, actual } => {
                if !task.wrong.note(actual) {
                    let attempts = task.wrong.fetches;
                    let object = self.feed.dataset.place(block).shard;
                    if let Some([noted, found]) = object.difference(self.feed.resources.fetcher.requests()) {
                        let checksum = |etag: String, crc32c: u32| {
                            format!("{etag} and checksum {crc32c:08x} of field `{field}` of record `{key}`")
                        };
                        let (expected, actual) = (checksum(noted, expected), checksum(found, actual));
                        return Err(FetchError::Changed { shard, expected, actual }.into());
                    }
                    return Err(FetchError::WrongBytes { shard, key, field, expected, actual, attempts }.into());
                }
                tracing::warn!(shard, key, field, "wrong bytes; fetching them again");
                Ok(Some(task))
            }
            Reason::Bad(cause) => {
                let kind = cause.kind(self.feed.has_good.load(Ordering::Relaxed));
                self.settle_bad(task, shard, key, cause.to_string(), &kind).map(|()| None)
            }
            Reason::Quarantined { deaths } => {
                let cause = format!("the worker died {deaths} times in a row while it was being decoded");
                self.settle_bad(task, shard, key, cause, &quarantined()).map(|()| None)
            }
        }
    }

    fn settle_bad(
        &mut self,
        mut task: SampleTask,
        shard: String,
        key: String,
        cause: String,
        kind: &BadSampleKind,
    ) -> Result<(), FeedError> {
        let feed = self.feed.clone();
        let job = &feed.session.job;
        let remedy = remedy(job.bad_samples, &feed.plan, task.at, task.attempts);
        let (name, sample) = (job.name.clone(), task.id);
        let bad = BadSample { job: name, sample, shard: shard.clone(), key: key.clone(), cause: cause.clone() };
        let recorded = feed.resources.bad.lock().record(job, feed.job_fingerprint, bad, kind);
        if let Some((note, bad)) = recorded.line {
            log_bad_sample(&note, &bad);
        }
        if remedy == Remedy::Fail {
            // Recorded before: the coordinator has to hear of it, so that the job fails for its other ranks, too.
            return Err(FeedError::BadSample { job: job.name.clone(), shard, key, cause });
        }
        recorded.verdict?;
        let Located { id, block, .. } = match remedy {
            Remedy::Substitute(located) => located,
            Remedy::Mask => return Ok(()),
            Remedy::Fail | Remedy::GiveUp => {
                let (job, attempts) = (job.name.clone(), task.attempts);
                return Err(FeedError::NoSubstitute { job, position: task.at, attempts, cause });
            }
        };
        task = SampleTask {
            id,
            flags: task.flags | entry_flags::SUBSTITUTED,
            attempts: task.attempts + 1,
            wrong: WrongFetches::default(),
            ..task
        };
        self.fetch(block, smallvec![task]);
        Ok(())
    }
}

async fn conditional<T>(future: &mut Option<BoxFuture<'static, T>>) -> Option<T> {
    match future {
        Some(future) => Some(future.await),
        None => None,
    }
}

/// Returns the samples with their bytes if both block and index are in memory, and the samples alone otherwise.
fn at_hand(feed: &Feed, block: u32, tasks: Tasks) -> Result<Fetched, Tasks> {
    let found = || {
        let index = feed.dataset.index_at_hand(feed.dataset.block(block).shard)?;
        tasks.iter().try_for_each(|task| ranges(feed, block, &index, task).map(|_| ())).ok()?;
        Some((index, feed.resources.fetcher.at_hand(feed.dataset.block_key(block))?))
    };
    match found() {
        Some((index, bytes)) => Ok(Fetched { block, bytes, index, tasks }),
        None => Err(tasks),
    }
}

async fn fetch_group(feed: Arc<Feed>, block: u32, tasks: Tasks) -> Result<Fetched, FeedError> {
    let index = feed.dataset.index(feed.dataset.block(block).shard).await?;
    let mut wanted = Vec::new();
    for task in &tasks {
        wanted.extend(ranges(&feed, block, &index, task)?);
    }
    let bytes = feed.resources.fetcher.fetch(&feed.dataset.place(block), wanted).await?;
    Ok(Fetched { block, bytes, index, tasks })
}

/// Returns the byte ranges of a sample's fields in its shard.
fn ranges(
    feed: &Feed,
    block: u32,
    index: &IndexHold,
    task: &SampleTask,
) -> Result<SmallVec<[Range<u64>; 4]>, FeedError> {
    let facts = feed.dataset.block(block);
    let shard = || feed.dataset.shard_url(block).to_owned();
    let sample = feed.dataset.sample_in_shard(&facts, task.id);
    let Some((record, _)) = locate_in(index, sample) else {
        return Err(FeedError::Index { shard: shard(), sample });
    };
    let fields = feed.fields.iter().filter_map(|name| record.field(name));
    let ranges: SmallVec<[Range<u64>; 4]> =
        fields.map(|field| field.offset..field.offset.saturating_add(field.bytes.into())).collect();
    match ranges.iter().find(|range| range.start < facts.offset || range.end > facts.offset + facts.bytes) {
        Some(Range { start, end }) => Err(FeedError::Span { shard: shard(), block, start: *start, end: *end }),
        None => Ok(ranges),
    }
}

impl Feed {
    fn buffer(&self, slot: SlotMut, entries: usize) -> BatchBuffer {
        let values = |place: &Place| match place {
            Place::Fixed { .. } => Vec::new(),
            Place::Ragged { .. } => vec![Bytes::new(); entries],
        };
        let ragged = self.layout.columns().iter().map(|column| values(&column.place)).collect();
        BatchBuffer { slot, ragged, entries }
    }

    fn header(&self, step: &Step, entries: usize) -> Header {
        Header {
            magic: [0; 4],
            version: 0,
            columns: 0,
            entries: u32::try_from(entries).expect("a batch fits its capacity"),
            capacity: self.layout.capacity(),
            epoch: step.from.epoch,
            offset: step.from.offset,
            next_epoch: step.next.epoch,
            next_offset: step.next.offset,
            rank: self.rank,
            world: self.session.world,
            used_bytes: 0,
            reserved: [0; 8],
        }
    }
}

/// The kind of samples that are quarantined because they ended the worker.
fn quarantined() -> BadSampleKind {
    BadSampleKind::new("the worker died while it was being decoded".to_owned(), None)
}

/// Writes the line about a distinct bad sample.
fn log_bad_sample(note: &BadSampleNote, bad: &BadSample) {
    let BadSample { job, sample, shard, key, cause } = bad;
    let sample = sample.0;
    match note {
        BadSampleNote::First => tracing::warn!(job, sample, shard, key, cause, "bad sample"),
        BadSampleNote::Question { count, question } => {
            tracing::warn!(job, samples = count, "bad samples: {question}");
        }
        BadSampleNote::Many { count } => {
            tracing::warn!(job, samples = count, shard, key, cause, "bad samples of one kind, this one the last");
        }
        BadSampleNote::Another => tracing::debug!(job, sample, shard, key, cause, "bad sample"),
    }
}
