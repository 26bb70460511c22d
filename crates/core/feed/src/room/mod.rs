//! Divides the memory for slots among the batches of a worker's ranks, as a state machine: it has no clock, does no I/O and
//! touches no memory.
//!
//! The memory for columns of a fixed shape is reserved for all slots of a rank when it attaches. The values of ragged
//! columns take room batch by batch. The rules keep ranks from waiting for each other's trainers:
//!
//! - The batches that a trainer needs soon, the first [`RankNeeds::least`] of its rank, take any room that is free.
//!   They are served in the order of how many batches their trainer has before them.
//! - All other batches are read ahead. They take room only while their rank holds at most its share, and at most as
//!   much as stays free afterwards, so that a rank that comes later finds room (the dynamic thresholds of Choudhury and
//!   Hahne for the buffers of switches): a rank alone takes half. Where there is room for the largest batches of all
//!   ranks, this rule does not apply.
//! - A trainer gets a batch that was read ahead only [once it needs it](RoomEffect::Release), because memory that a
//!   trainer holds cannot be taken back.
//! - A batch that a trainer needs takes the pages of free slots, and then the room of later batches that no trainer has
//!   yet, the latest first: they are [revoked](RoomEffect::Revoke), and filled once more.
//!
//! So there is no deadlock. A batch gets all the room that it waits for at once, and meanwhile keeps only what its slot
//! cannot give back, so no two batches wait for each other. A batch that a trainer needs never waits for a trainer,
//! which might wait for that batch: it gets the room of the batches that no trainer has, if need be by revoking them,
//! and if that is not enough it is [refused](RoomEffect::Refuse) at once. No batch is refused if there is room for
//! [`RankNeeds::least`] of the largest batches of each rank, and for what locked slots keep.

mod serve;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

/// A rank that has room, by the order in which ranks attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankId(u64);

/// A batch, from the start of its filling until it is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoomKey {
    /// The rank.
    pub rank: RankId,
    /// The number of the batch of the rank, from 0.
    pub sequence: u64,
}

/// What a rank needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankNeeds {
    /// Bytes that all its slots take without ragged values.
    pub fixed_bytes: u64,
    /// Bytes that the ragged values of all its slots can take at most.
    pub largest_bytes: u64,
    /// The number of slots.
    pub slots: u32,
    /// The number of batches that the trainer holds and waits for at once.
    pub least: u32,
}

/// An action that the shell has to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomEffect {
    /// The batch has the room that it waited for: `bytes` more.
    Grant {
        /// The batch.
        batch: RoomKey,
        /// The bytes.
        bytes: u64,
    },
    /// The batch has to [start again](RoomCore::restart): an earlier batch needs its room.
    Revoke {
        /// The batch.
        batch: RoomKey,
    },
    /// The batch, which is [filled](RoomCore::settle), can be [handed over](RoomCore::hand_over) when its turn has come.
    Release {
        /// The batch.
        batch: RoomKey,
    },
    /// The trainer needs the batch, but the memory that trainers hold leaves too little room for it: the rank has to
    /// end.
    Refuse {
        /// The batch.
        batch: RoomKey,
        /// Bytes that the rank takes with the batch, without its other batches that no trainer has.
        needed_bytes: u64,
        /// Bytes that other ranks leave it.
        left_bytes: u64,
    },
    /// The pages of the free slot are to be given back to the kernel.
    GiveBack {
        /// The rank.
        rank: RankId,
        /// The slot.
        slot: u32,
    },
}

/// Keeps account of the memory for slots. After each call carry out what [`poll_effect`](Self::poll_effect) returns.
#[derive(Debug)]
pub struct RoomCore {
    limit_bytes: u64,
    used_bytes: u64,
    ranks: BTreeMap<RankId, RankAccount>,
    batches: BTreeMap<RoomKey, BatchAccount>,
    waiting: usize,
    next_rank: u64,
    next_ticket: u64,
    effects: VecDeque<RoomEffect>,
}

#[derive(Debug)]
struct RankAccount {
    needs: RankNeeds,
    /// The number of batches that the trainer has given back.
    freed: u64,
    /// Bytes of ragged values: of batches, of slots that the trainer has, and of free slots.
    value_bytes: u64,
    /// Bytes that free slots hold.
    idle: BTreeMap<u32, IdleSlot>,
    /// The largest size of recent batches, in bytes; it decays towards the size of the latest.
    batch_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct IdleSlot {
    bytes: u64,
    is_locked: bool,
}

#[derive(Debug)]
struct BatchAccount {
    granted_bytes: u64,
    /// The part of `granted_bytes` that its slot cannot give back.
    locked_bytes: u64,
    waits: Option<Waits>,
    is_revoked: bool,
    filled: Filled,
}

/// Whether a batch can be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    No,
    Yes,
    Released,
}

#[derive(Clone, Copy, Debug)]
struct Waits {
    bytes: u64,
    /// Whether the bytes were measured; if not, the batch can start with less.
    is_exact: bool,
    ticket: u64,
}

impl RoomEffect {
    const fn rank(&self) -> RankId {
        match self {
            Self::Grant { batch, .. }
            | Self::Revoke { batch }
            | Self::Release { batch }
            | Self::Refuse { batch, .. } => batch.rank,
            Self::GiveBack { rank, .. } => *rank,
        }
    }
}

impl RankAccount {
    /// Returns the number of batches that the trainer has, or gets, before this one.
    const fn lead(&self, sequence: u64) -> u64 {
        sequence.saturating_sub(self.freed)
    }

    fn is_needed(&self, sequence: u64) -> bool {
        self.lead(sequence) < self.needs.least.into()
    }

    /// Returns the bytes that free slots can give back.
    fn idle_bytes(&self) -> u64 {
        self.idle.values().filter(|slot| !slot.is_locked).map(|slot| slot.bytes).sum()
    }
}

impl RoomCore {
    /// Creates the account of a worker that has `limit_bytes` for slots.
    #[must_use]
    pub const fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            used_bytes: 0,
            ranks: BTreeMap::new(),
            batches: BTreeMap::new(),
            waiting: 0,
            next_rank: 0,
            next_ticket: 0,
            effects: VecDeque::new(),
        }
    }

    /// Adds a rank. Returns `None` if there is no room for its slots.
    pub fn attach(&mut self, needs: RankNeeds) -> Option<RankId> {
        if !self.make_room(needs.fixed_bytes) {
            return None;
        }
        let rank = RankId(self.next_rank);
        self.next_rank += 1;
        self.used_bytes += needs.fixed_bytes;
        let room = RankAccount { needs, freed: 0, value_bytes: 0, idle: BTreeMap::new(), batch_bytes: 0 };
        self.ranks.insert(rank, room);
        Some(rank)
    }

    /// Removes a rank with all that it has.
    pub fn detach(&mut self, rank: RankId) {
        let Some(room) = self.ranks.remove(&rank) else { return };
        self.used_bytes -= room.needs.fixed_bytes + room.value_bytes;
        self.batches.retain(|batch, _| batch.rank != rank);
        self.waiting = self.batches.values().filter(|room| room.waits.is_some()).count();
        self.effects.retain(|effect| effect.rank() != rank);
        self.serve();
    }

    /// Starts a batch in a slot, whose pages the batch takes over. Returns their bytes, or `None` if the rank is gone.
    /// The batch waits until it has room for as much as batches of the rank needed lately, or until the trainer needs
    /// it.
    pub fn begin(&mut self, batch: RoomKey, slot: u32) -> Option<u64> {
        let rank = self.ranks.get_mut(&batch.rank)?;
        let idle = rank.idle.remove(&slot);
        let kept = idle.map_or(0, |slot| slot.bytes);
        let bytes = rank.batch_bytes.saturating_sub(kept);
        let account = BatchAccount {
            granted_bytes: kept,
            locked_bytes: idle.filter(|slot| slot.is_locked).map_or(0, |slot| slot.bytes),
            waits: None,
            is_revoked: false,
            filled: Filled::No,
        };
        self.batches.insert(batch, account);
        self.wait(batch, bytes, false);
        Some(kept)
    }

    /// Gives a batch `bytes` more if it can have them at once.
    pub fn extend(&mut self, batch: RoomKey, bytes: u64) -> bool {
        let Some(rank) = self.ranks.get(&batch.rank) else { return true };
        if self.batches.get(&batch).is_none_or(|room| room.is_revoked) {
            return false;
        }
        let lead = rank.lead(batch.sequence);
        let first = self.first_needed();
        let may = match first {
            Some(first) => rank.is_needed(batch.sequence) && lead < first,
            None => rank.is_needed(batch.sequence) || self.may_read_ahead(batch.rank, bytes),
        };
        if !may || !self.make_room(bytes) {
            return false;
        }
        self.grant(batch, bytes);
        true
    }

    /// Takes back the room of a batch, apart from the `kept_bytes` that its slot keeps. The batch then waits until it
    /// can have `bytes` at once.
    pub fn restart(&mut self, batch: RoomKey, kept_bytes: u64, bytes: u64) {
        let Some(room) = self.batches.get_mut(&batch) else { return };
        room.is_revoked = false;
        room.locked_bytes = kept_bytes;
        room.filled = Filled::No;
        self.set_granted(batch, kept_bytes);
        self.wait(batch, bytes.saturating_sub(kept_bytes), true);
    }

    /// Notes that a batch is filled: it needed `batch_bytes`, and its slot holds `held_bytes` of ragged values.
    pub fn settle(&mut self, batch: RoomKey, batch_bytes: u64, held_bytes: u64) {
        self.set_granted(batch, held_bytes);
        if let Some(rank) = self.ranks.get_mut(&batch.rank) {
            let faded = rank.batch_bytes - rank.batch_bytes.saturating_sub(batch_bytes).div_ceil(8);
            rank.batch_bytes = faded.max(batch_bytes);
        }
        if let Some(room) = self.batches.get_mut(&batch) {
            room.filled = Filled::Yes;
        }
        self.serve();
    }

    /// Notes that the trainer gets a batch that is filled. What its slot holds stays until the slot is freed.
    pub fn hand_over(&mut self, batch: RoomKey) {
        self.batches.remove(&batch);
        // The batch may have been revoked for another one, which then needs other room.
        self.serve();
    }

    /// Removes a batch that is not filled any more.
    pub fn abandon(&mut self, batch: RoomKey) {
        self.set_granted(batch, 0);
        if self.batches.remove(&batch).is_some_and(|room| room.waits.is_some()) {
            self.waiting -= 1;
        }
        self.serve();
    }

    /// Notes that the trainer has given a slot back, which holds `bytes` of ragged values. A locked slot keeps its pages.
    pub fn free(&mut self, rank: RankId, slot: u32, bytes: u64, is_locked: bool) {
        let Some(room) = self.ranks.get_mut(&rank) else { return };
        room.freed += 1;
        room.idle.insert(slot, IdleSlot { bytes, is_locked });
        self.serve();
    }

    /// Returns the next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<RoomEffect> {
        self.effects.pop_front()
    }

    /// Returns the bytes of all slots.
    #[must_use]
    pub const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Returns the bytes that are free, or would be if free slots gave their pages back.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        (self.limit_bytes + self.ranks.values().map(RankAccount::idle_bytes).sum::<u64>())
            .saturating_sub(self.used_bytes)
    }

    /// Returns the bytes that a batch waits for; `None` if it does not wait.
    #[must_use]
    pub fn waits_for(&self, batch: RoomKey) -> Option<u64> {
        self.batches.get(&batch)?.waits.map(|waits| waits.bytes)
    }

    /// Returns the bytes that the ragged values of a batch could take, beyond what its slot keeps, if there were no
    /// other batches.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        let locked =
            |rank: &RankAccount| rank.idle.values().filter(|slot| slot.is_locked).map(|slot| slot.bytes).sum::<u64>();
        let idle = self.ranks.values().map(|rank| rank.needs.fixed_bytes + locked(rank));
        let filling = self.batches.values().map(|room| room.locked_bytes);
        self.limit_bytes.saturating_sub(idle.chain(filling).fold(0, u64::saturating_add))
    }

    /// Returns the bytes for batches that no trainer has: the limit, without the bytes of trainers and of locked slots.
    fn left_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.staying_bytes())
    }

    /// Returns the bytes that a rank takes and cannot give back before its trainer does.
    fn rank_bytes(&self, rank: RankId) -> u64 {
        let Some(account) = self.ranks.get(&rank) else { return 0 };
        let coming: u64 = self.batches_of(rank).map(|(_, room)| room.granted_bytes - room.locked_bytes).sum();
        account.needs.fixed_bytes + account.value_bytes - account.idle_bytes() - coming
    }

    /// Returns the bytes that the slots take if all of them hold batches as large as recent ones.
    #[must_use]
    pub fn expected_bytes(&self) -> u64 {
        let expected = self.ranks.values().map(|rank| {
            rank.needs.fixed_bytes + rank.value_bytes.max(rank.batch_bytes.saturating_mul(rank.needs.slots.into()))
        });
        expected.sum::<u64>().min(self.limit_bytes).max(self.used_bytes)
    }

    fn staying_bytes(&self) -> u64 {
        self.ranks.keys().map(|rank| self.rank_bytes(*rank)).sum()
    }

    fn batches_of(&self, rank: RankId) -> impl Iterator<Item = (&RoomKey, &BatchAccount)> {
        self.batches.range(RoomKey { rank, sequence: 0 }..=RoomKey { rank, sequence: u64::MAX })
    }

    /// Returns whether there is room for the largest batches in all slots of all ranks.
    #[must_use]
    pub fn holds_all(&self) -> bool {
        let largest = self.ranks.values().map(|rank| rank.needs.fixed_bytes.saturating_add(rank.needs.largest_bytes));
        largest.fold(0, u64::saturating_add) <= self.limit_bytes
    }

    fn grant(&mut self, batch: RoomKey, bytes: u64) {
        let granted = self.batches.get(&batch).map_or(0, |room| room.granted_bytes);
        self.set_granted(batch, granted + bytes);
    }

    fn set_granted(&mut self, batch: RoomKey, bytes: u64) {
        let (Some(room), Some(rank)) = (self.batches.get_mut(&batch), self.ranks.get_mut(&batch.rank)) else { return };
        let before = std::mem::replace(&mut room.granted_bytes, bytes);
        rank.value_bytes = rank.value_bytes + bytes - before;
        self.used_bytes = self.used_bytes + bytes - before;
    }
}
