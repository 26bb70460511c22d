//! Page-locks slots one by one, each when its first batch comes, on the NUMA node of the device where that is possible.
//!
//! Of a slot as much is locked as its largest batch takes: the rest of what a layout with ragged columns has room for is
//! address space, which would become memory. To lock a whole slab is one call, which takes seconds for 16 GiB: it touches
//! all pages, and holds the memory map of the process meanwhile. A slot takes some milliseconds, and slots that the stream
//! never needs are never locked.

use std::sync::Arc;

use spdl_wire::slab::{PAGE_BYTES, Slab};

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
    locked_bytes: u64,
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
    /// Locks at most `max_bytes` of a slab.
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

    /// Returns the lock of a slot, which has to be kept until no copy reads the slot. Locks the slot on another thread when its
    /// first batch comes, and anew when a batch of `bytes` is larger than what is locked. Returns `None` where that is
    /// impossible; copies from the slot are then slower.
    pub(super) async fn of(&mut self, slab: Slab, slot: u32, bytes: usize) -> Option<Arc<PageLock>> {
        if self.current.as_ref().is_none_or(|current| current.slab.as_ptr() != slab.as_ptr()) {
            self.place(&slab);
            let previous = self.current.replace(SlabLocks::new(slab));
            // Pending copies keep the locks of their slots.
            on_other_thread(move || drop(previous)).await;
        }
        let current = self.current.as_mut()?;
        let (before, lock_before) = match &current.slots[slot as usize] {
            SlotLock::Refused => return None,
            SlotLock::Locked(lock) if lock.bytes() >= bytes => return Some(lock.clone()),
            SlotLock::Locked(lock) => (lock.bytes() as u64, Some(lock.clone())),
            SlotLock::Untried => (0, None),
        };
        current.slots[slot as usize] = SlotLock::Refused;
        current.locked_bytes -= before;
        let left = self.max_bytes.saturating_sub(current.locked_bytes);
        let bytes = bytes.next_multiple_of(PAGE_BYTES).min(current.slab.slot_stride());
        if bytes as u64 > left {
            let max_bytes = self.max_bytes;
            current.warn(|| {
                format!(
                    "a slot is not page-locked: it takes {bytes} bytes, and of a slab at most {max_bytes} are \
                     (option `page_lock_max_bytes`); copies are slower"
                )
            });
            on_other_thread(move || drop(lock_before)).await;
            return None;
        }
        let (context, slab) = (self.context.clone(), current.slab.clone());
        let lock_pages = move || {
            // The slot has a batch that nothing copies yet, so no copy has this lock.
            drop(lock_before);
            if let Some(node) = context.node() {
                // The log has the reason if the system places no memory.
                let _ = node.attract(&slab, slot);
            }
            PageLock::new(&context, slab, slot, bytes)
        };
        match on_other_thread(lock_pages).await {
            Ok(lock) => {
                let lock = Arc::new(lock);
                current.slots[slot as usize] = SlotLock::Locked(lock.clone());
                current.locked_bytes += bytes as u64;
                Some(lock)
            }
            Err(error) => {
                current.warn(|| {
                    format!("slot {slot} is not page-locked, {bytes} bytes of it, so copies are slower: {error}")
                });
                None
            }
        }
    }
}

impl SlabLocks {
    fn new(slab: Slab) -> Self {
        let slots = vec![SlotLock::Untried; slab.slots() as usize].into();
        Self { slots, slab, locked_bytes: 0, has_warned: false }
    }

    /// Logs one warning for a slab.
    fn warn(&mut self, text: impl FnOnce() -> String) {
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!("{}", text());
        }
    }
}
