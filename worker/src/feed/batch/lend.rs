//! Lends samples of a batch to helpers while this process's own threads decode from the same queue.
//!
//! A helper is asked for a chunk only while the queue is longer than the time that it takes. What it does not decode goes back to
//! this process's threads, and is not lent again.

use std::{sync::atomic::Ordering, time::Instant};

use bytes::Bytes;
use crossbeam_deque::Worker;
use futures::{StreamExt, stream::FuturesUnordered};
use spdl_core::{
    BatchId,
    help::{DecodeRequest, MAX_BYTES, StoredField, StoredSample, StoredValue},
};
use spdl_shard::format::{Array, Content, FieldValue};
use tokio::{runtime::Handle, sync::Notify};

use super::decode::{QueuedSample, shared};
use crate::{
    decode::FieldTarget,
    feed::{HelpReservation, driver::Feed, journal::Suspicion, scheduler::DecodePermit},
    help::{AskHelper, DecodedSamples, HelpAnswer, HelpTurn, LentJob, Queue},
};

/// A chunk is complete from this many bytes on, of fields and of columns.
const CHUNK_BYTES: u64 = 4 << 20;
/// Maximum bytes of a sample that is lent, of its fields or its columns.
const MAX_SAMPLE_BYTES: u64 = MAX_BYTES / 4;

/// The queues of a batch that is being decoded.
pub(super) struct Queues<'q> {
    /// Samples that any thread or helper may decode.
    pub(super) shared: Worker<QueuedSample<'q>>,
    /// Samples for this process's threads alone.
    pub(super) own: Worker<QueuedSample<'q>>,
}

/// Samples that a helper is asked for, and where their columns go.
struct Chunk<'q> {
    samples: Vec<QueuedSample<'q>>,
    stored: Vec<StoredSample>,
    bytes: Vec<Bytes>,
    /// Memory for its fields and columns. The values of ragged columns are taken to be as long as the fields, but for pictures.
    held_bytes: u64,
}

/// How a batch is lent.
pub(super) struct Lender<'l> {
    pub(super) feed: &'l Feed,
    pub(super) batch: BatchId,
    pub(super) permit: &'l DecodePermit,
    /// Notified when one of this process's threads finds no more samples.
    pub(super) idle: &'l Notify,
}

impl Lender<'_> {
    /// Lends samples until none is left to lend and all that were lent are back. `more` starts another thread of this process.
    /// Blocks the calling thread, which may not be one of the runtime's own.
    pub(super) fn run(&self, queues: &Queues<'_>, more: impl Fn()) {
        let helpers = &self.feed.resources.helpers;
        let (Some(job), Some(links)) = (&self.feed.lent, helpers.links()) else { return };
        Handle::current().block_on(self.lend(job, links, queues, more));
    }

    async fn lend(&self, job: &LentJob, links: &dyn AskHelper, queues: &Queues<'_>, more: impl Fn()) {
        let resources = &self.feed.resources;
        let threads = resources.pool.current_num_threads();
        let mut lent = FuturesUnordered::new();
        loop {
            let freed = resources.helpers.freed();
            let kept = queues.own.len();
            let queue = || {
                let of_batch = queues.shared.len();
                Queue { of_batch, of_all: of_batch.max(resources.scheduler.samples()), threads }
            };
            while !queues.shared.is_empty()
                && !self.feed.progress.is_cancelled()
                && let Some(turn) = resources.helpers.take_turn(job.fingerprint, queue(), Instant::now())
            {
                let chunk = self.take_chunk(job, turn.samples(), queues);
                match resources.reserve_help(chunk.held_bytes) {
                    Some(_) if chunk.samples.is_empty() => {}
                    Some(room) => lent.push(self.ask(job, links, turn, chunk, room)),
                    None => chunk.samples.into_iter().for_each(|sample| queues.own.push(sample)),
                }
            }
            if queues.own.len() > kept {
                more();
            }
            if (lent.is_empty() && queues.shared.is_empty()) || self.feed.progress.is_cancelled() {
                return;
            }
            let aside_until = resources.helpers.aside_until(Instant::now()).filter(|_| !queues.shared.is_empty());
            let no_longer_aside = async { tokio::time::sleep_until(aside_until.expect("it is there").into()).await };
            tokio::select! {
                Some(returned) = lent.next(), if !lent.is_empty() => {
                    if !returned.is_empty() {
                        returned.into_iter().for_each(|sample| queues.own.push(sample));
                        more();
                    }
                }
                () = freed => {}
                () = no_longer_aside, if aside_until.is_some() => {}
                () = self.idle.notified() => {}
            }
        }
    }

    /// Takes up to `most` samples from the shared queue. Those that cannot be lent go to the other one.
    fn take_chunk<'q>(&self, job: &LentJob, most: usize, queues: &Queues<'q>) -> Chunk<'q> {
        let mut chunk = Chunk { samples: Vec::new(), stored: Vec::new(), bytes: Vec::new(), held_bytes: 0 };
        let (mut fields, mut columns) = (0, 0);
        while chunk.samples.len() < most && fields.max(columns) < CHUNK_BYTES {
            let Some(mut sample) = queues.shared.pop() else { break };
            // What another rank has decoded, or is decoding, is copied here.
            let is_shared = shared(self.feed).is_some_and(|member| member.is_kept(sample.found.sample.draw(), true));
            let Some((stored, bytes)) = self.stored(job, &sample).filter(|_| !is_shared) else {
                queues.own.push(sample);
                continue;
            };
            // It takes no thread of this process, which others may have.
            self.permit.finish(1);
            sample.has_permit = false;
            fields += stored.fields.iter().map(|field| field.bytes).sum::<u64>();
            columns += job.sizes.bytes_of(&stored.fields);
            chunk.samples.push(sample);
            chunk.stored.push(stored);
            chunk.bytes.extend(bytes);
        }
        chunk.held_bytes = fields + columns;
        chunk
    }

    /// Returns a sample as it is sent; `None` if it has to be decoded here.
    fn stored(
        &self,
        job: &LentJob,
        QueuedSample { group, found, .. }: &QueuedSample<'_>,
    ) -> Option<(StoredSample, Vec<Bytes>)> {
        let (feed, sample) = (self.feed, &found.sample);
        let is_suspect = feed.resources.journal.suspicion(feed.job_fingerprint, sample.id) != Suspicion::None;
        if is_suspect || found.bytes.max(job.sizes.bytes_of(&[])) > MAX_SAMPLE_BYTES {
            return None;
        }
        let record = group.record(found);
        let (mut fields, mut bytes) = (Vec::new(), Vec::new());
        for (number, name) in (0..).zip(&feed.fields) {
            // Wrong bytes are fetched again, which is decided here.
            let Some(value) = group.field(&record, name).ok()? else { continue };
            let size = value.size() as u64;
            let value = match value {
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
        let (epoch, id) = (sample.at.epoch, sample.id);
        let stored = StoredSample { epoch, id, sample_in_record: found.sample_in_record, fields };
        let fields_bytes = stored.fields.iter().map(|field| field.bytes).sum::<u64>();
        (fields_bytes.max(job.sizes.bytes_of(&stored.fields)) <= MAX_SAMPLE_BYTES).then_some((stored, bytes))
    }

    /// Asks for a chunk, writes what comes, and returns the samples that did not.
    async fn ask<'q>(
        &self,
        job: &LentJob,
        links: &dyn AskHelper,
        turn: HelpTurn<'_>,
        Chunk { samples, stored, bytes, .. }: Chunk<'q>,
        _room: HelpReservation,
    ) -> Vec<QueuedSample<'q>> {
        let request = DecodeRequest { job: job.fingerprint, batch: self.batch, samples: stored };
        let (helper, count) = (turn.address(), samples.len());
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
            if let Some(member) = shared(self.feed) {
                member.offer(sample.found.sample.draw(), &sample.place.targets);
            }
            sample.place.keep(&sample.found.sample, false);
            self.feed.has_good.store(true, Ordering::Relaxed);
        }
        returned
    }
}
