//! The feed of a rank as its consumer has it.

use std::sync::Arc;

use spdl_insight::Stall;
use spdl_job::layout::Layout;
use spdl_wire::{slab::Slab, spans};
use tokio::{sync::mpsc, task::AbortHandle};
use tracing::Instrument;

use super::{
    FeedError,
    driver::{FeedDriver, FeedEvent},
    open::{FeedRequest, FeedWork, ReservedFeed},
    progress::FeedProgress,
    resources::Resources,
    room::SlabReservation,
    stall,
    view::FeedView,
};

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
        let (reserved, reservation, freed) = ReservedFeed::new(resources, request, work)?;
        let view = FeedView::new(&reserved);
        let (slab, layout, progress) = (reserved.slab.clone(), reserved.layout.clone(), reserved.progress.clone());
        let (events_out, events) = mpsc::unbounded_channel();
        let driver = FeedDriver { reserved, events: events_out };
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
