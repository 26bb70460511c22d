//! Page-locks slots one by one, each when its first batch comes, if possible in the memory of the NUMA node of the
//! device.
//!
//! Locks only the bytes of a slot that its largest batch takes. The rest, room for larger ragged columns, is mere
//! address space, which locking would turn into memory. Locking a whole slab would be one call, but takes seconds for
//! 16 GiB: it touches all pages, and holds the memory map of the process meanwhile. Locking a slot takes some
//! milliseconds, and slots that the stream never needs are never locked. Unlocking pages waits for all work of the
//! device, so a slot whose batches become larger keeps its locks, and its further pages get a lock of their own.

use std::{ops::Range, sync::Arc};

use spdl_wire::slab::{PAGE_BYTES, Slab};

use super::driver::{Context, PageLock};

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

/// The locks of a slot.
#[derive(Clone, Default)]
struct SlotLock {
    pages: LockedPages,
    /// Whether the system has refused a lock, so that no further pages of the slot are locked.
    is_refused: bool,
}

/// The first pages of a slot, locked piece by piece. They stay locked as long as a clone of this exists.
#[derive(Clone, Default)]
pub(super) struct LockedPages(Arc<[Arc<PageLock>]>);

impl LockedPages {
    /// Returns how many of the slot's first bytes are locked.
    pub(super) fn bytes(&self) -> usize {
        self.0.last().map_or(0, |lock| lock.range().end)
    }

    /// Returns the parts of the slot's first `bytes` bytes that have to be copied one by one.
    pub(super) fn parts(&self, bytes: usize) -> impl Iterator<Item = Range<usize>> {
        let rest = self.bytes()..bytes;
        let locked = self.0.iter().map(move |lock| lock.range().start..lock.range().end.min(bytes));
        locked.chain([rest]).filter(|part| !part.is_empty())
    }

    /// Returns these locks and a further one.
    fn with(&self, lock: PageLock) -> Self {
        Self(self.0.iter().cloned().chain([Arc::new(lock)]).collect())
    }
}

impl PageLocks {
    /// Locks at most `max_bytes` of a slab.
    pub(super) const fn new(context: Arc<Context>, max_bytes: u64) -> Self {
        Self { context, max_bytes, current: None }
    }

    /// Moves all locks out.
    pub(super) fn take(&mut self) -> Self {
        Self { context: self.context.clone(), max_bytes: self.max_bytes, current: self.current.take() }
    }

    /// Asks the system to place the pages of a new slab on the node of the device.
    fn place(&self, slab: &Slab) {
        let Some(node) = self.context.node() else { return };
        if let Err(error) = node.prefer_for(slab) {
            tracing::info!(
                "the slots are not placed on NUMA node {node}, where {} is: the system refuses `mbind`: {error}",
                self.context.placement()
            );
        }
    }

    /// Returns the locks of a slot, which have to be kept until no copy reads the slot. Locks the slot on another thread
    /// when its first batch comes, and further pages when a batch of `bytes` is larger than what is locked. Where that is
    /// impossible, fewer bytes are locked, and copies from the slot are slower.
    pub(super) async fn of(&mut self, slab: Slab, slot: u32, bytes: usize) -> LockedPages {
        if self.current.as_ref().is_none_or(|current| current.slab.as_ptr() != slab.as_ptr()) {
            self.place(&slab);
            let previous = self.current.replace(SlabLocks::new(slab));
            // Pending copies keep the locks of their slots. Unlocking waits for the device, and the next batches must
            // not wait for that.
            drop(tokio::task::spawn_blocking(move || drop(previous)));
        }
        let Some(current) = self.current.as_mut() else { return LockedPages::default() };
        let SlotLock { pages, is_refused } = current.slots[slot as usize].clone();
        let locked = pages.bytes();
        if is_refused || locked >= bytes {
            return pages;
        }
        current.slots[slot as usize].is_refused = true;
        let left = usize::try_from(self.max_bytes.saturating_sub(current.locked_bytes)).unwrap_or(usize::MAX);
        let most = locked.saturating_add(left).min(current.slab.slot_stride());
        let least = bytes.next_multiple_of(PAGE_BYTES).min(current.slab.slot_stride());
        if least > most {
            let max_bytes = self.max_bytes;
            current.warn(|| {
                format!(
                    "a slot is not page-locked: it takes {least} bytes, and of a slab at most {max_bytes} are \
                     (option `page_lock_max_bytes`); copies are slower"
                )
            });
            return pages;
        }
        // A quarter more than before, so that a slot has few locks.
        let end = (locked + locked / 4).next_multiple_of(PAGE_BYTES).clamp(least, most);
        let (context, slab) = (self.context.clone(), current.slab.clone());
        let lock_pages = move || {
            if let Some(node) = context.node() {
                // The log has the reason if the system places no memory.
                let _ = node.attract(&slab, slot);
            }
            PageLock::new(&context, slab, slot, locked..end)
        };
        match on_other_thread(lock_pages).await {
            Ok(lock) => {
                let pages = pages.with(lock);
                current.slots[slot as usize] = SlotLock { pages: pages.clone(), is_refused: false };
                current.locked_bytes += (end - locked) as u64;
                pages
            }
            Err(error) => {
                current.warn(|| {
                    format!("slot {slot} is not page-locked, {least} bytes of it, so copies are slower: {error}")
                });
                pages
            }
        }
    }
}

impl SlabLocks {
    fn new(slab: Slab) -> Self {
        let slots = vec![SlotLock::default(); slab.slots() as usize].into();
        Self { slots, slab, locked_bytes: 0, has_warned: false }
    }

    /// Logs one warning for a slab.
    fn warn(&mut self, text: impl FnOnce() -> String) {
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!("{}", text());
        }
    }
}

/// Runs blocking calls on a thread for such calls, and waits for the result.
pub(super) async fn on_other_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let ended = tokio::task::spawn_blocking(body).await;
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
