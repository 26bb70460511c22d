//! Serves the batches that wait for room, by the rules of the parent module.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{BatchAccount, Filled, RankId, RoomCore, RoomEffect, RoomKey, Waits};

impl RoomCore {
    /// Returns the smallest lead of the waiting batches that trainers need and whose bytes were measured.
    pub(super) fn first_needed(&self) -> Option<u64> {
        if self.waiting == 0 {
            return None;
        }
        let waiting = self.batches.iter().filter(|(_, room)| room.waits.is_some_and(|waits| waits.is_exact));
        let needed = waiting.filter_map(|(batch, _)| {
            let rank = &self.ranks[&batch.rank];
            rank.is_needed(batch.sequence).then(|| rank.lead(batch.sequence))
        });
        needed.min()
    }

    /// Returns whether a batch that is read ahead may take `bytes`.
    pub(super) fn may_read_ahead(&self, rank: RankId, bytes: u64) -> bool {
        if self.holds_all() {
            return true;
        }
        let rank = &self.ranks[&rank];
        let held = rank.value_bytes - rank.idle_bytes();
        let fixed: u64 = self.ranks.values().map(|rank| rank.needs.fixed_bytes).sum();
        let share = self.limit_bytes.saturating_sub(fixed) / self.ranks.len() as u64;
        held.saturating_add(bytes) <= self.free_bytes().saturating_sub(bytes).min(share)
    }

    pub(super) fn wait(&mut self, batch: RoomKey, bytes: u64, is_exact: bool) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let Some(room) = self.batches.get_mut(&batch) else { return };
        self.waiting += usize::from(room.waits.is_none());
        room.waits = Some(Waits { bytes, is_exact, ticket });
        self.serve();
    }

    /// Serves the batches that wait, as far as there is room, and releases those that are filled and needed.
    pub(super) fn serve(&mut self) {
        let holds_all = self.holds_all();
        for (batch, room) in &mut self.batches {
            let is_needed = holds_all || self.ranks[&batch.rank].is_needed(batch.sequence);
            if is_needed && !room.is_revoked && room.filled == Filled::Yes {
                room.filled = Filled::Released;
                self.effects.push_back(RoomEffect::Release { batch: *batch });
            }
        }
        if self.waiting == 0 {
            return;
        }
        let order = |(batch, room): (&RoomKey, &BatchAccount)| {
            let waits = room.waits?;
            let rank = &self.ranks[&batch.rank];
            Some((!rank.is_needed(batch.sequence), rank.lead(batch.sequence), waits.ticket, *batch, waits))
        };
        let mut waiting: Vec<_> = self.batches.iter().filter_map(order).collect();
        waiting.sort_unstable_by_key(|(is_ahead, lead, ticket, ..)| (*is_ahead, *lead, *ticket));
        let mut passed = BTreeSet::new();
        for (is_ahead, lead, _, batch, Waits { bytes, is_exact, .. }) in waiting {
            let may = !is_ahead || (!passed.contains(&batch.rank) && self.may_read_ahead(batch.rank, bytes));
            if may && self.make_room(bytes) {
                self.end_wait(batch, bytes);
            } else if is_ahead {
                // Later batches of the rank have to wait, too.
                passed.insert(batch.rank);
            } else if is_exact && bytes > self.left_bytes() {
                self.refuse(batch, bytes);
            } else if is_exact {
                return self.revoke_after(lead, bytes);
            } else {
                self.end_wait(batch, 0);
            }
        }
    }

    fn end_wait(&mut self, batch: RoomKey, bytes: u64) {
        self.grant(batch, bytes);
        self.forget_wait(batch);
        self.effects.push_back(RoomEffect::Grant { batch, bytes });
    }

    fn refuse(&mut self, batch: RoomKey, bytes: u64) {
        self.forget_wait(batch);
        let rank_bytes = self.rank_bytes(batch.rank);
        let (needed_bytes, left_bytes) = (rank_bytes + bytes, rank_bytes + self.left_bytes());
        self.effects.push_back(RoomEffect::Refuse { batch, needed_bytes, left_bytes });
    }

    fn forget_wait(&mut self, batch: RoomKey) {
        if self.batches.get_mut(&batch).is_some_and(|room| room.waits.take().is_some()) {
            self.waiting -= 1;
        }
    }

    /// Revokes batches with a greater lead than `lead`, the greatest first, until `bytes` will be free for the batch
    /// that needs them.
    fn revoke_after(&mut self, lead: u64, bytes: u64) {
        let coming: u64 = self
            .batches
            .values()
            .filter(|room| room.is_revoked)
            .map(|room| room.granted_bytes - room.locked_bytes)
            .sum::<u64>();
        let mut lack = bytes.saturating_sub(self.free_bytes().saturating_add(coming));
        let ranks = &self.ranks;
        let mut later: Vec<_> = self
            .batches
            .iter_mut()
            .map(|(batch, room)| (ranks[&batch.rank].lead(batch.sequence), *batch, room))
            // A waiting batch whose bytes were measured has only what its slot cannot give back.
            .filter(|(its_lead, _, room)| *its_lead > lead && room.waits.is_none_or(|waits| !waits.is_exact))
            .filter(|(_, _, room)| !room.is_revoked && room.granted_bytes > room.locked_bytes)
            .collect();
        later.sort_unstable_by_key(|(lead, batch, _)| (Reverse(*lead), *batch));
        for (_, batch, room) in later {
            if lack == 0 {
                break;
            }
            room.is_revoked = true;
            lack = lack.saturating_sub(room.granted_bytes - room.locked_bytes);
            self.effects.push_back(RoomEffect::Revoke { batch });
        }
    }

    /// Frees `bytes`, if need be by the pages of free slots. Returns whether that was possible.
    pub(super) fn make_room(&mut self, bytes: u64) -> bool {
        if self.free_bytes() < bytes {
            return false;
        }
        while self.limit_bytes.saturating_sub(self.used_bytes) < bytes {
            let slots = self.ranks.iter().flat_map(|(id, rank)| {
                let slots = rank.idle.iter().filter(|(_, slot)| !slot.is_locked);
                slots.map(|(number, slot)| (slot.bytes, *id, *number)).max()
            });
            let (bytes, id, slot) = slots.max().expect("free slots have the bytes");
            let rank = self.ranks.get_mut(&id).expect("found above");
            rank.idle.remove(&slot);
            rank.value_bytes -= bytes;
            self.used_bytes -= bytes;
            self.effects.push_back(RoomEffect::GiveBack { rank: id, slot });
        }
        true
    }
}
