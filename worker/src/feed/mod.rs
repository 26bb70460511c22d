//! Feeds a rank: fills the slots of its slab with its batches, in order, from a start position on.
//!
//! A [`RankFeed`] walks the plan, fetches the blocks of the coming steps ahead, decodes the samples of a batch in
//! parallel straight into a slot, and publishes the slots in order. The consumer sets the speed: while no slot is free,
//! the feed does nothing.

mod chunk;
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
use spdl_core::feed::{FeedCore, FeedEffect};
use spdl_core::{
    Fingerprint, Position,
    layout::Layout,
    messages::{Session, Stall},
    order::Plan,
};
use spdl_wire::slab::Slab;
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
};

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

/// The kind of memory that the slots lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlabKind {
    /// A sealed memfd, which another process can map.
    Shared,
    /// Private memory of this process.
    Private,
}

/// The parameters of a [`RankFeed`].
#[derive(Clone, Debug)]
pub struct FeedRequest {
    /// The session that the rank belongs to.
    pub session: Session,
    /// The rank, from 0.
    pub rank: u32,
    /// The position at which the first batch starts.
    pub from: Position,
    /// Number of slots; 0 means [`DEFAULT_SLOTS`]. The feed gets fewer if memory is short.
    pub slots: u32,
    /// The kind of memory of the slots.
    pub slab: SlabKind,
}

/// An event that a [`RankFeed`] reports to its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedEvent {
    /// A slot holds the next batch.
    Filled {
        /// Number of the batch, from 0.
        sequence: u64,
        /// The slot that holds the batch.
        slot: u32,
        /// Bytes of the batch.
        used_bytes: u64,
    },
    /// The last epoch is delivered.
    End {
        /// Number of batches.
        sequence: u64,
        /// Position at which the stream ends.
        position: Position,
    },
}

/// Produces the batches of one rank. Dropping it stops the work.
#[derive(Debug)]
pub struct RankFeed {
    view: FeedView,
    slab: Slab,
    layout: Arc<Layout>,
    progress: Arc<FeedProgress>,
    events: mpsc::UnboundedReceiver<Result<FeedEvent, FeedError>>,
    /// The last event or error, once it has come.
    last: Option<Result<FeedEvent, FeedError>>,
    driver: AbortHandle,
    stall_log: AbortHandle,
    _reservation: SlabReservation,
}

/// A handle that gives slots back; cheap to clone.
#[derive(Clone, Debug)]
pub struct SlotFreer {
    slab: Slab,
    progress: Arc<FeedProgress>,
}

impl SlotFreer {
    /// Gives back a slot that the consumer is done with. No reader of the slot may be left.
    ///
    /// # Errors
    /// [`FeedError::NotLent`] if the slot holds no batch.
    pub fn free(&self, slot: u32) -> Result<(), FeedError> {
        if !self.slab.release(slot) {
            return Err(FeedError::NotLent { slot });
        }
        self.note_released(slot);
        Ok(())
    }

    /// Notes that a slot was already released in the slab, by another process or thread.
    pub fn note_released(&self, slot: u32) {
        self.progress.free(slot);
    }
}

impl RankFeed {
    /// Starts to feed a rank. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`FeedError`] if the request is invalid or there is no memory for it; all other errors come from
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

    /// Returns the slab that holds the slots.
    #[must_use]
    pub const fn slab(&self) -> &Slab {
        &self.slab
    }

    /// Returns the layout of a slot.
    #[must_use]
    pub const fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Waits for the next event. Dropping the future loses no event. After [`FeedEvent::End`] or an error, it returns
    /// the same again.
    ///
    /// # Errors
    /// [`FeedError`] if the rank cannot be fed any longer.
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

    /// Returns a handle that gives slots back.
    #[must_use]
    pub fn freer(&self) -> SlotFreer {
        SlotFreer { slab: self.slab.clone(), progress: self.progress.clone() }
    }

    /// Gives back a slot that the consumer is done with.
    ///
    /// # Errors
    /// [`FeedError::NotLent`] if the slot holds no batch.
    pub fn free(&self, slot: u32) -> Result<(), FeedError> {
        self.freer().free(slot)
    }

    /// Returns a handle that reports the state of the rank.
    #[must_use]
    pub const fn view(&self) -> &FeedView {
        &self.view
    }

    /// Returns what the next batch waits for; `None` if a batch is ready or about to be.
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

/// The data that all batches of one rank share.
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
    /// Whether any sample was decoded.
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

impl FeedDriver {
    async fn run(self, from: Position, freed: mpsc::UnboundedReceiver<u32>) {
        let result = self.feed(from, freed).await;
        self.progress.enter(FeedPhase::Over);
        // The receiver is gone if the feed was dropped.
        let _ = self.events.send(result);
    }

    /// Carries out the core's effects until the end of the stream.
    async fn feed(&self, from: Position, mut freed: mpsc::UnboundedReceiver<u32>) -> Result<FeedEvent, FeedError> {
        let feed = Arc::new(self.open().await?);
        let mut core = FeedCore::new(feed.plan.samples(), feed.session.batches(), from, self.slab.slots());
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
        plan.check(&session.batches()).map_err(order)?;
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

    /// Imports the job's functions, so that an import error is reported before any batch.
    async fn load_functions(&self) -> Result<Option<Arc<Lease>>, FeedError> {
        let Some(lease) = self.resources.transforms.lease(&self.session.job)?.map(Arc::new) else { return Ok(None) };
        let (done, loaded) = oneshot::channel();
        let loading = lease.clone();
        self.resources.pool.spawn(move || {
            // The receiver is gone if the feed was dropped.
            let _ = done.send(loading.load());
        });
        loaded.await.map_err(|_| FeedError::Panicked { job: self.session.job.name.clone() })??;
        Ok(Some(lease))
    }
}

#[cfg(test)]
pub(crate) mod tests;
