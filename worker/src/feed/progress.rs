//! How far a rank is, and what its next batch waits for.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use tokio::sync::mpsc;

/// What one rank has got, shared by whoever fills, frees and asks.
#[derive(Debug)]
pub(crate) struct FeedProgress {
    published: AtomicU64,
    /// Of these, how many the consumer has been told of.
    taken: AtomicU64,
    freed: AtomicU64,
    is_cancelled: AtomicBool,
    /// Slots that were freed, for the driver.
    to_driver: mpsc::UnboundedSender<u32>,
    waits: Mutex<Waits>,
}

#[derive(Debug)]
struct Waits {
    phase: (FeedPhase, Instant),
    /// By the batch's sequence number.
    batches: BTreeMap<u64, (Wait, Instant)>,
}

/// What the rank as a whole is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedPhase {
    /// Its dataset is being opened.
    Opening,
    /// Batches are being filled.
    Filling,
    /// All slots are with the trainer.
    NoSlot,
    /// All batches are out.
    Over,
}

/// What one batch waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Blocks.
    Block {
        /// One of them.
        block: u32,
        /// URL of its shard.
        shard: Arc<str>,
        /// How many more.
        others: usize,
    },
    /// The decoding threads.
    Decode,
}

impl FeedProgress {
    /// The progress of a rank that starts, and where its driver hears of freed slots.
    pub(crate) fn new(now: Instant) -> (Self, mpsc::UnboundedReceiver<u32>) {
        let (to_driver, freed) = mpsc::unbounded_channel();
        let progress = Self {
            published: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
            to_driver,
            waits: Mutex::new(Waits { phase: (FeedPhase::Opening, now), batches: BTreeMap::new() }),
        };
        (progress, freed)
    }

    pub(crate) fn publish(&self) {
        self.published.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a batch is there that the consumer has not been told of.
    pub(crate) fn has_batch(&self) -> bool {
        self.published() > self.taken.load(Ordering::Relaxed)
    }

    /// A slot was freed; each is told once between two publications, so the channel holds no more than there are slots.
    pub(crate) fn free(&self, slot: u32) {
        self.freed.fetch_add(1, Ordering::Relaxed);
        // Nobody listens any more once all batches are out.
        let _ = self.to_driver.send(slot);
    }

    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }

    /// Batches that are filled and not given back.
    pub(crate) fn lent(&self) -> u64 {
        self.published().saturating_sub(self.freed.load(Ordering::Relaxed))
    }

    /// Batches that the trainer can take before it needs this one.
    pub(crate) fn lead(&self, sequence: u64) -> u64 {
        sequence.saturating_sub(self.freed.load(Ordering::Relaxed))
    }

    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn enter(&self, phase: FeedPhase) {
        let mut waits = self.waits.lock();
        if waits.phase.0 != phase {
            waits.phase = (phase, Instant::now());
        }
    }

    pub(crate) fn waits_for(&self, sequence: u64, wait: Wait) {
        let mut waits = self.waits.lock();
        match waits.batches.get_mut(&sequence) {
            // Another block of the same batch: it is still the batch that has waited so long.
            Some((before @ Wait::Block { .. }, _)) if matches!(wait, Wait::Block { .. }) => *before = wait,
            Some((before, _)) if *before == wait => {}
            _ => {
                waits.batches.insert(sequence, (wait, Instant::now()));
            }
        }
    }

    pub(crate) fn forget_wait(&self, sequence: u64) {
        self.waits.lock().batches.remove(&sequence);
    }

    /// What the next batch waits for, and since when.
    pub(crate) fn waiting(&self) -> (FeedPhase, Option<Wait>, Instant) {
        let waits = self.waits.lock();
        let (phase, since) = waits.phase;
        match waits.batches.first_key_value() {
            Some((_, (wait, since))) => (phase, Some(wait.clone()), *since),
            None => (phase, None, since),
        }
    }
}
