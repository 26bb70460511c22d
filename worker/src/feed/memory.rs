//! The memory for the batches of ranks, and the errors of ranks that find no room in it.

use std::sync::Arc;

use spdl_control::messages::Session;
use spdl_job::layout::Layout;
use spdl_types::Position;
use spdl_wire::slab::slot_stride;

use super::{
    FeedError,
    room::{NoRoom, NoSlots, SlabReservation, SlotMemory, SlotNeeds, TooLarge, fixed_stride},
};
use crate::{budget::Budget, fetch::Fetcher};

/// Default number of slots of a rank. When raised, more memory holds batches that wait; when lowered, the trainer
/// notices a slow batch.
pub const DEFAULT_SLOTS: u32 = 4;
/// Maximum number of slots of a rank.
pub const MAX_SLOTS: u32 = 64;
/// Minimum number of slots, unless the client asks for fewer: with one slot, nothing is filled while the trainer has a
/// batch.
const MIN_SLOTS: u32 = 2;

/// The memory of a process for slots.
#[derive(Debug)]
pub(crate) struct RankMemory {
    pub(super) budget: Budget,
    /// The bytes that slabs can have.
    slab_bytes: u64,
    pub(crate) slots: Arc<SlotMemory>,
}

impl RankMemory {
    /// Divides the memory of `budget` between slots and the blocks that `fetcher` caches.
    pub(super) fn new(budget: Budget, fetcher: &Arc<Fetcher>) -> Self {
        let shares = budget.shares();
        // Memory that may be lent to decoding is never used for slabs.
        let slab_bytes = shares.pool_bytes.saturating_sub(shares.lent_bytes);
        let slots = Arc::new(SlotMemory::new(shares.pool_bytes, slab_bytes, fetcher.clone()));
        Self { budget, slab_bytes, slots }
    }

    /// Reserves memory for the slab of a rank: for as many of the wanted slots as there is room. Ragged values take room
    /// later, as they come.
    pub(super) fn reserve(
        &self,
        session: &Session,
        rank: u32,
        from: Position,
        wanted: u32,
        layout: &Layout,
    ) -> Result<SlabReservation, FeedError> {
        let stride = slot_stride(layout.slot_bytes()).expect("checked with the session") as u64;
        let fixed_bytes = fixed_stride(layout) as u64;
        let wanted = if wanted == 0 { DEFAULT_SLOTS } else { wanted.min(MAX_SLOTS) };
        let least = MIN_SLOTS.min(wanted);
        let slot_bytes = fixed_bytes + session.partner_bytes(rank, from);
        let needs = SlotNeeds { fixed_bytes: slot_bytes, largest_bytes: stride - fixed_bytes, slots: [wanted, least] };
        self.slots.reserve(needs).map_err(|NoSlots { used_bytes, free_bytes }| FeedError::Memory {
            job: session.job.name.clone(),
            rank,
            slot_bytes,
            least,
            free_bytes,
            slab_bytes: self.slab_bytes,
            enough_bytes: Budget::memory_for(used_bytes + slot_bytes * u64::from(least), 0),
            budget_bytes: self.budget.memory_bytes,
        })
    }

    /// Returns the error of a batch whose ragged values need more memory than there can ever be for them.
    pub(super) fn too_large(&self, job: &str, rank: u32, layout: &Layout, error: TooLarge) -> FeedError {
        let TooLarge { needed_bytes, most_bytes } = error;
        let (slab_bytes, fixed_bytes) = (self.slab_bytes, fixed_stride(layout) as u64);
        let enough_bytes = slab_bytes.saturating_sub(most_bytes) + needed_bytes * u64::from(MIN_SLOTS);
        FeedError::Memory {
            job: job.to_owned(),
            rank,
            slot_bytes: fixed_bytes + needed_bytes,
            least: MIN_SLOTS,
            free_bytes: fixed_bytes + most_bytes,
            slab_bytes,
            enough_bytes: Budget::memory_for(enough_bytes, 0),
            budget_bytes: self.budget.memory_bytes,
        }
    }

    /// Returns the error of a rank whose next batch has no room beside the batches that trainers hold.
    pub(super) fn no_room(&self, job: &str, rank: u32, NoRoom { needed_bytes, left_bytes }: NoRoom) -> FeedError {
        let slab_bytes = self.slab_bytes;
        FeedError::NoRoom {
            job: job.to_owned(),
            rank,
            needed_bytes,
            left_bytes,
            slab_bytes,
            enough_bytes: Budget::memory_for(slab_bytes.saturating_sub(left_bytes) + needed_bytes, 0),
            budget_bytes: self.budget.memory_bytes,
        }
    }
}
