//! Feeds a rank: fills the slots of its slab with its batches, in order, from a start position on.
//!
//! A [`RankFeed`] walks the plan, fetches the blocks of the coming steps ahead, decodes the samples of a batch in
//! parallel straight into a slot, and publishes the slots in order. The consumer sets the speed: while no slot is free,
//! the feed does nothing.

mod batch;
mod blocks;
mod dataset;
mod driver;
mod error;
mod journal;
mod progress;
mod resources;
mod room;
mod scheduler;
mod sharing;
mod stages;
mod stall;
mod throttle;
mod view;

use std::{sync::Arc, time::Instant};

use spdl_control::messages::Session;
use spdl_insight::Stall;
use spdl_job::layout::Layout;
use spdl_types::Position;
use spdl_wire::{slab::Slab, spans};
use tokio::{sync::mpsc, task::AbortHandle};
use tracing::Instrument;

pub use batch::HeldSamples;
pub use dataset::{StoreAccess, WrapStore};
use driver::{FeedDriver, FeedWork};
pub use error::FeedError;
use progress::FeedProgress;
pub use resources::{Access, DEFAULT_SLOTS, MAX_SLOTS, Resources};
pub(crate) use room::HelpReservation;
use room::SlabReservation;
pub use sharing::{SampleSharing, SharingStats};
pub use view::FeedView;

pub use crate::fetch::DiskCacheState;

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

/// A feed with its memory, before it does anything.
struct Idle {
    driver: FeedDriver,
    freed: mpsc::UnboundedReceiver<u32>,
    events: mpsc::UnboundedReceiver<Result<FeedEvent, FeedError>>,
    reservation: SlabReservation,
}

impl Idle {
    fn new(resources: &Arc<Resources>, request: FeedRequest, work: FeedWork) -> Result<Self, FeedError> {
        let FeedRequest { session, rank, from, slots, slab: kind } = request;
        session.check(rank).map_err(|error| FeedError::Session {
            job: session.job.name.clone(),
            rank,
            problem: error.to_string(),
        })?;
        let layout = Arc::new(session.layout());
        let reservation = resources.reserve(&session, rank, from, slots, &layout)?;
        let make = if kind == SlabKind::Shared { Slab::shared } else { Slab::private };
        let slab = make(reservation.slots, layout.slot_bytes()).map_err(|source| FeedError::Slab {
            job: session.job.name.clone(),
            rank,
            source: Arc::new(source),
        })?;
        resources.tuning.start();
        let (progress, freed) = FeedProgress::new(Instant::now(), slab.slots(), resources.stages.clone());
        let (events_out, events) = mpsc::unbounded_channel();
        let driver = FeedDriver {
            resources: resources.clone(),
            session,
            rank,
            room: reservation.room(&layout, &slab),
            slab,
            layout,
            progress: Arc::new(progress),
            events: events_out,
            work,
        };
        Ok(Self { driver, freed, events, reservation })
    }
}

impl RankFeed {
    /// Starts to feed a rank. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`FeedError`] if the request is invalid or there is no memory for it; all other errors come from
    /// [`next`](Self::next).
    pub fn start(resources: &Arc<Resources>, request: FeedRequest) -> Result<Self, FeedError> {
        Self::start_with(resources, request, FeedWork::All)
    }

    /// Starts a feed like [`start`](Self::start) that only fetches and decodes nothing: all entries are masked. It
    /// measures what the store delivers.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub fn start_fetching(resources: &Arc<Resources>, request: FeedRequest) -> Result<Self, FeedError> {
        Self::start_with(resources, request, FeedWork::Fetch)
    }

    fn start_with(resources: &Arc<Resources>, request: FeedRequest, work: FeedWork) -> Result<Self, FeedError> {
        let from = request.from;
        let session = &request.session;
        let span = spans::rank(Some(session.id), &session.job.name, request.rank);
        let Idle { driver, freed, events, reservation } = Idle::new(resources, request, work)?;
        let (view, slab, layout, progress) =
            (driver.view(), driver.slab.clone(), driver.layout.clone(), driver.progress.clone());
        let driver = tokio::spawn(driver.run(from, freed).instrument(span.clone())).abort_handle();
        let stall_log = tokio::spawn(stall::watch(view.clone()).instrument(span)).abort_handle();
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

#[cfg(test)]
pub(crate) mod tests;
