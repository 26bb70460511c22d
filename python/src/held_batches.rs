//! The batches that a program still holds, and the warning to one that holds all of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::batch_memory::{BatchMemory, SharedBatch};

/// How long a wait lasts, while the caller holds every slot, before it warns.
const EXHAUSTED_GRACE: Duration = Duration::from_secs(1);

/// Counts the batches that the caller still holds. `slots` is the most that there can be: the slots of the newest slab,
/// or the buffers on a device.
#[derive(Default)]
pub(crate) struct HeldBatches {
    /// Address of the slab; 0 on a device.
    slab: usize,
    slots: u32,
    held: Arc<AtomicU32>,
    is_warned: bool,
}

impl HeldBatches {
    /// Returns whether the caller holds all that there can be.
    pub(crate) fn is_all(&self) -> bool {
        self.slots > 0 && self.held.load(Ordering::Relaxed) >= self.slots
    }

    /// Returns the most batches that there can be.
    pub(crate) const fn slots(&self) -> u32 {
        self.slots
    }

    /// Counts a batch as held until it is dropped. On a device there are `buffers` of them.
    pub(crate) fn hold(&mut self, memory: BatchMemory, buffers: u32) -> SharedBatch {
        let slab = memory.slot().map(|(slab, _)| (slab.as_ptr().addr(), slab.slots()));
        let (address, slots) = slab.unwrap_or((0, buffers));
        if self.slab != address || self.slots != slots {
            // Another home has another slab: batches that are held of the old slab do not block this one.
            *self = Self { slab: address, slots, ..Self::default() };
        }
        let shared = SharedBatch::new(memory, self.held.clone());
        if self.held.load(Ordering::Relaxed) < slots {
            self.is_warned = false;
        }
        shared
    }

    /// Returns the warning to a caller that waits since `waiting_since` while it holds all batches, once.
    pub(crate) fn warning(&mut self, waiting_since: Instant) -> Option<String> {
        if self.is_warned || !self.is_all() || waiting_since.elapsed() < EXHAUSTED_GRACE {
            return None;
        }
        self.is_warned = true;
        let (has, more) =
            if self.slab == 0 { ("device buffers", "`buffers` in `DeviceOptions`") } else { ("slots", "`slots`") };
        Some(format!(
            "this loop keeps all {} batches that the loader has {has} for, so no other batch can be delivered: drop \
             earlier batches (copy what has to last, for instance with `.clone()`), or give the loader more {more}",
            self.slots
        ))
    }
}
