//! The memory for slots: what ranks reserve, and what the ragged values of each batch take. The rules are those of
//! [`RoomCore`].

mod batch;

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use spdl_feed::{RankId, RankNeeds, RoomCore, RoomEffect, RoomKey};
use spdl_job::layout::{Layout, Place};
use spdl_wire::slab::{Slab, slot_stride};
use tokio::sync::Notify;

pub(crate) use self::batch::RoomWait;
pub(super) use self::batch::{BatchRoom, RoomAnswer, TooLarge};
use crate::fetch::Fetcher;

/// At most one part in this many of the memory for slots and cached blocks holds samples that are decoded for other
/// workers.
const HELP_PART: u64 = 4;
/// At most one part in this many of that memory holds samples that are decoded before their batch has a slot.
const EARLY_PART: u64 = 8;

/// The memory for slots and cached blocks. The cache gets what is left after slabs, after what is lent to the decoding of
/// large pictures, after samples that are decoded for other workers or early, and after those that ranks share.
#[derive(Debug)]
pub(crate) struct SlotMemory {
    bytes: u64,
    state: Mutex<SlotMemoryState>,
    /// Whether slots and the memory that is lent to decoding need the memory of shared samples.
    is_short: AtomicBool,
    becomes_short: Notify,
    fetcher: Arc<Fetcher>,
}

#[derive(Debug)]
struct SlotMemoryState {
    core: RoomCore,
    lent_bytes: u64,
    /// For samples that are decoded for other workers.
    help_bytes: u64,
    /// For samples that are decoded before their batch has a slot.
    early_bytes: u64,
    /// For decoded samples that ranks share.
    shared_bytes: u64,
    /// What is left for cached blocks.
    cache_bytes: u64,
    /// The slabs of ranks with ragged columns, and the bytes of a slot that are always kept.
    slabs: HashMap<RankId, (Slab, usize)>,
    batches: HashMap<RoomKey, Arc<Signals>>,
}

/// The decisions about one batch's room, as the account reports them to the batch.
#[derive(Debug, Default)]
struct Signals {
    /// Bytes that the batch has.
    granted_bytes: AtomicU64,
    is_waiting: AtomicBool,
    is_revoked: AtomicBool,
    is_released: AtomicBool,
    refusal: OnceLock<NoRoom>,
    changed: Notify,
}

/// The memory that a rank asks for when it attaches.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotNeeds {
    /// Bytes of one slot without ragged values, and beside it.
    pub(super) fixed_bytes: u64,
    /// Bytes that the ragged values of one slot can take.
    pub(super) largest_bytes: u64,
    /// The number of slots that the rank wants, and the smallest that it accepts.
    pub(super) slots: [u32; 2],
}

/// There is no room for the least number of slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoSlots {
    pub(super) used_bytes: u64,
    pub(super) free_bytes: u64,
}

/// A rank's next batch has no room beside the batches that trainers hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoRoom {
    /// Bytes that the rank takes with the batch.
    pub(super) needed_bytes: u64,
    /// Bytes that other ranks leave it.
    pub(super) left_bytes: u64,
}

impl SlotMemory {
    /// Creates the account of `bytes`, of which slots take at most `slab_bytes`.
    pub(super) fn new(bytes: u64, slab_bytes: u64, fetcher: Arc<Fetcher>) -> Self {
        let state = SlotMemoryState {
            core: RoomCore::new(slab_bytes),
            lent_bytes: 0,
            help_bytes: 0,
            early_bytes: 0,
            shared_bytes: 0,
            cache_bytes: bytes,
            slabs: HashMap::new(),
            batches: HashMap::new(),
        };
        let (is_short, becomes_short) = (AtomicBool::new(false), Notify::new());
        Self { bytes, state: Mutex::new(state), is_short, becomes_short, fetcher }
    }

    /// Notes how many bytes are lent to the decoding of large pictures.
    pub(super) fn lend(&self, bytes: u64) {
        self.change(|state| state.lent_bytes = bytes);
    }

    /// Reserves memory for samples that are decoded for another worker, from that of cached blocks; `None` if too much is
    /// reserved.
    pub(crate) fn reserve_help(self: &Arc<Self>, bytes: u64) -> Option<SampleReservation> {
        self.change(|state| {
            let help_bytes = state.help_bytes + bytes;
            let is_free = help_bytes <= self.bytes / HELP_PART
                && state.core.used_bytes() + state.lent_bytes + help_bytes <= self.bytes;
            state.help_bytes = if is_free { help_bytes } else { state.help_bytes };
            is_free.then(|| SampleReservation { memory: self.clone(), bytes, account: |state| &mut state.help_bytes })
        })
    }

    /// Reserves memory for a sample that is decoded before its batch has a slot, from that of cached blocks; `None` if too
    /// much is reserved.
    pub(super) fn reserve_early(self: &Arc<Self>, bytes: u64) -> Option<SampleReservation> {
        let account: fn(&mut SlotMemoryState) -> &mut u64 = |state| &mut state.early_bytes;
        self.take_early(bytes).then(|| SampleReservation { memory: self.clone(), bytes, account })
    }

    /// Takes memory for samples that are decoded early; returns false if too much is reserved.
    fn take_early(&self, bytes: u64) -> bool {
        self.change(|state| {
            let early_bytes = state.early_bytes + bytes;
            let is_free = early_bytes <= self.bytes / EARLY_PART && state.beside_cache_bytes() + bytes <= self.bytes;
            state.early_bytes = if is_free { early_bytes } else { state.early_bytes };
            is_free
        })
    }

    /// Reserves memory for decoded samples that ranks share; `None` if slots and what is lent leave none.
    pub(super) fn reserve_shared(self: &Arc<Self>, bytes: u64) -> Option<SampleReservation> {
        self.change(|state| {
            let is_free = state.beside_cache_bytes() + bytes <= self.bytes;
            state.shared_bytes += if is_free { bytes } else { 0 };
            is_free.then(|| SampleReservation { memory: self.clone(), bytes, account: |state| &mut state.shared_bytes })
        })
    }

    /// Returns whether slots and what is lent need the memory of shared samples.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Relaxed)
    }

    /// Waits until slots and the memory that is lent to decoding need the memory of shared samples; wakes one waiter.
    pub(super) async fn becomes_short(&self) {
        self.becomes_short.notified().await;
    }

    /// Returns the bytes that slots take.
    pub(super) fn slab_bytes(&self) -> u64 {
        self.state.lock().core.used_bytes()
    }

    /// Reserves memory for the slab of a rank: for as many of the wanted slots as there is room.
    pub(super) fn reserve(self: &Arc<Self>, needs: SlotNeeds) -> Result<SlabReservation, NoSlots> {
        let SlotNeeds { fixed_bytes, largest_bytes, slots: [wanted, least] } = needs;
        self.change(|state| {
            let free_bytes = state.core.free_bytes();
            let slots = u32::try_from(free_bytes / fixed_bytes).unwrap_or(u32::MAX).min(wanted);
            let all = |bytes: u64| bytes.saturating_mul(slots.into());
            let needs = RankNeeds { fixed_bytes: all(fixed_bytes), largest_bytes: all(largest_bytes), slots, least };
            let rank = if slots < least { None } else { state.core.attach(needs) };
            let Some(rank) = rank else {
                return Err(NoSlots { used_bytes: state.core.used_bytes(), free_bytes });
            };
            Ok(SlabReservation { room: RankRoom { memory: self.clone(), rank }, slots })
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut SlotMemoryState) -> T) -> T {
        let mut state = self.state.lock();
        let outcome = change(&mut state);
        state.carry_out();
        let beside_bytes = state.beside_cache_bytes();
        let is_short = state.shared_bytes > 0 && beside_bytes > self.bytes;
        if !self.is_short.swap(is_short, Relaxed) && is_short {
            self.becomes_short.notify_one();
        }
        let cache_bytes = self.bytes.saturating_sub(beside_bytes);
        if std::mem::replace(&mut state.cache_bytes, cache_bytes) != cache_bytes {
            self.fetcher.set_memory(cache_bytes);
        }
        outcome
    }
}

impl SlotMemoryState {
    /// Returns the bytes that cached blocks do not get.
    fn beside_cache_bytes(&self) -> u64 {
        self.core.expected_bytes() + self.lent_bytes + self.help_bytes + self.early_bytes + self.shared_bytes
    }

    /// Carries out what the core has decided.
    fn carry_out(&mut self) {
        while let Some(effect) = self.core.poll_effect() {
            match effect {
                RoomEffect::Grant { batch, bytes } => {
                    let Some(signals) = self.batches.get(&batch) else { continue };
                    signals.granted_bytes.fetch_add(bytes, Relaxed);
                    signals.is_waiting.store(false, Relaxed);
                    signals.changed.notify_one();
                }
                RoomEffect::Revoke { batch } => {
                    let Some(signals) = self.batches.get(&batch) else { continue };
                    signals.is_revoked.store(true, Relaxed);
                    signals.changed.notify_one();
                }
                RoomEffect::Release { batch } => {
                    let Some(signals) = self.batches.get(&batch) else { continue };
                    signals.is_released.store(true, Relaxed);
                    signals.changed.notify_one();
                }
                RoomEffect::Refuse { batch, needed_bytes, left_bytes } => {
                    let Some(signals) = self.batches.get(&batch) else { continue };
                    let _ = signals.refusal.set(NoRoom { needed_bytes, left_bytes });
                    signals.changed.notify_one();
                }
                // The driver cannot take the slot meanwhile: its batch begins first, and that waits for the lock that
                // is held here.
                RoomEffect::GiveBack { rank, slot } => {
                    if let Some((slab, kept_bytes)) = self.slabs.get(&rank) {
                        slab.give_back(slot, *kept_bytes);
                    }
                }
            }
        }
    }
}

/// Memory for decoded samples: for another worker, early, or such that ranks share. Given back when dropped.
#[derive(Debug)]
pub(crate) struct SampleReservation {
    memory: Arc<SlotMemory>,
    bytes: u64,
    /// Returns the account that it is in.
    account: fn(&mut SlotMemoryState) -> &mut u64,
}

impl SampleReservation {
    /// Makes the memory of a sample that is decoded early `bytes`; returns false if too much is reserved for more than it has.
    pub(super) fn resize_early(&mut self, bytes: u64) -> bool {
        match bytes.checked_sub(self.bytes) {
            Some(more) if !self.memory.take_early(more) => return false,
            Some(_) => {}
            None => self.memory.change(|state| state.early_bytes -= self.bytes - bytes),
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for SampleReservation {
    fn drop(&mut self) {
        self.memory.change(|state| *(self.account)(state) -= self.bytes);
    }
}

/// The memory that the slab of a rank takes from the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct SlabReservation {
    room: RankRoom,
    pub(crate) slots: u32,
}

impl SlabReservation {
    /// Returns the room for the ragged values of the rank's batches; `None` if it has no ragged columns.
    pub(super) fn room(&self, layout: &Layout, slab: &Slab) -> Option<RankRoom> {
        if !has_ragged(layout) {
            return None;
        }
        let kept_bytes = fixed_stride(layout);
        self.room.memory.change(|state| state.slabs.insert(self.room.rank, (slab.clone(), kept_bytes)));
        Some(self.room.clone())
    }
}

impl Drop for SlabReservation {
    fn drop(&mut self) {
        let RankRoom { memory, rank } = &self.room;
        memory.change(|state| {
            state.core.detach(*rank);
            state.slabs.remove(rank);
        });
    }
}

/// Returns the bytes of a slot that hold more than ragged values: whole pages.
pub(super) fn fixed_stride(layout: &Layout) -> usize {
    slot_stride(layout.fixed_bytes()).expect("checked with the session")
}

fn has_ragged(layout: &Layout) -> bool {
    layout.columns().iter().any(|column| matches!(column.place, Place::Ragged { .. }))
}

/// The room of one rank. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct RankRoom {
    memory: Arc<SlotMemory>,
    rank: RankId,
}

impl RankRoom {
    /// Notes that the trainer has given back a slot.
    pub(super) fn free(&self, slab: &Slab, slot: u32) {
        self.memory.change(|state| {
            let kept_bytes = state.slabs.get(&self.rank).map_or(0, |(_, kept_bytes)| *kept_bytes);
            let held_bytes = slab.held_bytes(slot).saturating_sub(kept_bytes) as u64;
            state.core.free(self.rank, slot, held_bytes, slab.is_locked(slot));
        });
    }
}
