//! Lends samples of a batch to helpers while this process's own threads decode from the same queue.
//!
//! A helper is asked for a chunk only while this process's own threads would need longer for all queued samples than
//! the helper for the chunk. Samples that a helper does not decode go back to this process's threads, and are not lent
//! again.

use std::{sync::atomic::Ordering, time::Instant};

use bytes::Bytes;
use crossbeam_deque::Worker;
use futures::{StreamExt, stream::FuturesUnordered};
use spdl_control::help::{DecodeRequest, MAX_BYTES, StoredField, StoredSample, StoredValue};
use spdl_shard::format::{Array, Content, FieldValue};
use spdl_types::BatchId;
use tokio::{runtime::Handle, sync::Notify};

use super::{
    buffer::SamplePlace,
    records::FetchedGroup,
    sample::BatchSample,
    threads::{ParkedThread, Parking},
};
use crate::{
    decode::{FieldTarget, SampleKey, is_compressed},
    feed::{
        journal::Suspicion,
        open::{Feed, FeedWork},
        room::SampleReservation,
        scheduler::DecodePermit,
    },
    help::{AskHelper, DecodedSamples, HelpAnswer, HelpTurn, LentJob, Queue},
};

/// A chunk gets no more samples once its fields or its columns have this many bytes.
const CHUNK_BYTES: u64 = 4 << 20;
/// A sample is lent only if neither its fields nor its columns have more bytes than this.
const MAX_SAMPLE_BYTES: u64 = MAX_BYTES / 4;

/// The queues of a batch that is being decoded.
pub(super) struct Queues<'q> {
    /// Samples that any thread or helper may decode.
    pub(super) shared: Worker<QueuedSample<'q>>,
    /// Samples for this process's threads alone.
    pub(super) own: Worker<QueuedSample<'q>>,
}

/// A sample that is to be decoded, and where its columns go.
pub(super) struct QueuedSample<'q> {
    pub(super) group: &'q FetchedGroup,
    pub(super) sample: &'q BatchSample,
    pub(super) place: SamplePlace<'q>,
    /// Whether the permit still counts it.
    pub(super) has_permit: bool,
}

/// Samples that one request to a helper contains, and where their columns go.
struct LentChunk<'q> {
    samples: Vec<QueuedSample<'q>>,
    stored: Vec<StoredSample>,
    bytes: Vec<Bytes>,
    /// Memory for its fields and columns. The values of ragged columns are taken to be as long as the fields, but for pictures.
    held_bytes: u64,
}

/// Lends the samples of one batch to helpers.
pub(super) struct BatchLender<'l> {
    feed: &'l Feed,
    job: &'l LentJob,
    links: &'l dyn AskHelper,
    batch: BatchId,
    permit: &'l DecodePermit,
}

impl<'l> BatchLender<'l> {
    /// Returns the lender of a batch; `None` if the batch is not lent.
    pub(super) fn new(feed: &'l Feed, batch: BatchId, permit: &'l DecodePermit) -> Option<Self> {
        let (job, links) = feed.lent.as_ref().zip(feed.helpers.links())?;
        (feed.work == FeedWork::All).then_some(Self { feed, job, links, batch, permit })
    }

    /// Lends samples until none is left to lend and every helper has answered. `more` starts another thread of this
    /// process; a thread that has left notifies `idle`. Blocks the calling thread, which may not be one of the
    /// runtime's own.
    pub(super) fn run(&self, queues: &Queues<'_>, parking: &Parking, idle: &Notify, more: impl Fn()) {
        Handle::current().block_on(self.lend(queues, parking, idle, &more));
        // This process's threads decode the rest.
        self.call_back(parking.close(), queues, &more);
    }

    /// Lets threads that were parked go on, if there is something for them to do.
    fn call_back(&self, parked: Vec<ParkedThread>, queues: &Queues<'_>, more: &impl Fn()) {
        for thread in parked {
            self.feed.decoding.threads.unpark(thread.number);
            if !queues.own.is_empty() || !queues.shared.is_empty() {
                more();
            }
        }
    }

    async fn lend(&self, queues: &Queues<'_>, parking: &Parking, idle: &Notify, more: &impl Fn()) {
        let Self { feed, job, .. } = self;
        let helpers = &feed.helpers;
        let threads = feed.decoding.pool.current_num_threads();
        let mut lent = FuturesUnordered::new();
        loop {
            let freed = helpers.freed();
            let kept = queues.own.len();
            let queue = || {
                let of_batch = queues.shared.len();
                Queue { of_batch, of_all: of_batch.max(feed.decoding.scheduler.samples()), threads }
            };
            while !queues.shared.is_empty()
                && !self.feed.progress.is_cancelled()
                && let Some(turn) = helpers.take_turn(job.fingerprint, queue(), Instant::now())
            {
                let chunk = self.take_chunk(turn.samples, queues);
                match feed.memory.slots.reserve_help(chunk.held_bytes) {
                    Some(_) if chunk.samples.is_empty() => {}
                    Some(room) => lent.push(self.ask(turn, chunk, room)),
                    None => chunk.samples.into_iter().for_each(|sample| queues.own.push(sample)),
                }
            }
            if queues.own.len() > kept {
                more();
            }
            if (lent.is_empty() && queues.shared.is_empty()) || self.feed.progress.is_cancelled() {
                return;
            }
            self.call_back(parking.leave(Instant::now()), queues, more);
            let aside_until = helpers.aside_until(Instant::now()).filter(|_| !queues.shared.is_empty());
            let woken = aside_until.into_iter().chain(parking.next()).min();
            let is_time = async { tokio::time::sleep_until(woken.expect("it is there").into()).await };
            tokio::select! {
                Some(returned) = lent.next(), if !lent.is_empty() => {
                    if !returned.is_empty() {
                        returned.into_iter().for_each(|sample| queues.own.push(sample));
                        more();
                    }
                }
                () = freed => {}
                () = is_time, if woken.is_some() => {}
                () = idle.notified() => {}
            }
        }
    }

    /// Takes up to `most` samples from the shared queue, and moves those that cannot be lent to the own queue.
    fn take_chunk<'q>(&self, most: usize, queues: &Queues<'q>) -> LentChunk<'q> {
        let mut chunk = LentChunk { samples: Vec::new(), stored: Vec::new(), bytes: Vec::new(), held_bytes: 0 };
        let (mut fields, mut columns) = (0, 0);
        while chunk.samples.len() < most && fields.max(columns) < CHUNK_BYTES {
            let Some(mut sample) = queues.shared.pop() else { break };
            // A sample that another rank has decoded, or is decoding, is copied here.
            let is_shared = self.feed.shared().is_some_and(|member| member.is_kept(sample.sample.draw(), true));
            let Some((stored, bytes)) = self.stored(&sample).filter(|_| !is_shared) else {
                queues.own.push(sample);
                continue;
            };
            // A lent sample takes no thread of this process, so other batches may have its part of the permit.
            self.permit.finish(1);
            sample.has_permit = false;
            fields += stored.fields.iter().map(|field| field.bytes).sum::<u64>();
            columns += self.job.sizes.bytes_of(&stored.fields);
            chunk.samples.push(sample);
            chunk.stored.push(stored);
            chunk.bytes.extend(bytes);
        }
        chunk.held_bytes = fields + columns;
        chunk
    }

    /// Returns a sample in the form in which it is sent; `None` if it has to be decoded here.
    fn stored(&self, QueuedSample { group, sample, .. }: &QueuedSample<'_>) -> Option<(StoredSample, Vec<Bytes>)> {
        let (feed, job) = (self.feed, self.job);
        let is_suspect = feed.suspicion(sample.id) != Suspicion::None;
        if is_suspect || sample.bytes.max(job.sizes.bytes_of(&[])) > MAX_SAMPLE_BYTES {
            return None;
        }
        let record = group.record(sample);
        let (mut fields, mut bytes) = (Vec::new(), Vec::new());
        for (number, name) in (0..).zip(&feed.fields) {
            // Only this process can have wrong bytes fetched again, so such a sample stays here.
            let Some(value) = group.field(&record, name).ok()? else { continue };
            let size = value.size() as u64;
            let value = match value {
                // A helper does not reserve memory for what the file becomes when it is decompressed.
                FieldValue::One(Content::File(file)) if is_compressed(name, &file) => return None,
                FieldValue::One(Content::File(file)) => {
                    bytes.push(file);
                    StoredValue::File
                }
                FieldValue::One(Content::Array(Array { dtype, shape, elements })) => {
                    bytes.push(elements);
                    StoredValue::Array(dtype, shape)
                }
                FieldValue::List(files) => {
                    let sizes = files.iter().map(|file| file.as_ref().map(|file| file.len() as u64)).collect();
                    bytes.extend(files.into_iter().flatten());
                    StoredValue::List(sizes)
                }
            };
            fields.push(StoredField { number, value, bytes: size });
        }
        let SampleKey { epoch, id, sample_in_record } = sample.key();
        let stored = StoredSample { epoch, id, sample_in_record, fields };
        let fields_bytes = stored.fields.iter().map(|field| field.bytes).sum::<u64>();
        (fields_bytes.max(job.sizes.bytes_of(&stored.fields)) <= MAX_SAMPLE_BYTES).then_some((stored, bytes))
    }

    /// Asks a helper for a chunk, writes what it returns, and returns the samples that it did not decode.
    async fn ask<'q>(
        &self,
        turn: HelpTurn<'_>,
        LentChunk { samples, stored, bytes, .. }: LentChunk<'q>,
        _room: SampleReservation,
    ) -> Vec<QueuedSample<'q>> {
        let Self { job, links, .. } = self;
        let request = DecodeRequest { job: job.fingerprint, batch: self.batch, samples: stored };
        let (helper, count) = (turn.address, samples.len());
        let limit = turn.limit(count);
        let answer = tokio::time::timeout(limit, links.ask(helper, job, request, bytes)).await;
        let failed = |cause: &str| tracing::debug!(helper = %helper.quic, cause, "samples are taken back");
        match answer {
            Ok(Ok(HelpAnswer::Decoded(decoded))) => {
                let returned = self.write(samples, decoded);
                turn.finish(count - returned.len(), count, Instant::now());
                return returned;
            }
            Ok(Ok(HelpAnswer::Busy)) => turn.busy(count, Instant::now()),
            Ok(Ok(HelpAnswer::Unable(cause))) => {
                if turn.unable(job.fingerprint, count) {
                    let name = &self.feed.session.job.name;
                    tracing::warn!(helper = %helper.quic, job = name, cause, "a helper cannot decode samples of this job");
                }
            }
            Ok(Err(error)) => {
                failed(&error.to_string());
                turn.fail(count, Instant::now());
            }
            Err(_) => {
                failed(&format!("the helper is late: it took more than {limit:?}"));
                turn.fail(count, Instant::now());
            }
        }
        samples
    }

    /// Writes the columns of samples into their places; returns the samples that did not decode.
    fn write<'q>(
        &self,
        samples: Vec<QueuedSample<'q>>,
        DecodedSamples { samples: decoded, bytes }: DecodedSamples,
    ) -> Vec<QueuedSample<'q>> {
        let (mut at, mut returned) = (0, Vec::new());
        let mut next = |length: usize| {
            at += length;
            bytes.slice(at - length..at)
        };
        for (mut sample, lengths) in samples.into_iter().zip(decoded) {
            let Some(lengths) = lengths else {
                returned.push(sample);
                continue;
            };
            let mut lengths = lengths.into_iter();
            for target in &mut sample.place.targets {
                match target {
                    FieldTarget::Fixed(column) => column.copy_from_slice(&next(column.len())),
                    FieldTarget::Ragged(value) => {
                        **value = next(lengths.next().expect("one for each ragged column") as usize);
                    }
                }
            }
            if let Some(member) = self.feed.shared() {
                member.offer(sample.sample.draw(), &sample.place.targets);
            }
            sample.place.keep(sample.sample, false);
            self.feed.has_good.store(true, Ordering::Relaxed);
        }
        returned
    }
}
