//! Decodes part of a batch: samples whose bytes are in memory are decoded in parallel, straight into their places in
//! the slot.

use std::{cell::Cell, cmp::Reverse, sync::atomic::Ordering, time::Instant};

use bytes::Bytes;
use crossbeam_deque::{Steal, Worker};
use parking_lot::Mutex;
use smallvec::SmallVec;
use spdl_core::{
    Position, SampleId,
    layout::{Entry, Layout, entry_flags},
};
use spdl_shard::index::Record;
use spdl_wire::slab::SlotMut;

use super::{Feed, dataset::IndexHold, journal::Suspicion, scheduler::DecodePermit};
use crate::{
    decode::{BadSampleCause, FieldTarget, SampleKey},
    fetch::BlockBytes,
};

/// The slot that is being filled, and the values of ragged columns, which are written once the whole batch is decoded.
#[derive(Debug)]
pub(crate) struct BatchBuffer {
    pub(crate) slot: SlotMut,
    /// Values by column, then by entry; empty for fixed columns.
    pub(crate) ragged: Vec<Vec<Bytes>>,
    pub(crate) entries: usize,
}

/// A sample to decode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleTask {
    /// Index of its entry in the batch.
    pub(crate) entry: u32,
    pub(crate) at: Position,
    pub(crate) id: SampleId,
    pub(crate) flags: u32,
    /// Number of substitutes that were tried before it.
    pub(crate) attempts: u32,
    pub(crate) wrong: WrongFetches,
}

/// Counts how often a sample's bytes were fetched and did not match their checksum.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WrongFetches {
    pub(crate) fetches: u32,
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
    pub(crate) fn note(&mut self, checksum: u32) -> bool {
        self.alike = if self.fetches > 0 && self.checksum == checksum { self.alike + 1 } else { 1 };
        self.checksum = checksum;
        self.fetches += 1;
        self.alike < Self::MAX_ALIKE && self.fetches < Self::MAX
    }
}

/// Samples of one block that are in the same batch: mostly one or two, as samples are shuffled.
pub(crate) type Tasks = SmallVec<[SampleTask; 2]>;

/// Samples of one block, with their bytes.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) block: u32,
    pub(crate) bytes: BlockBytes,
    pub(crate) index: IndexHold,
    pub(crate) tasks: Tasks,
}

/// A sample that was not decoded.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) task: SampleTask,
    pub(crate) block: u32,
    pub(crate) key: String,
    pub(crate) why: Reason,
}

/// The reason why a sample was not decoded.
#[derive(Clone, Debug)]
pub(crate) enum Reason {
    /// The bytes are right and do not decode. With the policy `mask` the entry has been zeroed.
    Bad(BadSampleCause),
    /// The sample is left out because the worker died several times in a row while decoding it. With the policy `mask`
    /// the entry has been zeroed.
    Quarantined { deaths: u32 },
    /// The bytes are not those that the index describes.
    WrongBytes { field: String, expected: u32, actual: u32 },
    /// The index does not contain the sample.
    NotIndexed { sample: u64 },
}

type Places<'a> = (&'a mut Entry, SmallVec<[FieldTarget<'a>; 4]>);

/// Decodes `chunk` into the buffer, large samples first, so that no thread starts a large one last, and zeroes the
/// entries in `empty_entries`. Must not run on a decoding thread: rayon would let the blocked thread steal another
/// batch's samples and delay this batch until that one is done.
pub(crate) fn decode_chunk(
    feed: &Feed,
    buffer: &mut BatchBuffer,
    chunk: &[Fetched],
    empty_entries: &[SampleTask],
    permit: &DecodePermit,
) -> Vec<Unfinished> {
    let mut places = split(&feed.layout, buffer);
    let mut take = |entry: u32| places[entry as usize].take().expect("an entry is filled by one task at a time");
    for empty in empty_entries {
        let (entry, mut targets) = take(empty.entry);
        *entry = entry_of(empty, empty.flags);
        zero(&mut targets);
    }
    let tasks = chunk.iter().flat_map(|block| block.tasks.iter().map(move |task| (block, task)));
    let mut sized: Vec<(u64, (&Fetched, &SampleTask))> =
        tasks.map(|(block, task)| (bytes_of(feed, block, task.id), (block, task))).collect();
    sized.sort_unstable_by_key(|(bytes, (_, task))| (Reverse(*bytes), task.entry));
    let queue = Worker::new_fifo();
    sized.iter().for_each(|(_, (block, task))| queue.push((*block, *task, take(task.entry))));
    let unfinished = Mutex::new(Vec::new());
    let pool = &feed.resources.pool;
    debug_assert!(pool.current_thread_index().is_none(), "a decoding thread waits for decoding threads");
    pool.in_place_scope(|scope| {
        for _ in 0..pool.current_num_threads().min(sized.len()) {
            let (queue, unfinished) = (queue.stealer(), &unfinished);
            scope.spawn(move |_| {
                loop {
                    match queue.steal() {
                        Steal::Success((block, task, (entry, mut targets))) => {
                            let failed = decode_in_turn(feed, (block, task), entry, &mut targets, permit);
                            failed.into_iter().for_each(|sample| unfinished.lock().push(sample));
                        }
                        Steal::Retry => {}
                        Steal::Empty => break,
                    }
                }
                mark(feed, None);
            });
        }
    });
    let mut unfinished = unfinished.into_inner();
    // Sorted by entry, so that the first error of the batch is reported whichever was decoded first.
    unfinished.sort_unstable_by_key(|sample| sample.task.entry);
    unfinished
}

/// Records in the journal which sample this thread is decoding.
fn mark(feed: &Feed, sample: Option<SampleId>) {
    let thread = feed.resources.pool.current_thread_index().expect("a decoding thread");
    feed.resources.journal.mark(thread, sample.map(|sample| (feed.job_fingerprint, sample)));
}

/// Decodes one sample unless its rank is gone, then pauses to stay within the CPU budget.
fn decode_in_turn(
    feed: &Feed,
    (block, task): (&Fetched, &SampleTask),
    entry: &mut Entry,
    targets: &mut [FieldTarget<'_>],
    permit: &DecodePermit,
) -> Option<Unfinished> {
    if feed.progress.is_cancelled() {
        return None;
    }
    let started = Instant::now();
    let unfinished = decode_one(feed, block, task, entry, targets);
    let rest = feed.resources.throttle.pause_after(started.elapsed());
    if !rest.is_zero() {
        std::thread::sleep(rest);
    }
    permit.finish_one();
    unfinished
}

/// Returns the compressed bytes of a sample, a rough estimate of its decoding time.
fn bytes_of(feed: &Feed, block: &Fetched, id: SampleId) -> u64 {
    let Some((record, _)) = locate(feed, block, id) else { return 0 };
    feed.fields.iter().filter_map(|name| record.field(name)).map(|field| u64::from(field.bytes)).sum()
}

fn split<'a>(layout: &Layout, buffer: &'a mut BatchBuffer) -> Vec<Option<Places<'a>>> {
    let parts = layout.split(&mut buffer.slot, buffer.entries);
    let mut places: Vec<_> = parts.entries.iter_mut().map(|entry| Some((entry, SmallVec::new()))).collect();
    for (fixed, ragged) in parts.columns.into_iter().zip(&mut buffer.ragged) {
        let targets: Box<dyn Iterator<Item = FieldTarget<'a>>> = match fixed {
            Some(column) => Box::new(column.bytes.chunks_exact_mut(column.sample_bytes).map(FieldTarget::Fixed)),
            None => Box::new(ragged.iter_mut().map(FieldTarget::Ragged)),
        };
        for (place, target) in places.iter_mut().flatten().zip(targets) {
            place.1.push(target);
        }
    }
    places
}

fn decode_one(
    feed: &Feed,
    block: &Fetched,
    task: &SampleTask,
    entry: &mut Entry,
    targets: &mut [FieldTarget<'_>],
) -> Option<Unfinished> {
    let started = Instant::now();
    let unfinished = |key: &str, why| Some(Unfinished { task: *task, block: block.block, key: key.to_owned(), why });
    let Some((record, sample_in_record)) = locate(feed, block, task.id) else {
        return unfinished("", Reason::NotIndexed { sample: task.id.0 });
    };
    let wrong = Cell::new(None);
    let read_bytes = Cell::new(0);
    let field = |name: &str| match checked_field(&record, block, name) {
        Ok(bytes) => {
            read_bytes.set(read_bytes.get() + bytes.as_ref().map_or(0, |bytes| bytes.len() as u64));
            bytes
        }
        Err(why) => {
            wrong.set(Some(why));
            None
        }
    };
    let key = SampleKey { epoch: task.at.epoch, id: task.id, sample_in_record };
    let journal = &feed.resources.journal;
    let suspicion = journal.suspicion(feed.job_fingerprint, task.id);
    if let Suspicion::Quarantined(deaths) = suspicion {
        zero(targets);
        *entry = entry_of(task, task.flags | entry_flags::MASKED);
        return unfinished(record.key, Reason::Quarantined { deaths });
    }
    let result = if suspicion == Suspicion::Alone {
        let (_all, decoder) = feed.decoder.alone();
        mark(feed, Some(task.id));
        let result = decoder.decode_sample(key, &field, targets);
        journal.clear(feed.job_fingerprint, task.id);
        result
    } else {
        mark(feed, Some(task.id));
        feed.decoder.decode_sample(key, &field, targets)
    };
    if let Some(why) = wrong.into_inner() {
        feed.resources.stages.decode.failure(started.elapsed());
        return unfinished(record.key, why);
    }
    match result {
        Ok(()) => {
            own_ragged(targets);
            *entry = entry_of(task, task.flags);
            feed.has_good.store(true, Ordering::Relaxed);
            feed.resources.stages.decode.item(started.elapsed(), read_bytes.get());
            None
        }
        Err(cause) => {
            zero(targets);
            *entry = entry_of(task, task.flags | entry_flags::MASKED);
            feed.resources.stages.decode.failure(started.elapsed());
            unfinished(record.key, Reason::Bad(cause))
        }
    }
}

fn entry_of(task: &SampleTask, flags: u32) -> Entry {
    Entry { id: task.id.0, offset: task.at.offset, epoch: task.at.epoch, flags, reserved: 0 }
}

/// Returns the record of a sample and the sample's number in it.
pub(crate) fn locate_in<'i>(index: &'i IndexHold, sample_in_shard: u64) -> Option<(Record<'i>, u32)> {
    let index = index.index();
    let sample = u32::try_from(sample_in_shard).ok().filter(|sample| *sample < index.sample_count())?;
    let (record, sample_in_record) = index.locate(sample);
    Some((index.record(record), sample_in_record))
}

fn locate<'b>(feed: &Feed, block: &'b Fetched, id: SampleId) -> Option<(Record<'b>, u32)> {
    let facts = feed.dataset.block(block.block);
    locate_in(&block.index, feed.dataset.sample_in_shard(&facts, id))
}

/// Returns the bytes of a field if they match the checksum in the index.
fn checked_field(record: &Record<'_>, block: &Fetched, name: &str) -> Result<Option<Bytes>, Reason> {
    let Some(field) = record.field(name) else { return Ok(None) };
    let end = field.offset.saturating_add(field.bytes.into());
    let Some(bytes) = block.bytes.slice(field.offset..end) else {
        return Err(Reason::NotIndexed { sample: u64::from(record.first_sample) });
    };
    match crc32c::crc32c(&bytes) {
        actual if actual == field.crc32c => Ok(Some(bytes)),
        actual => Err(Reason::WrongBytes { field: name.to_owned(), expected: field.crc32c, actual }),
    }
}

/// Copies ragged values out of their blocks: a slice would keep its whole block in memory, outside the budget.
fn own_ragged(targets: &mut [FieldTarget<'_>]) {
    for target in targets {
        if let FieldTarget::Ragged(value) = target {
            **value = Bytes::copy_from_slice(value);
        }
    }
}

fn zero(targets: &mut [FieldTarget<'_>]) {
    for target in targets {
        match target {
            FieldTarget::Fixed(bytes) => bytes.fill(0),
            FieldTarget::Ragged(value) => **value = Bytes::new(),
        }
    }
}
