//! From records to the slot: decodes samples in parallel, each straight into its entry.

use std::{
    cell::Cell,
    cmp::Reverse,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use crossbeam_deque::{Steal, Stealer, Worker};
use parking_lot::Mutex;
use spdl_shard::format::{FieldValue, Record};
use spdl_types::{BatchId, DType, SampleId};
use tokio::sync::Notify;
use tracing::Span;

use super::{
    BatchSample,
    buffer::{BatchBuffer, SamplePlace},
    gather::gather,
    lend::{BatchLender, Parking, Queues},
    records::{FetchedGroup, FoundSample},
};
use crate::{
    decode::{BadSampleCause, FieldLookup, SampleKey},
    feed::{
        journal::Suspicion,
        open::{Feed, FeedWork},
        room::BatchRoom,
        scheduler::DecodePermit,
        sharing::{KeptSample, SampleAction, SharedDecode, SharingMember},
    },
};

/// A sample that was not decoded.
#[derive(Debug)]
pub(super) struct Undecoded {
    pub(super) sample: BatchSample,
    /// Key of its record.
    pub(super) key: String,
    pub(super) reason: Reason,
}

/// The reason why a sample was not decoded.
#[derive(Clone, Debug)]
pub(super) enum Reason {
    /// The bytes are right and do not decode. The entry is zeroed, which is all that the policy `mask` needs.
    Bad(BadSampleCause),
    /// The sample is left out because the worker died several times in a row while decoding it. The entry is zeroed.
    Quarantined { deaths: u32 },
    /// The bytes are not those that the index describes.
    WrongBytes { field: String, expected: u32, actual: u32 },
    /// The bytes match the index, but the dataset's format forbids them there.
    Malformed { field: String, problem: String },
    /// The bytes do not decode to the record; `checksum` is the checksum of these bytes.
    Damaged { field: String, problem: Arc<str>, checksum: u32 },
}

/// Samples of a batch that another rank has decoded.
#[derive(Debug)]
pub(super) struct KeptInBatch {
    pub(super) sample: BatchSample,
    pub(super) kept: KeptSample,
}

/// Samples of a batch that can be written to their places.
#[derive(Clone, Copy)]
pub(super) struct Samples<'s> {
    /// Those to decode, with their bytes.
    pub(super) groups: &'s [FetchedGroup],
    /// Those to copy.
    pub(super) kept: &'s [KeptInBatch],
}

/// The samples that were not written.
#[derive(Debug, Default)]
pub(super) struct LeftSamples {
    /// Those that were not decoded, by entry.
    pub(super) undecoded: Vec<Undecoded>,
    /// Those that another rank is decoding.
    pub(super) awaited: Vec<BatchSample>,
}

/// Returns the membership through which a sample is shared; `None` also for a sample that may have ended the worker.
pub(super) fn shared_for<'f>(feed: &'f Feed, sample: &BatchSample) -> Option<&'f SharingMember> {
    let is_suspect = || feed.suspicion(sample.id) != Suspicion::None;
    feed.shared().filter(|_| !is_suspect())
}

/// Decodes some samples of `batch` into the buffer. [`gather`] copies what it can; the others are decoded one by one,
/// large ones first, so that no thread starts a large one last. Must not run on a decoding thread: rayon would let the
/// blocked thread steal another batch's samples and delay this batch until that one is done.
pub(super) fn decode_samples(
    feed: &Feed,
    batch: BatchId,
    buffer: &mut BatchBuffer,
    Samples { groups, kept }: Samples<'_>,
    permit: &DecodePermit,
) -> LeftSamples {
    let mut largest_first = gather(feed, batch, buffer, groups, permit);
    if largest_first.is_empty() && kept.is_empty() {
        return LeftSamples::default();
    }
    let mut places = buffer.places(&feed.layout);
    let mut place = |entry: u32| places[entry as usize].take().expect("an entry is filled by one sample at a time");
    largest_first.sort_unstable_by_key(|(_, found)| (Reverse(found.bytes), found.sample.entry));
    let queues = Queues { shared: Worker::new_fifo(), own: Worker::new_fifo() };
    for (group, found) in &largest_first {
        queues.shared.push(QueuedSample { group, found, place: place(found.sample.entry), has_permit: true });
    }
    let copies = Worker::new_fifo();
    kept.iter().for_each(|kept| copies.push((kept, place(kept.sample.entry))));
    let pool = &feed.decoding.pool;
    debug_assert!(pool.current_thread_index().is_none(), "a decoding thread waits for decoding threads");
    let (shared, own) = (queues.shared.stealer(), queues.own.stealer());
    let (left, idle, span) = (Mutex::new(LeftSamples::default()), Notify::new(), Span::current());
    let copies = copies.stealer();
    let lender = BatchLender::new(feed, batch, permit);
    let parking = if lender.is_some() { Parking::open() } else { Parking::default() };
    let threads = OwnThreads {
        feed,
        batch,
        permit,
        copies,
        shared,
        own,
        left: &left,
        idle: &idle,
        parking: &parking,
        span: &span,
    };
    pool.in_place_scope(|scope| {
        for _ in 0..pool.current_num_threads().min(largest_first.len() + kept.len()) {
            scope.spawn(|_| threads.decode());
        }
        if let Some(lender) = lender {
            lender.run(&queues, &parking, &idle, || scope.spawn(|_| threads.decode()));
        }
    });
    let mut left = left.into_inner();
    // Sorted by entry, so that the error that is reported does not depend on which sample was decoded first.
    left.undecoded.sort_unstable_by_key(|undecoded| undecoded.sample.entry);
    left
}

/// A sample that is to be decoded, and where its columns go.
pub(super) struct QueuedSample<'q> {
    pub(super) group: &'q FetchedGroup,
    pub(super) found: &'q FoundSample,
    pub(super) place: SamplePlace<'q>,
    /// Whether the permit still counts it.
    pub(super) has_permit: bool,
}

/// The part of a batch's decoding that this process's own threads do, shared by them.
struct OwnThreads<'t, 'q> {
    feed: &'t Feed,
    batch: BatchId,
    permit: &'t DecodePermit,
    /// Samples that are copied.
    copies: Stealer<(&'q KeptInBatch, SamplePlace<'q>)>,
    shared: Stealer<QueuedSample<'q>>,
    /// Samples that are not lent.
    own: Stealer<QueuedSample<'q>>,
    left: &'t Mutex<LeftSamples>,
    idle: &'t Notify,
    parking: &'t Parking,
    span: &'t Span,
}

impl OwnThreads<'_, '_> {
    /// Decodes samples on the calling thread until none is left.
    fn decode(&self) {
        let Self { feed, batch, permit, copies, shared, own, left, idle, parking, span } = self;
        let _entered = span.enter();
        let mut thread = feed.decoding.threads.begin(feed.decoding.thread_index(), *batch);
        while let Some((KeptInBatch { sample, kept }, mut place)) = steal(copies) {
            if feed.progress.is_cancelled() || place.room.is_some_and(BatchRoom::is_revoked) {
                continue;
            }
            let member = feed.sharing.as_ref().expect("it has taken the sample");
            thread.pause_if_due();
            place.take(feed, member, sample, kept);
            feed.decoding.stages.decode.item(thread.end_item(), 0);
            permit.finish(1);
        }
        while !own.is_empty() || !shared.is_empty() {
            if !feed.progress.is_cancelled()
                && let Some(pause) = thread.due()
            {
                // During the pause, helpers decode these samples, and the thread may decode those of other batches.
                match parking.enter(thread, Instant::now() + pause) {
                    Ok(()) => break,
                    Err(stays) => thread = stays,
                }
                thread.pause_if_due();
            }
            let sample = steal(own).or_else(|| steal(shared));
            let Some(QueuedSample { group, found, mut place, has_permit }) = sample else { break };
            // The slot of a rank that is gone is never published, and a batch that starts again decodes all again.
            if feed.progress.is_cancelled() || place.room.is_some_and(BatchRoom::is_revoked) {
                continue;
            }
            let outcome = decode_or_take(feed, group, found, &mut place);
            let took = thread.end_item();
            let stage = &feed.decoding.stages.decode;
            match outcome {
                SampleOutcome::Written(bytes) => stage.item(took, bytes),
                SampleOutcome::Awaited => left.lock().awaited.push(found.sample),
                SampleOutcome::Undecoded(sample) => {
                    if !matches!(sample.reason, Reason::Quarantined { .. }) {
                        stage.failure();
                    }
                    left.lock().undecoded.push(*sample);
                }
            }
            feed.helpers.note_own_sample(feed.decoding.threads.with_pause(took));
            if has_permit {
                permit.finish(1);
            }
        }
        mark(feed, None);
        idle.notify_one();
    }
}

pub(super) fn steal<T>(queue: &Stealer<T>) -> Option<T> {
    loop {
        match queue.steal() {
            Steal::Success(next) => return Some(next),
            Steal::Retry => {}
            Steal::Empty => return None,
        }
    }
}

/// Records in the journal which sample this thread is decoding.
fn mark(feed: &Feed, sample: Option<SampleId>) {
    feed.decoding.journal.mark(feed.decoding.thread_index(), sample.map(|sample| feed.unit(sample)));
}

/// The result of decoding one sample.
enum SampleOutcome {
    /// The sample is in its place; carries the number of bytes of the fields that were read for it.
    Written(u64),
    Undecoded(Box<Undecoded>),
    /// Another rank is decoding it.
    Awaited,
}

/// Decodes one sample into its place, or copies it if another rank has decoded it.
fn decode_or_take(
    feed: &Feed,
    group: &FetchedGroup,
    found: &FoundSample,
    place: &mut SamplePlace<'_>,
) -> SampleOutcome {
    let sample = &found.sample;
    let decode = |place: &mut SamplePlace<'_>, shared| match decode_sample(feed, group, found, place, shared) {
        Ok(bytes) => SampleOutcome::Written(bytes),
        Err(undecoded) => SampleOutcome::Undecoded(undecoded),
    };
    let Some(member) = shared_for(feed, sample) else {
        if let Some(member) = feed.shared() {
            member.skip(sample.draw());
        }
        return decode(place, None);
    };
    match member.begin(sample.draw(), sample.may_wait) {
        SampleAction::Take(kept) => {
            place.take(feed, member, sample, &kept);
            SampleOutcome::Written(0)
        }
        SampleAction::Decode(mut shared) => decode(place, Some(&mut shared)),
        SampleAction::Wait => SampleOutcome::Awaited,
    }
}

/// Decodes one sample into its place, copies the parts of it that are kept already, and keeps those that other ranks
/// want. Returns the number of bytes of the fields that were read, or the sample if it was not decoded.
fn decode_sample(
    feed: &Feed,
    group: &FetchedGroup,
    found: &FoundSample,
    place: &mut SamplePlace<'_>,
    mut shared: Option<&mut SharedDecode<'_>>,
) -> Result<u64, Box<Undecoded>> {
    let sample = &found.sample;
    if feed.work == FeedWork::Fetch {
        place.mask(sample);
        return Ok(found.bytes);
    }
    let record = group.record(found);
    let undecoded = |reason| Err(Box::new(Undecoded { sample: *sample, key: record.key.to_string(), reason }));
    let journal = &feed.decoding.journal;
    let suspicion = feed.suspicion(sample.id);
    if let Suspicion::Quarantined(deaths) = suspicion {
        place.mask(sample);
        return undecoded(Reason::Quarantined { deaths });
    }
    let fields = GroupFields { group, record, wrong: Cell::new(None), read_bytes: Cell::new(0) };
    let key = SampleKey { epoch: sample.at.epoch, id: sample.id, sample_in_record: found.sample_in_record };
    let result = if suspicion == Suspicion::Alone {
        let (_all, decoder) = feed.decoder.alone();
        mark(feed, Some(sample.id));
        let result = decoder.decode_record(key, &fields, &mut place.targets);
        journal.clear(feed.unit(sample.id));
        result
    } else {
        mark(feed, Some(sample.id));
        let taken = shared.as_mut().map(|shared| shared.take(&mut place.targets));
        let is_left = |column: usize| taken.as_ref().is_none_or(|taken| !taken[column]);
        feed.decoder.decode_columns(key, &fields, &mut place.targets, is_left)
    };
    match (fields.wrong.into_inner(), result) {
        (None, Ok(())) => {
            if let Some(shared) = shared {
                shared.keep(&place.targets);
            }
            place.keep(sample, group.is_held());
            feed.has_good.store(true, Ordering::Relaxed);
            Ok(fields.read_bytes.get())
        }
        (None, Err(cause)) => {
            place.mask(sample);
            undecoded(Reason::Bad(cause))
        }
        (Some(Reason::Malformed { field, problem }), _) => {
            place.mask(sample);
            undecoded(Reason::Bad(feed.decoder.malformed(&field, &problem)))
        }
        // The decoder took a field that cannot be opened for a missing one, so its result means nothing.
        (Some(wrong), _) => undecoded(wrong),
    }
}

/// The fields of a record of a group, as a decoder asks for them.
struct GroupFields<'g> {
    group: &'g FetchedGroup,
    record: Record<'g>,
    /// The reason why a field cannot be opened; of several such fields, that of the last.
    wrong: Cell<Option<Reason>>,
    read_bytes: Cell<u64>,
}

impl GroupFields<'_> {
    fn count(&self, bytes: usize) {
        self.read_bytes.set(self.read_bytes.get() + bytes as u64);
    }
}

impl FieldLookup for GroupFields<'_> {
    fn value(&self, name: &str) -> Option<FieldValue> {
        let value = self.group.field(&self.record, name).unwrap_or_else(|reason| {
            self.wrong.set(Some(reason));
            None
        })?;
        self.count(value.size());
        Some(value)
    }

    fn names(&self) -> Vec<String> {
        self.record.fields().map(|field| field.name.to_owned()).collect()
    }

    fn number(&self, column: usize) -> Option<(DType, &[u8])> {
        let number = self.group.number(&self.record, column)?;
        self.count(number.1.len());
        Some(number)
    }
}
