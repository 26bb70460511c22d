//! A batch that is being filled: which of its samples come from where, until all are in their places.

use std::{collections::BTreeMap, mem::take, sync::Arc};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use smallvec::smallvec;
use spdl_types::{BatchId, Position};
use spdl_wire::{slab::SlotMut, spans};
use tracing::Instrument;

use super::{
    ahead::PlannedBatch,
    buffer::{BLOCKING_BYTES, BatchBuffer, EarlySample},
    decode::{ReadySamples, decode_samples, shared_for},
    records::{self, FetchedGroup, NeededElements},
    sample::{BatchSample, Reason, SampleGroup, Undecoded},
    sequence::{self, FoundPieces, PackedBatch},
    settle::remedy,
};
use crate::{
    feed::{FeedError, open::Feed, progress::Wait, room::BatchRoom, scheduler::DecodePermitRequest},
    fetch::for_batch,
};

/// A batch that is being filled.
pub(super) struct Filling {
    feed: Arc<Feed>,
    sequence: u64,
    /// Position at which the global batch begins.
    at: Position,
    fetching: FuturesUnordered<BoxFuture<'static, Result<FetchedGroup, FeedError>>>,
    /// Blocks that are being fetched, and how many groups of samples wait for each.
    awaited: BTreeMap<u32, u32>,
    /// Samples that have come.
    ready: ReadySamples,
    /// The pieces of the samples, if these are sequences.
    packed: Option<Arc<PackedBatch>>,
    /// Samples that another rank is decoding.
    awaiting: FuturesUnordered<BoxFuture<'static, BatchSample>>,
    /// Samples that were begun before the batch had a slot, and those of them that are decoded.
    early: FuturesUnordered<BoxFuture<'static, (BatchSample, Option<EarlySample>)>>,
    ready_early: Vec<(BatchSample, EarlySample)>,
    room: Option<Arc<BatchRoom>>,
}

/// A buffer into which all was decoded that had come.
struct DecodedInto {
    buffer: BatchBuffer,
    left: Vec<Undecoded>,
    /// Whether the batch needs nothing more.
    is_complete: bool,
}

type DecodeResult = Result<DecodedInto, FeedError>;

impl Filling {
    pub(super) fn new(feed: Arc<Feed>, sequence: u64, at: Position, room: Option<Arc<BatchRoom>>) -> Self {
        let (fetching, awaiting, early) = (FuturesUnordered::new(), FuturesUnordered::new(), FuturesUnordered::new());
        let (awaited, ready, packed, ready_early) = Default::default();
        Self { feed, sequence, at, fetching, awaited, ready, packed, awaiting, early, ready_early, room }
    }

    /// Fetches and decodes until no sample of the batch is left, or the batch has to start again.
    pub(super) async fn run(mut self, planned: &mut PlannedBatch, slot: SlotMut) -> Result<BatchBuffer, FeedError> {
        match sequence::find(&self.feed, &planned.step, &planned.sequences).await? {
            Some(FoundPieces { packed, in_memory, to_fetch }) => {
                self.packed = Some(packed);
                self.ready.groups = in_memory;
                to_fetch.into_iter().for_each(|group| self.fetch_bytes(group));
            }
            None => {
                for mut group in planned.groups.iter().cloned() {
                    group.retain(|sample| !self.take_early(planned.early.take(sample.entry), *sample));
                    if !group.is_empty() {
                        self.fetch(group);
                    }
                }
            }
        }
        let partners = planned.mixes.partners.len();
        let buffer =
            BatchBuffer::new(&self.feed.layout, slot, self.room.clone(), planned.entries, partners, &planned.invalid);
        let mut idle = Some(buffer);
        let mut decoding: Option<BoxFuture<'static, DecodeResult>> = None;
        loop {
            while let Some(Some(group)) = self.fetching.next().now_or_never() {
                self.fetched(group?);
            }
            while let Some(Some(sample)) = self.awaiting.next().now_or_never() {
                self.fetch(smallvec![sample]);
            }
            while let Some(Some((sample, early))) = self.early.next().now_or_never() {
                self.decoded_early(sample, early);
            }
            if let Some(buffer) = idle.take_if(|_| !self.ready_early.is_empty()) {
                decoding = Some(self.place_early(buffer).boxed());
            } else if let Some(buffer) = idle.take_if(|_| !self.ready.is_empty()) {
                decoding = Some(self.decode(buffer).boxed());
            }
            self.note_wait(decoding.is_some());
            if decoding.is_none() && self.fetching.is_empty() && self.awaiting.is_empty() && self.early.is_empty() {
                return self.complete(idle.expect("nothing is being decoded")).await;
            }
            let room = self.room.clone();
            tokio::select! {
                Some(group) = self.fetching.next() => self.fetched(group?),
                Some(sample) = self.awaiting.next() => self.fetch(smallvec![sample]),
                Some((sample, early)) = self.early.next() => self.decoded_early(sample, early),
                // Samples that are being decoded will be done soon, so they are not interrupted.
                () = async { room.as_ref().expect("it is there").revoked().await }, if decoding.is_none() && room.is_some() => {
                    return Ok(idle.expect("nothing is being decoded"));
                }
                decoded = async { decoding.as_mut().expect("it is there").await }, if decoding.is_some() => {
                    decoding = None;
                    let DecodedInto { buffer, left, is_complete } = decoded?;
                    if is_complete {
                        return Ok(buffer);
                    }
                    idle = Some(buffer);
                    self.settle(left)?;
                }
            }
        }
    }

    /// Completes a batch whose samples are written.
    fn complete(
        &self,
        mut buffer: BatchBuffer,
    ) -> impl Future<Output = Result<BatchBuffer, FeedError>> + Send + 'static {
        let (feed, packed) = (self.feed.clone(), self.packed.clone());
        async move {
            let Some(packed) = packed else { return Ok(buffer) };
            let of_batch = feed.clone();
            let completed = feed.blocking(move || {
                sequence::complete(&of_batch, &mut buffer, &packed);
                buffer
            });
            completed.await
        }
    }

    /// Gets samples of a block from where they are soonest: decoded by another rank, in memory, or fetched.
    fn fetch(&mut self, mut group: SampleGroup) {
        if self.feed.shared().is_some() {
            // Blocks are read only for samples that are not kept.
            let kept = |sample: &BatchSample| shared_for(&self.feed, sample)?.kept(sample.draw());
            group.retain(|sample| match kept(sample) {
                Some(kept) => {
                    self.ready.kept.push((*sample, kept));
                    false
                }
                None => true,
            });
            if group.is_empty() {
                return;
            }
        }
        match records::in_memory(&self.feed, group) {
            Ok(fetched) => self.ready.groups.push(fetched),
            Err(group) => self.fetch_bytes(group),
        }
    }

    /// Takes a sample that is decoded early; returns whether it is.
    fn take_early(
        &self,
        early: Option<impl Future<Output = Option<EarlySample>> + Send + 'static>,
        sample: BatchSample,
    ) -> bool {
        let Some(early) = early else { return false };
        self.early.push(early.map(move |early| (sample, early)).boxed());
        true
    }

    /// Takes a sample that was decoded early, or gets it as the others if it could not be decoded.
    fn decoded_early(&mut self, sample: BatchSample, early: Option<EarlySample>) {
        match early {
            Some(early) => self.ready_early.push((sample, early)),
            None => self.fetch(smallvec![sample]),
        }
    }

    /// Returns what is needed of arrays, if the samples are sequences.
    fn needed(&self) -> Option<Arc<dyn NeededElements>> {
        self.packed.clone().map(|packed| packed as Arc<dyn NeededElements>)
    }

    fn fetch_bytes(&mut self, group: SampleGroup) {
        let block = group[0].block;
        let fetched = records::fetch(self.feed.clone(), group, self.needed());
        self.await_bytes(block, for_batch(Some(self.batch()), fetched));
    }

    /// Decides what happens to the samples that were not decoded.
    fn settle(&mut self, left: Vec<Undecoded>) -> Result<(), FeedError> {
        let (awaited, undecoded): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|left| matches!(left.reason, Reason::Awaited));
        awaited.into_iter().for_each(|left| self.await_other(left.sample));
        if let Some(error) = self.feed.decoder.failure().filter(|_| !undecoded.is_empty()) {
            return Err(error.clone().into());
        }
        let mut wrong: BTreeMap<u32, SampleGroup> = BTreeMap::new();
        for undecoded in undecoded {
            match remedy(&self.feed, undecoded)? {
                Some(sample) if sample.wrong.fetches > 0 => wrong.entry(sample.block).or_default().push(sample),
                Some(substitute) => self.fetch(smallvec![substitute]),
                None => {}
            }
        }
        for (block, group) in wrong {
            self.feed.fetcher.discard(&self.feed.datasets.block_key(block));
            self.fetch_again(group);
        }
        Ok(())
    }

    /// Fetches a block again whose bytes were wrong, after a random delay, as the cause may be temporary.
    fn fetch_again(&mut self, group: SampleGroup) {
        let fetches = group.iter().map(|sample| sample.wrong.fetches).max().unwrap_or(1);
        let backoff = self.feed.fetcher.requests.backoff();
        let delay = backoff.full_jitter(fetches + 1, rand::random());
        let (feed, needed, batch) = (self.feed.clone(), self.needed(), self.batch());
        self.await_bytes(group[0].block, async move {
            tokio::time::sleep(delay).await;
            for_batch(Some(batch), records::fetch(feed, group, needed)).await
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
        let block = group.samples()[0].block;
        let groups = self.awaited.get_mut(&block).expect("what arrives is awaited");
        *groups -= 1;
        if *groups == 0 {
            self.awaited.remove(&block);
        }
        self.ready.groups.push(group);
    }

    fn note_wait(&self, is_decoding: bool) {
        let wait = match self.awaited.first_key_value() {
            _ if is_decoding => Wait::Decode,
            None if !self.awaiting.is_empty() || !self.early.is_empty() => Wait::Decode,
            Some((block, _)) => {
                let shard = self.feed.datasets.shard_url(*block).into();
                Wait::Block { block: *block, shard, others: self.awaited.len() - 1 }
            }
            None => return,
        };
        self.feed.progress.waits_for(self.sequence, wait);
    }

    /// Copies the samples that were decoded early to their places. That needs no decoding thread: all of these may have slow samples.
    fn place_early(&mut self, mut buffer: BatchBuffer) -> impl Future<Output = DecodeResult> + Send + 'static {
        let (feed, early) = (self.feed.clone(), take(&mut self.ready_early));
        let bytes: u64 = early.iter().map(|(_, early)| early.copied_bytes()).sum();
        let of_batch = feed.clone();
        let place = move || {
            buffer.place(&of_batch.layout, early);
            DecodedInto { buffer, left: Vec::new(), is_complete: false }
        };
        async move { if bytes < BLOCKING_BYTES { Ok(place()) } else { feed.blocking(place).await } }
    }

    /// Decodes the samples that are ready, once the scheduler grants a permit.
    fn decode(&mut self, mut buffer: BatchBuffer) -> impl Future<Output = DecodeResult> + Send + 'static {
        let (feed, ready) = (self.feed.clone(), take(&mut self.ready));
        let (progress, session) = (feed.progress.clone(), feed.session.id);
        let (at, packed) = (self.at, self.packed.clone());
        let is_last = self.fetching.is_empty() && self.awaiting.is_empty();
        let request = DecodePermitRequest { progress, sequence: self.sequence, session, at };
        let samples = ready.len();
        let span = spans::decode(samples);
        let decoded = async move {
            let permit = feed.decoding.scheduler.take(request, samples).await;
            let of_batch = feed.clone();
            let is_short = packed.as_ref().is_some_and(|packed| packed.is_short(&feed));
            let decode = move || {
                let left = match &packed {
                    Some(packed) => sequence::write(&of_batch, at, &mut buffer, packed, &ready, &permit),
                    None => decode_samples(&of_batch, at, &mut buffer, &ready, &permit),
                };
                // No other thread is woken to complete what is all here.
                let is_complete = is_last && left.is_empty() && packed.is_some();
                if let Some(packed) = packed.filter(|_| is_complete) {
                    sequence::complete(&of_batch, &mut buffer, &packed);
                }
                buffer.hold(ready.groups.into_iter().filter(FetchedGroup::is_held).map(FetchedGroup::into_bytes));
                DecodedInto { buffer, left, is_complete }
            };
            if is_short { feed.on_decoding_thread(decode).await } else { feed.blocking(decode).await }
        };
        decoded.instrument(span)
    }
}
