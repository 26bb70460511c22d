//! The progress of a rank, and what its next batch waits for.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use spdl_types::BatchId;
use tokio::sync::mpsc;

use super::{
    room::RoomWait,
    stages::{FeedStages, HandedSlots, RankActivity},
};

/// Counts the batches of one rank; shared by the feed, its consumer and the views of it.
#[derive(Debug)]
pub(crate) struct FeedProgress {
    published: AtomicU64,
    /// Published batches that the consumer has received.
    taken: AtomicU64,
    freed: AtomicU64,
    is_cancelled: AtomicBool,
    /// Sends the numbers of freed slots to the driver.
    to_driver: mpsc::UnboundedSender<u32>,
    waits: Mutex<RankWaits>,
    stages: Arc<FeedStages>,
}

#[derive(Debug)]
struct RankWaits {
    phase: (FeedPhase, Instant),
    /// The wait of each batch, by the batch's sequence number.
    batches: BTreeMap<u64, (Wait, Instant)>,
    /// The rank's activity, as it was last reported to the stages.
    activity: RankActivity,
    /// The slots as units of a stage; `None` once the rank is gone.
    slots: Option<HandedSlots>,
}

/// The state of the rank as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedPhase {
    /// The dataset is being opened.
    Opening,
    /// Batches are being filled.
    Filling,
    /// The trainer has all slots.
    NoSlot,
    /// The feed has ended: all batches are published, or it failed.
    Over,
}

/// What one batch waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Blocks that are being fetched.
    Block {
        /// Number of one of them.
        block: u32,
        /// URL of its shard.
        shard: Arc<str>,
        /// How many other blocks it waits for.
        others: usize,
    },
    /// Memory for values of ragged columns.
    Memory(RoomWait),
    /// The trainer, which has as many batches as it can have while memory is short.
    Trainer,
    /// A decode permit, or the decoding itself.
    Decode,
}

impl FeedProgress {
    /// Creates the progress of a rank that starts, and the channel on which its driver receives freed slots.
    pub(crate) fn new(now: Instant, slots: u32, stages: Arc<FeedStages>) -> (Self, mpsc::UnboundedReceiver<u32>) {
        let (to_driver, freed) = mpsc::unbounded_channel();
        let progress = Self {
            published: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
            to_driver,
            waits: Mutex::new(RankWaits {
                phase: (FeedPhase::Opening, now),
                batches: BTreeMap::new(),
                activity: RankActivity::default(),
                slots: Some(HandedSlots::new(&stages.hand_over, slots, now)),
            }),
            stages,
        };
        (progress, freed)
    }

    /// Notes that a slot holds `batch`, of `bytes`.
    pub(crate) fn publish(&self, slot: u32, batch: BatchId, bytes: u64) {
        self.change(|waits| {
            self.published.fetch_add(1, Ordering::Relaxed);
            waits.slots.iter_mut().for_each(|slots| slots.publish(slot, batch, bytes));
        });
    }

    /// Notes that the consumer has received a batch.
    pub(crate) fn take(&self) {
        self.change(|_| {
            self.taken.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// Changes the waits, and reports the activity that follows from them to the stages.
    fn change(&self, change: impl FnOnce(&mut RankWaits)) {
        let mut waits = self.waits.lock();
        change(&mut waits);
        let after = match waits.slots {
            None => RankActivity::default(),
            Some(_) => RankActivity {
                is_fed: matches!(waits.phase.0, FeedPhase::Filling | FeedPhase::NoSlot),
                awaits_bytes: waits.batches.values().any(|(wait, _)| matches!(wait, Wait::Block { .. })),
                ready: self.published().saturating_sub(self.taken.load(Ordering::Relaxed)),
            },
        };
        let before = std::mem::replace(&mut waits.activity, after);
        self.stages.change(before, after);
    }

    /// Returns whether a published batch has not been received by the consumer.
    pub(crate) fn has_batch(&self) -> bool {
        self.published() > self.taken.load(Ordering::Relaxed)
    }

    /// Reports a freed slot. Each slot is freed once between two publications, so the channel never holds more than
    /// there are slots.
    pub(crate) fn free(&self, slot: u32) {
        self.freed.fetch_add(1, Ordering::Relaxed);
        self.change(|waits| waits.slots.iter_mut().for_each(|slots| slots.free(slot)));
        // The driver stops receiving once all batches are published.
        let _ = self.to_driver.send(slot);
    }

    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }

    /// Returns the number of batches that are published and not freed.
    pub(crate) fn lent(&self) -> u64 {
        self.published().saturating_sub(self.freed.load(Ordering::Relaxed))
    }

    /// Returns the number of batches that the trainer can take before it needs this one.
    pub(crate) fn lead(&self, sequence: u64) -> u64 {
        sequence.saturating_sub(self.freed.load(Ordering::Relaxed))
    }

    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.change(|waits| waits.slots = None);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn enter(&self, phase: FeedPhase) {
        self.change(|waits| {
            if waits.phase.0 != phase {
                waits.phase = (phase, Instant::now());
            }
        });
    }

    pub(crate) fn waits_for(&self, sequence: u64, wait: Wait) {
        self.change(|waits| match waits.batches.get_mut(&sequence) {
            // Another block of the same batch: the batch is still waiting, so its start time stays.
            Some((before @ Wait::Block { .. }, _)) if matches!(wait, Wait::Block { .. }) => *before = wait,
            Some((before, _)) if *before == wait => {}
            _ => {
                waits.batches.insert(sequence, (wait, Instant::now()));
            }
        });
    }

    pub(crate) fn forget_wait(&self, sequence: u64) {
        self.change(|waits| {
            waits.batches.remove(&sequence);
        });
    }

    /// Returns what the next batch waits for, and since when.
    pub(crate) fn waiting(&self) -> (FeedPhase, Option<Wait>, Instant) {
        let waits = self.waits.lock();
        let (phase, since) = waits.phase;
        match waits.batches.first_key_value() {
            Some((_, (wait, since))) => (phase, Some(wait.clone()), *since),
            None => (phase, None, since),
        }
    }
}
