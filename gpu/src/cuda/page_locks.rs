//! Page-locks slots one by one, each when its first batch comes, on the NUMA node of the device where that is possible.
//!
//! To lock a whole slab is one call, which takes seconds for 16 GiB: it touches all pages, and holds the memory map of
//! the process meanwhile. A slot takes some milliseconds, and slots that the stream never needs are never locked.

use std::sync::Arc;

use spdl_wire::slab::Slab;

use super::{
    driver::{Context, PageLock},
    prefetcher::on_other_thread,
};

/// The page-locked slots of the slab that batches come from now. A fail-over brings a new slab.
pub(super) struct PageLocks {
    context: Arc<Context>,
    max_bytes: u64,
    current: Option<SlabLocks>,
}

struct SlabLocks {
    slab: Slab,
    slots: Box<[SlotLock]>,
    /// Whether the log has a warning about this slab.
    has_warned: bool,
}

#[derive(Clone)]
enum SlotLock {
    Untried,
    Locked(Arc<PageLock>),
    Refused,
}

impl PageLocks {
    /// Locks slots of slabs of at most `max_bytes`.
    pub(super) const fn new(context: Arc<Context>, max_bytes: u64) -> Self {
        Self { context, max_bytes, current: None }
    }

    /// Returns all locks, and keeps none.
    pub(super) fn take(&mut self) -> Self {
        Self { context: self.context.clone(), max_bytes: self.max_bytes, current: self.current.take() }
    }

    /// Lets the pages of a new slab be on the node of the device.
    fn place(&self, slab: &Slab) {
        let Some(node) = self.context.node() else { return };
        if let Err(error) = node.prefer_for(slab) {
            tracing::info!(
                "the slots are not placed on NUMA node {node}, where {} is: the system refuses `mbind`: {error}",
                self.context.placement()
            );
        }
    }

    /// Returns the lock of a slot, which has to be kept until no copy reads the slot. Locks the slot when it is asked
    /// for the first time, on another thread. Returns `None` where that is impossible; copies from the slot are then
    /// slower.
    pub(super) async fn of(&mut self, slab: Slab, slot: u32) -> Option<Arc<PageLock>> {
        if self.current.as_ref().is_none_or(|current| current.slab.as_ptr() != slab.as_ptr()) {
            self.place(&slab);
            let previous = self.current.replace(SlabLocks::new(slab, self.max_bytes));
            // Pending copies keep the locks of their slots.
            on_other_thread(move || drop(previous)).await;
        }
        let current = self.current.as_mut()?;
        let lock = &mut current.slots[slot as usize];
        if matches!(lock, SlotLock::Untried) {
            let (context, slab) = (self.context.clone(), current.slab.clone());
            let lock_pages = move || {
                if let Some(node) = context.node() {
                    // The log has the reason if the system places no memory.
                    let _ = node.attract(&slab, slot);
                }
                PageLock::new(&context, slab, slot)
            };
            *lock = match on_other_thread(lock_pages).await {
                Ok(lock) => SlotLock::Locked(Arc::new(lock)),
                Err(error) => {
                    if !std::mem::replace(&mut current.has_warned, true) {
                        let bytes = current.slab.bytes();
                        tracing::warn!(
                            "slot {slot} of a slab of {bytes} bytes is not page-locked, so copies are slower: {error}"
                        );
                    }
                    SlotLock::Refused
                }
            };
        }
        match lock {
            SlotLock::Locked(lock) => Some(lock.clone()),
            SlotLock::Untried | SlotLock::Refused => None,
        }
    }
}

impl SlabLocks {
    fn new(slab: Slab, max_bytes: u64) -> Self {
        let bytes = slab.bytes() as u64;
        let is_refused = bytes > max_bytes;
        if is_refused {
            tracing::warn!(
                "slab of {bytes} bytes is not page-locked: at most {max_bytes} bytes are \
                 (option `page_lock_max_bytes`); copies are slower"
            );
        }
        let lock = if is_refused { SlotLock::Refused } else { SlotLock::Untried };
        Self { slots: vec![lock; slab.slots() as usize].into(), slab, has_warned: is_refused }
    }
}
