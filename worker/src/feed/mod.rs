//! Feeding a rank: from its position on, batch after batch, into the slots of its slab.
//!
//! A [`RankFeed`] walks the plan, has the blocks of the coming steps fetched, decodes the samples of a batch in
//! parallel straight into a slot, and publishes the slots in order. It is pulled: with no free slot it does nothing.

mod bad;
mod chunk;
pub mod core;
mod dataset;
mod error;
mod fill;
mod journal;
mod progress;
mod resources;
mod scheduler;
mod stall;
mod steps;
mod throttle;
mod view;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use spdl_shard::{
    Fingerprint, Position,
    order::{BatchParams, Plan},
};
use spdl_wire::{
    layout::Layout,
    messages::{Session, Stall},
    slab::Slab,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
};

pub use bad::TooManyBad;
#[doc(hidden)]
pub use bad::{BadLedger, BadSampleKind, Remedy, remedy};
use core::{FeedCore, FeedEffect};
use dataset::OpenDataset;
pub use dataset::{StoreAccess, WrapStore};
pub use error::FeedError;
use fill::FilledBatch;
use progress::{FeedPhase, FeedProgress};
use resources::SlabReservation;
pub use resources::{Access, DEFAULT_SLOTS, MAX_SLOTS, Resources};
use steps::Steps;
pub use view::FeedView;

use crate::{decode::Decoder, transform::Lease};

/// Which memory the slots are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlabKind {
    /// A sealed memfd, which another process can map.
    Shared,
    /// This process's own.
    Private,
}

/// What is to be fed.
#[derive(Clone, Debug)]
pub struct FeedRequest {
    /// The session.
    pub session: Session,
    /// r.
    pub rank: u32,
    /// The first batch starts here.
    pub from: Position,
    /// Slots wanted; 0 for [`DEFAULT_SLOTS`]. Fewer are given where memory is short.
    pub slots: u32,
    /// Where the slots are.
    pub slab: SlabKind,
}

/// What a feed has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedEvent {
    /// A slot holds the next batch.
    Filled {
        /// Number of the batch, from 0.
        sequence: u64,
        /// Which slot.
        slot: u32,
        /// Bytes of the batch.
        used_bytes: u64,
    },
    /// All epochs are delivered.
    End {
        /// Number of batches.
        sequence: u64,
        /// Where the stream ends.
        position: Position,
    },
}

/// The batches of one rank. Its work stops when it is dropped.
#[derive(Debug)]
pub struct RankFeed {
    view: FeedView,
    slab: Slab,
    layout: Arc<Layout>,
    progress: Arc<FeedProgress>,
    events: mpsc::UnboundedReceiver<Result<FeedEvent, FeedError>>,
    /// The end or the error, once it has come.
    last: Option<Result<FeedEvent, FeedError>>,
    driver: AbortHandle,
    stall_log: AbortHandle,
    _reservation: SlabReservation,
}

/// Gives slots back; cheap to clone.
#[derive(Clone, Debug)]
pub struct SlotFreer {
    slab: Slab,
    progress: Arc<FeedProgress>,
}

impl SlotFreer {
    /// The consumer is done with a slot; every reader of it has to be gone.
    ///
    /// # Errors
    /// [`FeedError::NotLent`] when the slot holds no batch.
    pub fn free(&self, slot: u32) -> Result<(), FeedError> {
        if !self.slab.release(slot) {
            return Err(FeedError::NotLent { slot });
        }
        self.note_released(slot);
        Ok(())
    }

    /// A slot was released in the slab by somebody else.
    pub fn note_released(&self, slot: u32) {
        self.progress.free(slot);
    }
}

impl RankFeed {
    /// Starts to feed a rank. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// [`FeedError`] when the request makes no sense or there is no memory for it; all else comes with
    /// [`next`](Self::next).
    pub fn start(resources: &Arc<Resources>, request: FeedRequest) -> Result<Self, FeedError> {
        let FeedRequest { session, rank, from, slots, slab: kind } = request;
        session.check(rank).map_err(|error| FeedError::Session {
            job: session.job.name.clone(),
            rank,
            problem: error.to_string(),
        })?;
        let layout = Arc::new(session.layout());
        let reservation = resources.reserve(&session, rank, slots, &layout)?;
        let make = if kind == SlabKind::Shared { Slab::shared } else { Slab::private };
        let slab = make(reservation.slots, layout.slot_bytes()).map_err(|source| FeedError::Slab {
            job: session.job.name.clone(),
            rank,
            source: Arc::new(source),
        })?;
        let (progress, freed) = FeedProgress::new(Instant::now());
        let progress = Arc::new(progress);
        let (events_out, events) = mpsc::unbounded_channel();
        let driver = FeedDriver {
            resources: resources.clone(),
            session: session.clone(),
            rank,
            slab: slab.clone(),
            layout: layout.clone(),
            progress: progress.clone(),
            events: events_out,
        };
        let driver = tokio::spawn(driver.run(from, freed)).abort_handle();
        let view = FeedView::new(resources, &session, rank, slab.slots(), progress.clone());
        let stall_log = tokio::spawn(stall::watch(view.clone(), rank)).abort_handle();
        Ok(Self { view, slab, layout, progress, events, last: None, driver, stall_log, _reservation: reservation })
    }

    /// The slots.
    #[must_use]
    pub const fn slab(&self) -> &Slab {
        &self.slab
    }

    /// Where everything lies in a slot.
    #[must_use]
    pub const fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The next event; dropping the future loses none. After [`FeedEvent::End`] or an error
    /// it is that again.
    ///
    /// # Errors
    /// [`FeedError`] when the rank cannot be fed any longer.
    pub async fn next(&mut self) -> Result<FeedEvent, FeedError> {
        if let Some(last) = &self.last {
            return last.clone();
        }
        let event = self.events.recv().await;
        let event = event.unwrap_or_else(|| Err(FeedError::Panicked { job: self.view.job().to_owned() }));
        match event {
            Ok(FeedEvent::Filled { .. }) => self.progress.take(),
            _ => self.last = Some(event.clone()),
        }
        event
    }

    /// A handle that gives slots back.
    #[must_use]
    pub fn freer(&self) -> SlotFreer {
        SlotFreer { slab: self.slab.clone(), progress: self.progress.clone() }
    }

    /// The consumer is done with a slot.
    ///
    /// # Errors
    /// [`FeedError::NotLent`] when the slot holds no batch.
    pub fn free(&self, slot: u32) -> Result<(), FeedError> {
        self.freer().free(slot)
    }

    /// A handle that tells how the rank stands.
    #[must_use]
    pub const fn view(&self) -> &FeedView {
        &self.view
    }

    /// What the next batch waits for; `None` when it is there, or about to be.
    #[must_use]
    pub fn stall(&self) -> Option<Stall> {
        self.view.stall()
    }
}

impl Drop for RankFeed {
    fn drop(&mut self) {
        self.progress.cancel();
        self.driver.abort();
        self.stall_log.abort();
    }
}

/// What the batches of one rank have in common.
pub(crate) struct Feed {
    resources: Arc<Resources>,
    session: Session,
    job_fingerprint: Fingerprint,
    rank: u32,
    layout: Arc<Layout>,
    dataset: Arc<OpenDataset>,
    plan: Plan,
    decoder: Decoder,
    /// Fields of a record that the columns may read.
    fields: Vec<String>,
    progress: Arc<FeedProgress>,
    /// A sample was decoded.
    has_good: AtomicBool,
}

/// The task that keeps a rank's slots filled.
struct FeedDriver {
    resources: Arc<Resources>,
    session: Session,
    rank: u32,
    slab: Slab,
    layout: Arc<Layout>,
    progress: Arc<FeedProgress>,
    events: mpsc::UnboundedSender<Result<FeedEvent, FeedError>>,
}

const fn batch_params(session: &Session) -> BatchParams {
    let Session { job, global_batch, .. } = session;
    BatchParams { global_batch: *global_batch, epochs: job.epochs, epoch_end: job.epoch_end }
}

impl FeedDriver {
    async fn run(self, from: Position, freed: mpsc::UnboundedReceiver<u32>) {
        let result = self.feed(from, freed).await;
        self.progress.enter(FeedPhase::Over);
        // Nobody listens any more when the feed was dropped.
        let _ = self.events.send(result);
    }

    /// Carries out what the core wants, up to the end.
    async fn feed(&self, from: Position, mut freed: mpsc::UnboundedReceiver<u32>) -> Result<FeedEvent, FeedError> {
        let feed = Arc::new(self.open().await?);
        let mut core = FeedCore::new(feed.plan.samples(), batch_params(&feed.session), from, self.slab.slots());
        let ranks = (self.rank, feed.session.world);
        let mut steps = Steps::new(feed.plan.clone(), ranks, feed.dataset.clone(), feed.resources.fetcher.clone());
        let mut filling = FuturesUnordered::new();
        let mut done = BTreeMap::new();
        loop {
            while let Some(effect) = core.poll_effect() {
                match effect {
                    FeedEffect::Prepare(step) => steps.prepare(step),
                    FeedEffect::Fill { sequence, slot, step } => {
                        let slot = self.slab.try_take(slot).expect("a slot that the core has filled is free");
                        let filled = fill::fill(feed.clone(), sequence, steps.take(step), slot);
                        filling.push(filled.map(move |filled| (sequence, filled)));
                    }
                    FeedEffect::HandOver { sequence, .. } => {
                        self.publish(done.remove(&sequence).expect("what is handed over is done")?);
                    }
                    FeedEffect::Fail { sequence } => {
                        let failed: Result<FilledBatch, _> = done.remove(&sequence).expect("what failed is done");
                        return Err(failed.expect_err("the core was told that it failed"));
                    }
                    FeedEffect::End { sequence, position } => return Ok(FeedEvent::End { sequence, position }),
                }
            }
            self.progress.enter(if core.is_filling() { FeedPhase::Filling } else { FeedPhase::NoSlot });
            tokio::select! {
                Some((sequence, filled)) = filling.next() => {
                    if filled.is_ok() { core.handle_filled(sequence) } else { core.handle_failed(sequence) }
                    done.insert(sequence, filled);
                }
                Some(slot) = freed.recv() => assert!(core.handle_freed(slot), "slot {slot} was freed and not lent"),
            }
        }
    }

    fn publish(&self, batch: FilledBatch) {
        let FilledBatch { sequence, slot, used_bytes } = batch;
        let slot = slot.publish();
        self.progress.publish();
        let _ = self.events.send(Ok(FeedEvent::Filled { sequence, slot, used_bytes }));
    }

    async fn open(&self) -> Result<Feed, FeedError> {
        let Self { resources, session, rank, layout, progress, .. } = self;
        let dataset = resources.datasets.open(&session.job).await?;
        let plan = dataset.plan(&session.job)?;
        let order = |source| FeedError::Order { job: session.job.name.clone(), source: Arc::new(source) };
        plan.check(&batch_params(session)).map_err(order)?;
        let decoder = Decoder::new(&session.job, dataset.manifest().classes())?
            .with_counts(resources.pictures.clone())
            .with_memory(resources.decode_memory.clone())
            .with_transforms(self.load_functions().await?);
        Ok(Feed {
            resources: resources.clone(),
            session: session.clone(),
            job_fingerprint: session.job.fingerprint(),
            rank: *rank,
            layout: layout.clone(),
            plan,
            fields: decoder.field_names().map(str::to_owned).collect(),
            decoder,
            dataset,
            progress: progress.clone(),
            has_good: AtomicBool::new(false),
        })
    }

    /// Has the job's functions imported, so that the error of one that cannot be comes before any batch.
    async fn load_functions(&self) -> Result<Option<Arc<Lease>>, FeedError> {
        let Some(lease) = self.resources.transforms.lease(&self.session.job)?.map(Arc::new) else { return Ok(None) };
        let (done, loaded) = oneshot::channel();
        let loading = lease.clone();
        self.resources.pool.spawn(move || {
            // Nobody waits any more when the rank has gone.
            let _ = done.send(loading.load());
        });
        loaded.await.map_err(|_| FeedError::Panicked { job: self.session.job.name.clone() })??;
        Ok(Some(lease))
    }
}

#[cfg(test)]
pub(crate) mod tests;
