//! The room of a batch, from the start of its filling until it is handed over.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use spdl_feed::{RoomCore, RoomKey};
use spdl_job::layout::{ALIGN, Layout};
use spdl_wire::slab::{PAGE_BYTES, SlotMut};

use super::{NoRoom, RankRoom, Signals, SlotMemory, fixed_stride};

/// A batch takes this many more bytes at once if they are free, so that few of its samples have to ask.
const GROWTH_BYTES: u64 = 256 << 10;

impl RankRoom {
    /// Begins a batch in a free slot, which must not be taken before.
    pub(in crate::feed) fn begin(&self, sequence: u64, slot: u32, layout: &Layout) -> BatchRoom {
        let key = RoomKey { rank: self.rank, sequence };
        let signals = Arc::<Signals>::default();
        let kept_bytes = self.memory.change(|state| {
            state.batches.insert(key, signals.clone());
            let kept_bytes = state.core.begin(key, slot);
            signals.is_waiting.store(kept_bytes.is_some(), Relaxed);
            signals.granted_bytes.store(kept_bytes.unwrap_or(0), Relaxed);
            kept_bytes.unwrap_or(0)
        });
        let columns = layout.columns().len();
        BatchRoom {
            memory: self.memory.clone(),
            key,
            signals,
            values_at: layout.fixed_bytes() + columns * ALIGN,
            fixed_stride: fixed_stride(layout),
            kept_bytes: AtomicU64::new(kept_bytes),
            value_bytes: AtomicU64::new(0),
            beside_bytes: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            was_short: AtomicBool::new(false),
            asked_bytes: AtomicU64::new(0),
        }
    }
}

/// The room of one batch: for the ragged values in its slot, and for those that are beside it until it is filled.
#[derive(Debug)]
pub(in crate::feed) struct BatchRoom {
    memory: Arc<SlotMemory>,
    key: RoomKey,
    signals: Arc<Signals>,
    /// The end of the used part of the slot if all ragged values are empty.
    values_at: usize,
    /// Bytes of the slot that are reserved without ragged values.
    fixed_stride: usize,
    /// Bytes for ragged values that the slot still holds from earlier batches.
    kept_bytes: AtomicU64,
    /// Bytes of the values.
    value_bytes: AtomicU64,
    /// Bytes of the values that take memory beside the slot.
    beside_bytes: AtomicU64,
    /// Whether some values found no room: these are counted and dropped.
    is_short: AtomicBool,
    was_short: AtomicBool,
    /// The most bytes that it waited for.
    asked_bytes: AtomicU64,
}

/// Whether values beside the slot count as needed room. They do not if there is room for the largest batches in all
/// slots: then no batch ever waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Counts,
    IsFree,
}

impl Beside {
    fn of(core: &RoomCore) -> Self {
        if core.holds_all() { Self::IsFree } else { Self::Counts }
    }
}

/// A batch needs more room for ragged values than there can ever be.
#[derive(Clone, Copy, Debug)]
pub(in crate::feed) struct TooLarge {
    pub(in crate::feed) needed_bytes: u64,
    pub(in crate::feed) most_bytes: u64,
}

/// How the wait of a batch for room ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::feed) enum RoomAnswer {
    /// It can go on.
    Granted,
    /// It has to start again.
    Revoked,
    Refused(NoRoom),
}

/// The room that a batch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoomWait {
    /// Bytes that it needs.
    pub(crate) bytes: u64,
    /// Bytes that are free.
    pub(crate) free_bytes: u64,
    /// Bytes that there would be for it if there were no other batches.
    pub(crate) most_bytes: u64,
}

impl BatchRoom {
    /// Returns what the batch waits for, if it waits.
    pub(in crate::feed) fn waits(&self) -> Option<RoomWait> {
        let state = self.memory.state.lock();
        let bytes = state.core.waits_for(self.key)?;
        Some(RoomWait { bytes, free_bytes: state.core.free_bytes(), most_bytes: state.core.most_bytes() })
    }

    /// Waits until it is decided whether the batch can go on.
    pub(in crate::feed) async fn answer(&self) -> RoomAnswer {
        loop {
            if let Some(refusal) = self.signals.refusal.get() {
                return RoomAnswer::Refused(*refusal);
            }
            if self.is_revoked() {
                return RoomAnswer::Revoked;
            }
            if !self.signals.is_waiting.load(Relaxed) {
                return RoomAnswer::Granted;
            }
            self.signals.changed.notified().await;
        }
    }

    /// Returns whether the batch, which is filled, can be handed over.
    pub(in crate::feed) fn is_released(&self) -> bool {
        self.signals.is_released.load(Relaxed)
    }

    /// Waits until the filled batch can be handed over, and returns true; returns false if it has to start again.
    pub(in crate::feed) async fn released(&self) -> bool {
        loop {
            if self.is_revoked() || self.is_released() {
                return !self.is_revoked();
            }
            self.signals.changed.notified().await;
        }
    }

    /// Waits until the batch has to start again.
    pub(in crate::feed) async fn revoked(&self) {
        while !self.is_revoked() {
            self.signals.changed.notified().await;
        }
    }

    /// Returns whether the batch has to start again, because a batch before it needs its room.
    pub(in crate::feed) fn is_revoked(&self) -> bool {
        self.signals.is_revoked.load(Relaxed)
    }

    /// Returns whether some values found no room.
    pub(in crate::feed) fn is_short(&self) -> bool {
        self.is_short.load(Relaxed)
    }

    /// Takes room for values of a sample, of which `beside_bytes` take memory beside the slot. Returns false if there is
    /// none.
    pub(in crate::feed) fn take(&self, value_bytes: u64, beside_bytes: u64) -> bool {
        self.value_bytes.fetch_add(value_bytes, Relaxed);
        self.beside_bytes.fetch_add(beside_bytes, Relaxed);
        if self.is_short() {
            return false;
        }
        if self.needed_bytes(Beside::Counts) <= self.signals.granted_bytes.load(Relaxed) {
            return true;
        }
        let has_room = self.memory.change(|state| {
            // Another sample may have taken more meanwhile.
            let granted_bytes = &self.signals.granted_bytes;
            let needed_bytes = self.needed_bytes(Beside::of(&state.core));
            let lack = needed_bytes.saturating_sub(granted_bytes.load(Relaxed));
            let taken = [lack.max(GROWTH_BYTES), lack].into_iter().find(|bytes| state.core.extend(self.key, *bytes));
            granted_bytes.fetch_add(taken.unwrap_or(0), Relaxed);
            taken.is_some()
        });
        if !has_room {
            self.is_short.store(true, Relaxed);
        }
        has_room
    }

    /// Returns the bytes that the batch needs for its ragged values, as far as these are known.
    fn needed_bytes(&self, beside: Beside) -> u64 {
        let end = self.values_at as u64 + self.value_bytes.load(Relaxed);
        let in_slot = end.next_multiple_of(PAGE_BYTES as u64).saturating_sub(self.fixed_stride as u64);
        let in_slot = in_slot.max(self.kept_bytes.load(Relaxed));
        match beside {
            Beside::Counts => in_slot + self.beside_bytes.load(Relaxed),
            Beside::IsFree => in_slot,
        }
    }

    /// Gives back all room and the pages of the slot, and asks for as much room as the batch needs.
    pub(in crate::feed) fn restart(&self, slot: &mut SlotMut) -> Result<(), TooLarge> {
        let held_bytes = slot.give_back(self.fixed_stride);
        let kept_bytes = held_bytes.saturating_sub(self.fixed_stride) as u64;
        self.kept_bytes.store(kept_bytes, Relaxed);
        let value_bytes = self.value_bytes.load(Relaxed);
        self.memory.change(|state| {
            let beside = Beside::of(&state.core);
            // A batch that starts again before all of it was decoded does not know its need, but an earlier try may
            // have measured it.
            let needed_bytes = self.needed_bytes(beside);
            let measured_bytes = self.asked_bytes.fetch_max(needed_bytes, Relaxed).max(needed_bytes);
            // Values that are slices of a block now may take memory of their own in the next try.
            let in_blocks = value_bytes.saturating_sub(self.beside_bytes.load(Relaxed));
            let most_needed_bytes = measured_bytes + if beside == Beside::Counts { in_blocks } else { 0 };
            let most_bytes = state.core.most_bytes();
            if measured_bytes > most_bytes + kept_bytes {
                return Err(TooLarge { needed_bytes: most_needed_bytes, most_bytes });
            }
            let asked_bytes = if self.is_short() && self.was_short.swap(true, Relaxed) {
                most_needed_bytes.min(most_bytes + kept_bytes)
            } else {
                measured_bytes
            };
            for counter in [&self.value_bytes, &self.beside_bytes] {
                counter.store(0, Relaxed);
            }
            self.is_short.store(false, Relaxed);
            let Signals { granted_bytes, is_waiting, is_revoked, is_released, .. } = &*self.signals;
            is_revoked.store(false, Relaxed);
            is_released.store(false, Relaxed);
            is_waiting.store(true, Relaxed);
            granted_bytes.store(kept_bytes, Relaxed);
            state.core.restart(self.key, kept_bytes, asked_bytes);
            Ok(())
        })
    }

    /// Notes that the batch is filled and takes `used_bytes` of its slot. Gives back the rest.
    pub(in crate::feed) fn settle(&self, slot: &mut SlotMut, used_bytes: usize) {
        let held_bytes = slot.keep(used_bytes).saturating_sub(self.fixed_stride) as u64;
        self.memory.change(|state| {
            let needed_bytes = self.needed_bytes(Beside::of(&state.core));
            state.core.settle(self.key, needed_bytes, held_bytes);
        });
    }

    /// Notes that the trainer gets the batch.
    pub(in crate::feed) fn hand_over(&self) {
        self.memory.change(|state| state.core.hand_over(self.key));
    }
}

impl Drop for BatchRoom {
    fn drop(&mut self) {
        self.memory.change(|state| {
            state.batches.remove(&self.key);
            state.core.abandon(self.key);
        });
    }
}
