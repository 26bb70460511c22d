//! The bounded queues between stages, and the turnstile that keeps results in order.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
};

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::{error::PipelineError, stats::StageCounters};

/// A message between stages. An error takes the place of its item, so that the items before it still arrive.
pub(crate) type StageMessage<T> = Result<T, PipelineError>;

/// The counters of a running stage.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) stage: Arc<StageCounters>,
    /// Number of items that are being processed.
    pub(crate) working: AtomicUsize,
    /// Limit of the items that are processed at once; 0 in stages that are not pipes.
    pub(crate) concurrency: AtomicUsize,
}

impl Live {
    pub(crate) fn new(name: &str, concurrency: usize) -> Arc<Self> {
        let stage = Arc::new(StageCounters::new(name));
        Arc::new(Self { stage, working: AtomicUsize::new(0), concurrency: AtomicUsize::new(concurrency) })
    }
}

/// The request to take no more items from the source.
#[derive(Default)]
pub(crate) struct Drain(CancellationToken);

impl Drain {
    pub(crate) fn ask(&self) {
        self.0.cancel();
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.is_cancelled()
    }

    pub(crate) fn asked(&self) -> impl Future<Output = ()> + use<> {
        self.0.clone().cancelled_owned()
    }
}

/// The sending end of the queue in front of a stage.
pub(crate) struct Outlet<T> {
    sender: mpsc::Sender<StageMessage<T>>,
    next: Arc<Live>,
}

impl<T> Clone for Outlet<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), next: self.next.clone() }
    }
}

/// The error of a send after the pipeline has stopped.
pub(crate) struct Stopped;

impl<T> Outlet<T> {
    /// Creates a queue of capacity `capacity` in front of `next`.
    pub(crate) fn new(next: Arc<Live>, capacity: usize) -> (Self, mpsc::Receiver<StageMessage<T>>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Self { sender, next }, receiver)
    }

    pub(crate) async fn send(&self, message: StageMessage<T>) -> Result<(), Stopped> {
        let place = self.sender.reserve().await.map_err(|_| Stopped)?;
        // Counted before the item can be taken out again.
        self.next.stage.queued(1);
        place.send(message);
        Ok(())
    }

    /// Sends from a thread outside the event loop. An item that waits for room in the queue counts as queued.
    pub(crate) fn blocking_send(&self, message: StageMessage<T>) -> Result<(), Stopped> {
        self.next.stage.queued(1);
        self.sender.blocking_send(message).map_err(|_| Stopped)
    }
}

/// Releases results in the order of their numbers.
pub(crate) struct Turnstile {
    turn: AtomicU64,
    moved: Notify,
}

impl Turnstile {
    pub(crate) const fn new() -> Self {
        Self { turn: AtomicU64::new(0), moved: Notify::const_new() }
    }

    pub(crate) async fn wait_for(&self, number: u64) {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.turn.load(SeqCst) == number {
                return;
            }
            moved.await;
        }
    }

    pub(crate) fn advance(&self) {
        self.turn.fetch_add(1, SeqCst);
        self.moved.notify_waiters();
    }
}
