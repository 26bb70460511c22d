//! The memory for slots: what ranks reserve, and what the ragged values of each batch take. The rules are those of
//! [`RoomCore`].

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use spdl_feed::{RankId, RankNeeds, RoomCore, RoomEffect, RoomKey};
use spdl_job::layout::{ALIGN, Layout, Place};
use spdl_wire::slab::{PAGE_BYTES, Slab, SlotMut, slot_stride};
use tokio::sync::Notify;

use crate::fetch::Fetcher;

/// A batch takes as many bytes more at once, so that not each sample asks.
const GROWTH_BYTES: u64 = 256 << 10;

/// One part in this many of the memory of slots and cached blocks is for samples that are decoded for other workers, at most.
const HELP_PART: u64 = 4;

/// The memory for slots and cached blocks. The cache gets what is left after slabs, after what is lent to the decoding of
/// large pictures, after samples that are decoded for other workers, and after those that ranks share.
#[derive(Debug)]
pub(super) struct SlotMemory {
    bytes: u64,
    state: Mutex<MemoryState>,
    /// Whether slots and what is lent need the memory of shared samples.
    is_short: AtomicBool,
    becomes_short: Notify,
    fetcher: Arc<Fetcher>,
}

#[derive(Debug)]
struct MemoryState {
    core: RoomCore,
    lent_bytes: u64,
    /// For samples that are decoded for other workers.
    help_bytes: u64,
    /// For decoded samples that ranks share.
    shared_bytes: u64,
    /// What is left for cached blocks.
    cache_bytes: u64,
    /// The slabs of ranks with ragged columns, and the bytes of a slot that are always kept.
    slabs: HashMap<RankId, (Slab, usize)>,
    batches: HashMap<RoomKey, Arc<Signals>>,
}

/// What the account tells a batch.
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

/// What a rank that attaches asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotNeeds {
    /// Bytes of one slot without ragged values, and beside it.
    pub(super) fixed_bytes: u64,
    /// Bytes that the ragged values of one slot can take.
    pub(super) largest_bytes: u64,
    /// The number of slots that the rank wants, and the least that it takes.
    pub(super) slots: [u32; 2],
}

/// There is no room for the least number of slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoSlots {
    pub(super) used_bytes: u64,
    pub(super) free_bytes: u64,
}

impl SlotMemory {
    /// Creates the account of `bytes`, of which slots take at most `slab_bytes`.
    pub(super) fn new(bytes: u64, slab_bytes: u64, fetcher: Arc<Fetcher>) -> Self {
        let state = MemoryState {
            core: RoomCore::new(slab_bytes),
            lent_bytes: 0,
            help_bytes: 0,
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

    /// Reserves memory for samples that are decoded for another worker; `None` if too much of `pool_bytes` is taken.
    pub(super) fn reserve_help(self: &Arc<Self>, bytes: u64, pool_bytes: u64) -> Option<HelpReservation> {
        self.change(|state| {
            let help_bytes = state.help_bytes + bytes;
            let is_free = help_bytes <= pool_bytes / HELP_PART
                && state.core.used_bytes() + state.lent_bytes + help_bytes <= pool_bytes;
            state.help_bytes = if is_free { help_bytes } else { state.help_bytes };
            is_free.then(|| HelpReservation { memory: self.clone(), bytes })
        })
    }

    /// Reserves memory for decoded samples that ranks share; `None` if slots and what is lent leave none.
    pub(super) fn reserve_shared(self: &Arc<Self>, bytes: u64) -> Option<SharedReservation> {
        self.change(|state| {
            let is_free = state.beside_cache_bytes() + bytes <= self.bytes;
            state.shared_bytes += if is_free { bytes } else { 0 };
            is_free.then(|| SharedReservation { memory: self.clone(), bytes })
        })
    }

    /// Returns whether slots and what is lent need the memory of shared samples.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Relaxed)
    }

    /// Waits until slots and what is lent come to need the memory of shared samples; one of those that wait is told.
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

    fn change<T>(&self, change: impl FnOnce(&mut MemoryState) -> T) -> T {
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

impl MemoryState {
    /// Returns the bytes that cached blocks do not get.
    fn beside_cache_bytes(&self) -> u64 {
        self.core.expected_bytes() + self.lent_bytes + self.help_bytes + self.shared_bytes
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
                // The driver takes the slot only after its batch has begun, which waits for this.
                RoomEffect::GiveBack { rank, slot } => {
                    if let Some((slab, kept_bytes)) = self.slabs.get(&rank) {
                        slab.give_back(slot, *kept_bytes);
                    }
                }
            }
        }
    }
}

/// Memory for samples that are decoded for another worker.
#[derive(Debug)]
pub(crate) struct HelpReservation {
    memory: Arc<SlotMemory>,
    bytes: u64,
}

impl Drop for HelpReservation {
    fn drop(&mut self) {
        self.memory.change(|state| state.help_bytes -= self.bytes);
    }
}

/// Memory for decoded samples that ranks share; given back when dropped.
#[derive(Debug)]
pub(super) struct SharedReservation {
    memory: Arc<SlotMemory>,
    bytes: u64,
}

impl Drop for SharedReservation {
    fn drop(&mut self) {
        self.memory.change(|state| state.shared_bytes -= self.bytes);
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
    /// Begins a batch in a free slot, which must not be taken before.
    pub(super) fn begin(&self, sequence: u64, slot: u32, layout: &Layout) -> BatchRoom {
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

    /// Notes that the trainer has given back a slot.
    pub(super) fn free(&self, slab: &Slab, slot: u32) {
        self.memory.change(|state| {
            let kept_bytes = state.slabs.get(&self.rank).map_or(0, |(_, kept_bytes)| *kept_bytes);
            let held_bytes = slab.held_bytes(slot).saturating_sub(kept_bytes) as u64;
            state.core.free(self.rank, slot, held_bytes, slab.is_locked(slot));
        });
    }
}

/// The room of one batch: for the ragged values in its slot, and for those that are beside it until it is filled.
#[derive(Debug)]
pub(super) struct BatchRoom {
    memory: Arc<SlotMemory>,
    key: RoomKey,
    signals: Arc<Signals>,
    /// Where values end in the slot if there are none.
    values_at: usize,
    /// Bytes of the slot that are reserved without ragged values.
    fixed_stride: usize,
    /// Bytes of ragged values that the slot holds from batches before.
    kept_bytes: AtomicU64,
    /// Bytes of the values.
    value_bytes: AtomicU64,
    /// Bytes of the values that take memory beside the slot.
    beside_bytes: AtomicU64,
    /// Whether some values found no room: they are counted, and not kept.
    is_short: AtomicBool,
    was_short: AtomicBool,
    /// The most bytes that it waited for.
    asked_bytes: AtomicU64,
}

/// Whether values that are not in the slot yet count. Where there is room for the largest batches in all slots, they do not:
/// no batch waits there.
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
pub(super) struct TooLarge {
    pub(super) needed_bytes: u64,
    pub(super) most_bytes: u64,
}

/// What trainers have leaves no room for a batch that its trainer needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoRoom {
    /// Bytes that the rank takes with the batch.
    pub(super) needed_bytes: u64,
    /// Bytes that other ranks leave it.
    pub(super) left_bytes: u64,
}

/// How the wait of a batch for room ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum RoomAnswer {
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
    pub(super) fn waits(&self) -> Option<RoomWait> {
        let state = self.memory.state.lock();
        let bytes = state.core.waits_for(self.key)?;
        Some(RoomWait { bytes, free_bytes: state.core.free_bytes(), most_bytes: state.core.most_bytes() })
    }

    /// Waits until the batch can go on or not.
    pub(super) async fn answer(&self) -> RoomAnswer {
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
    pub(super) fn is_released(&self) -> bool {
        self.signals.is_released.load(Relaxed)
    }

    /// Waits until the batch, which is filled, can be handed over, and returns true; false if it has to start again.
    pub(super) async fn released(&self) -> bool {
        loop {
            if self.is_revoked() || self.is_released() {
                return !self.is_revoked();
            }
            self.signals.changed.notified().await;
        }
    }

    /// Waits until the batch has to start again.
    pub(super) async fn revoked(&self) {
        while !self.is_revoked() {
            self.signals.changed.notified().await;
        }
    }

    /// Returns whether the batch has to start again, because a batch before it needs its room.
    pub(super) fn is_revoked(&self) -> bool {
        self.signals.is_revoked.load(Relaxed)
    }

    /// Returns whether some values found no room.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Relaxed)
    }

    /// Takes room for values of a sample, of which `beside_bytes` take memory beside the slot. Returns false if there is
    /// none.
    pub(super) fn take(&self, value_bytes: u64, beside_bytes: u64) -> bool {
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

    /// Returns the bytes that the batch needs by what is known of it, beside the columns of a fixed shape.
    fn needed_bytes(&self, beside: Beside) -> u64 {
        let end = self.values_at as u64 + self.value_bytes.load(Relaxed);
        let in_slot = end.next_multiple_of(PAGE_BYTES as u64).saturating_sub(self.fixed_stride as u64);
        let in_slot = in_slot.max(self.kept_bytes.load(Relaxed));
        match beside {
            Beside::Counts => in_slot + self.beside_bytes.load(Relaxed),
            Beside::IsFree => in_slot,
        }
    }

    /// Gives all room back, and the pages of the slot, and waits for as much as the batch needs.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub(super) fn restart(&self, slot: &mut SlotMut) -> Result<(), TooLarge> {
        let held_bytes = slot.give_back(self.fixed_stride);
        let kept_bytes = held_bytes.saturating_sub(self.fixed_stride) as u64;
        self.kept_bytes.store(kept_bytes, Relaxed);
        let value_bytes = self.value_bytes.load(Relaxed);
        self.memory.change(|state| {
            let beside = Beside::of(&state.core);
            // A batch that has to start again before all of it is decoded is not measured, but may have been before.
            let needed_bytes = self.needed_bytes(beside);
            let measured_bytes = self.asked_bytes.fetch_max(needed_bytes, Relaxed).max(needed_bytes);
            // What is a part of a block now can take memory of its own the next time.
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

    /// Notes that the batch is filled and takes `used_bytes` of its slot. Gives back what is more.
    pub(super) fn settle(&self, slot: &mut SlotMut, used_bytes: usize) {
        let held_bytes = slot.keep(used_bytes).saturating_sub(self.fixed_stride) as u64;
        self.memory.change(|state| {
            let needed_bytes = self.needed_bytes(Beside::of(&state.core));
            state.core.settle(self.key, needed_bytes, held_bytes);
        });
    }

    /// Notes that the trainer gets the batch.
    pub(super) fn hand_over(&self) {
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
