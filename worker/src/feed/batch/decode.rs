//! From records to the slot: gets the samples that have come into their entries, from one source after the other.

use std::{cmp::Reverse, sync::atomic::Ordering};

use crossbeam_deque::{Stealer, Worker};
use parking_lot::Mutex;
use spdl_accounting::nanoseconds;
use spdl_types::Position;
use tokio::sync::Notify;

use super::{
    buffer::{BatchBuffer, SamplePlace},
    fields::GroupFields,
    gather::gather,
    lend::{BatchLender, QueuedSample, Queues},
    records::FetchedGroup,
    sample::{BatchSample, Reason, Undecoded},
    shared_videos::SharedVideos,
    threads::{Parking, SampleSource, steal},
};
use crate::feed::{
    journal::Suspicion,
    open::{Feed, FeedWork},
    scheduler::DecodePermit,
    sharing::{KeptSample, SampleAction, SharedDecode, SharingMember},
    stages::DecodingThread,
};

/// Samples of a batch that decoding threads can write to their places.
#[derive(Debug, Default)]
pub(super) struct ReadySamples {
    /// Those to decode, with their bytes.
    pub(super) groups: Vec<FetchedGroup>,
    /// Those that another rank has decoded.
    pub(super) kept: Vec<(BatchSample, KeptSample)>,
}

impl ReadySamples {
    pub(super) fn len(&self) -> usize {
        self.groups.iter().map(|group| group.samples().len()).sum::<usize>() + self.kept.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.kept.is_empty()
    }
}

/// Returns the membership through which a sample is shared; `None` also for a sample that may have ended the worker.
pub(super) fn shared_for<'f>(feed: &'f Feed, sample: &BatchSample) -> Option<&'f SharingMember> {
    let is_suspect = || feed.suspicion(sample.id) != Suspicion::None;
    feed.shared().filter(|_| !is_suspect())
}

/// Gets samples of the batch at `at` into the buffer: [`gather`] copies numbers; the decoding threads copy what is kept, then
/// decode the others one by one, the longest first, so that no thread starts a long one last, while helpers decode some of these. Returns
/// the samples that were not written, by entry. Must not run on a decoding thread, for the reason that `BatchThreads::run` gives.
pub(super) fn decode_samples(
    feed: &Feed,
    at: Position,
    buffer: &mut BatchBuffer,
    ReadySamples { groups, kept }: &ReadySamples,
    permit: &DecodePermit,
) -> Vec<Undecoded> {
    let threads = feed.threads(at);
    let mut longest_first = gather(feed, &threads, buffer, groups, permit);
    if longest_first.is_empty() && kept.is_empty() {
        return Vec::new();
    }
    let videos = SharedVideos::find(&feed.decoder, groups);
    let mut places = buffer.places(&feed.layout);
    let mut place = |entry: u32| places[entry as usize].take().expect("an entry is filled by one sample at a time");
    {
        let slow = feed.slow.lock();
        let expected_ns = |sample: &BatchSample| slow.expected_ns(sample.id, sample.bytes);
        longest_first.sort_by_cached_key(|(_, sample)| {
            (videos.before(sample.entry), Reverse(expected_ns(sample)), sample.entry)
        });
    }
    let queues = Queues { shared: Worker::new_fifo(), own: Worker::new_fifo() };
    for (group, sample) in &longest_first {
        queues.shared.push(QueuedSample { group, sample, place: place(sample.entry), has_permit: true });
    }
    let copies = Worker::new_fifo();
    kept.iter().for_each(|(sample, kept)| copies.push((sample, kept, place(sample.entry))));
    let lender = BatchLender::new(feed, threads.batch, permit);
    let copied = CopiedSamples { feed, permit, queue: copies.stealer() };
    let decoded = OwnSamples {
        feed,
        permit,
        shared: queues.shared.stealer(),
        own: queues.own.stealer(),
        videos: &videos,
        parking: if lender.is_some() { Parking::open() } else { Parking::default() },
        left: Mutex::default(),
    };
    let idle = Notify::new();
    let work = || {
        threads.work(&[&copied, &decoded]);
        feed.decoding.journal.mark(feed.decoding.thread_index(), None);
        idle.notify_one();
    };
    let pool = &feed.decoding.pool;
    debug_assert!(pool.current_thread_index().is_none(), "a decoding thread waits for decoding threads");
    pool.in_place_scope(|scope| {
        for _ in 0..pool.current_num_threads().min(longest_first.len() + kept.len()) {
            scope.spawn(|_| work());
        }
        if let Some(lender) = lender {
            lender.run(&queues, &decoded.parking, &idle, || scope.spawn(|_| work()));
        }
    });
    let mut left = decoded.left.into_inner();
    // Sorted by entry, so that the error that is reported does not depend on which sample was decoded first.
    left.sort_unstable_by_key(|undecoded| undecoded.sample.entry);
    left
}

/// Samples that another rank has decoded.
struct CopiedSamples<'q> {
    feed: &'q Feed,
    permit: &'q DecodePermit,
    queue: Stealer<(&'q BatchSample, &'q KeptSample, SamplePlace<'q>)>,
}

impl SampleSource for CopiedSamples<'_> {
    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn write_next(&self, thread: &mut DecodingThread<'_>) {
        let Some((sample, kept, mut place)) = steal(&self.queue) else { return };
        if place.is_revoked() {
            return;
        }
        take(self.feed, self.feed.sharing.as_ref().expect("it has taken the sample"), sample, kept, &mut place);
        self.feed.decoding.stages.decode.item(thread.end_item(), 0);
        self.permit.finish(1);
    }
}

/// Samples that this process decodes.
struct OwnSamples<'q> {
    feed: &'q Feed,
    permit: &'q DecodePermit,
    shared: Stealer<QueuedSample<'q>>,
    /// Samples that are not lent.
    own: Stealer<QueuedSample<'q>>,
    videos: &'q SharedVideos<'q>,
    parking: Parking,
    /// The samples that were not decoded.
    left: Mutex<Vec<Undecoded>>,
}

impl SampleSource for OwnSamples<'_> {
    fn is_empty(&self) -> bool {
        self.own.is_empty() && self.shared.is_empty()
    }

    fn write_next(&self, thread: &mut DecodingThread<'_>) {
        let Some(QueuedSample { group, sample, mut place, has_permit }) =
            steal(&self.own).or_else(|| steal(&self.shared))
        else {
            return;
        };
        // A batch that starts again decodes all again.
        if place.is_revoked() {
            return;
        }
        let feed = self.feed;
        let result = decode_or_take(feed, (group, self.videos), sample, &mut place);
        let took = thread.end_item();
        let stage = &feed.decoding.stages.decode;
        match result {
            Ok(bytes) => {
                stage.item(took, bytes);
                // What another rank has decoded was copied, and no byte was read for it.
                if bytes > 0 {
                    feed.slow.lock().note(sample.id, sample.bytes, nanoseconds(took));
                }
            }
            Err(undecoded) => {
                if !matches!(undecoded.reason, Reason::Quarantined { .. } | Reason::Awaited) {
                    stage.failure();
                }
                self.left.lock().push(*undecoded);
            }
        }
        feed.helpers.note_own_sample(feed.decoding.threads.with_pause(took));
        if has_permit {
            self.permit.finish(1);
        }
    }

    fn parking(&self) -> Option<&Parking> {
        Some(&self.parking)
    }
}

/// Copies a sample that another rank has decoded into its place.
fn take(feed: &Feed, member: &SharingMember, sample: &BatchSample, kept: &KeptSample, place: &mut SamplePlace<'_>) {
    place.take(member, sample, kept);
    feed.has_good.store(true, Ordering::Relaxed);
}

/// Decodes one sample into its place, or copies it if another rank has decoded it. Returns the number of bytes of the fields that
/// were read for it, or the sample if it was not written.
fn decode_or_take(
    feed: &Feed,
    group: (&FetchedGroup, &SharedVideos<'_>),
    sample: &BatchSample,
    place: &mut SamplePlace<'_>,
) -> Result<u64, Box<Undecoded>> {
    let Some(member) = shared_for(feed, sample) else {
        if let Some(member) = feed.shared() {
            member.skip(sample.draw());
        }
        return decode_sample(feed, group, sample, place, None);
    };
    match member.begin(sample.draw(), sample.may_wait) {
        SampleAction::Take(kept) => {
            take(feed, member, sample, &kept, place);
            Ok(0)
        }
        SampleAction::Decode(mut shared) => decode_sample(feed, group, sample, place, Some(&mut shared)),
        SampleAction::Wait => Err(Box::new(Undecoded { sample: *sample, key: String::new(), reason: Reason::Awaited })),
    }
}

/// Decodes one sample into its place, copies the parts of it that are kept already, and keeps those that other ranks
/// want. Returns the number of bytes of the fields that were read, or the sample if it was not decoded.
pub(super) fn decode_sample(
    feed: &Feed,
    (group, videos): (&FetchedGroup, &SharedVideos<'_>),
    sample: &BatchSample,
    place: &mut SamplePlace<'_>,
    mut shared: Option<&mut SharedDecode<'_>>,
) -> Result<u64, Box<Undecoded>> {
    if feed.work == FeedWork::Fetch {
        place.mask(sample);
        return Ok(sample.bytes);
    }
    let record = group.record(sample);
    let undecoded = |reason| Err(Box::new(Undecoded { sample: *sample, key: record.key.to_string(), reason }));
    let journal = &feed.decoding.journal;
    let suspicion = feed.suspicion(sample.id);
    if let Suspicion::Quarantined(deaths) = suspicion {
        place.mask(sample);
        return undecoded(Reason::Quarantined { deaths });
    }
    let (at_work, thread) = (&feed.decoding.at_work, feed.decoding.thread_index());
    let mut fields = GroupFields::new(group, record).noting_calls(at_work, thread);
    if suspicion != Suspicion::Alone {
        fields = fields.sharing(videos);
    }
    let key = sample.key();
    let mark = || {
        journal.mark(thread, Some(feed.unit(sample.id)));
        let (rank, shard) = ((feed.session.id, feed.rank), feed.datasets.shard_url(sample.block));
        at_work.begin(thread, rank, sample.at, record.key, shard);
    };
    let result = if suspicion == Suspicion::Alone {
        let (_all, decoder) = feed.decoder.alone();
        mark();
        let result = decoder.decode_record(key, &fields, &mut place.targets);
        journal.clear(feed.unit(sample.id));
        result
    } else {
        mark();
        let taken = shared.as_mut().map(|shared| shared.take(&mut place.targets));
        let is_left = |column: usize| taken.as_ref().is_none_or(|taken| !taken[column]);
        feed.decoder.decode_columns(key, &fields, &mut place.targets, is_left)
    };
    at_work.end(thread);
    let read_bytes = fields.read_bytes();
    match (fields.wrong(&feed.decoder), result) {
        (None, Ok(())) => {
            if let Some(shared) = shared {
                shared.keep(&place.targets);
            }
            place.keep(sample, group.is_held());
            feed.has_good.store(true, Ordering::Relaxed);
            Ok(read_bytes)
        }
        (None, Err(cause)) => {
            place.mask(sample);
            undecoded(Reason::Bad(cause))
        }
        (Some(wrong @ Reason::Bad(_)), _) => {
            place.mask(sample);
            undecoded(wrong)
        }
        // The decoder took a field that cannot be opened for a missing one, so its result means nothing.
        (Some(wrong), _) => undecoded(wrong),
    }
}
