//! A batch that is being filled: which of its samples come from where, until all are in their places.

use std::{collections::BTreeMap, sync::Arc};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use smallvec::smallvec;
use spdl_types::{BatchId, Position};
use spdl_wire::{slab::SlotMut, spans};
use tracing::Instrument;

use super::{
    BatchSample, PlannedBatch, SampleGroup,
    buffer::BatchBuffer,
    decode::{KeptInBatch, LeftSamples, Samples, decode_samples, shared_for},
    records::{self, FetchedGroup},
};
use crate::{
    feed::{FeedError, open::Feed, progress::Wait, room::BatchRoom, scheduler::DecodePermitRequest},
    fetch::for_batch,
};

/// A batch that is being filled.
pub(super) struct Filling {
    pub(super) feed: Arc<Feed>,
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

type DecodeResult = Result<(BatchBuffer, LeftSamples), FeedError>;

impl Filling {
    pub(super) fn new(feed: Arc<Feed>, sequence: u64, at: Position, room: Option<Arc<BatchRoom>>) -> Self {
        let (fetching, awaited, ready) = (FuturesUnordered::new(), BTreeMap::new(), Vec::new());
        let (kept, awaiting) = (Vec::new(), FuturesUnordered::new());
        Self { feed, sequence, at, fetching, awaited, ready, kept, awaiting, room }
    }

    /// Fetches and decodes until no sample of the batch is left, or the batch has to start again.
    pub(super) async fn run(mut self, planned: &PlannedBatch, slot: SlotMut) -> Result<BatchBuffer, FeedError> {
        planned.groups.iter().for_each(|group| self.fetch(group.clone()));
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
                // Samples that are being decoded will be done soon, so they are not interrupted.
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

    pub(super) fn fetch(&mut self, mut group: SampleGroup) {
        if self.feed.shared().is_some() {
            // Blocks are read only for samples that are not kept.
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

    /// Fetches a block again whose bytes were wrong, after a random delay, as the cause may be temporary.
    pub(super) fn fetch_again(&mut self, group: SampleGroup) {
        let fetches = group.iter().map(|sample| sample.wrong.fetches).max().unwrap_or(1);
        let backoff = self.feed.fetcher.requests().retry().backoff();
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
    fn decode(&mut self, mut buffer: BatchBuffer) -> impl Future<Output = DecodeResult> + Send + 'static {
        let (groups, kept) = (std::mem::take(&mut self.ready), std::mem::take(&mut self.kept));
        let feed = self.feed.clone();
        let (progress, session) = (feed.progress.clone(), feed.session.id);
        let at = self.at;
        let request = DecodePermitRequest { progress, sequence: self.sequence, session, at };
        let samples = groups.iter().map(FetchedGroup::len).sum::<usize>() + kept.len();
        let span = spans::decode(samples);
        let entered = span.clone();
        let decoded = async move {
            let permit = feed.decoding.scheduler.take(request, samples).await;
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
