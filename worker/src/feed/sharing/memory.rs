//! The memory that holds shared samples. It is taken from the memory of cached blocks as it is needed, and reused:
//! mapping new pages takes several times as long as copying their content.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use crate::feed::room::{SampleReservation, SlotMemory};

/// Memory is reserved and given back in steps of this many bytes.
const STEP_BYTES: u64 = 4 << 20;
/// Smaller buffers go back to the allocator, which reuses them itself.
const LEAST_SPARE_BYTES: usize = 16 << 10;
/// How many spare buffers are looked at for one of the right size.
const LOOK_AT: usize = 8;

#[derive(Debug)]
pub(super) struct SharedMemory {
    pub(super) slots: Arc<SlotMemory>,
    pub(super) max_bytes: u64,
    used: Mutex<UsedMemory>,
    /// Whether the last request for a buffer found no room, and nothing was given up since. The next sweep clears it.
    is_full: AtomicBool,
    /// Whether buffers are used again.
    has_use: AtomicBool,
    /// Samples that were not kept because there was no room.
    pub(super) refused: AtomicU64,
}

#[derive(Debug, Default)]
struct UsedMemory {
    kept_bytes: u64,
    spare_bytes: u64,
    /// Buffers to use again. The last one was given back last, so that it is most likely in a processor's cache.
    spare: Vec<Vec<u8>>,
    /// The fewest spare buffers since the last sweep.
    least_spare: usize,
    reserved: Vec<SampleReservation>,
}

/// Buffers and reservations that are given up, to be dropped after unlocking.
type GivenUp = (Vec<Vec<u8>>, Vec<SampleReservation>);

/// Bytes that are kept; their memory is given back when dropped.
#[derive(Debug)]
pub(super) struct SharedBuffer {
    memory: Arc<SharedMemory>,
    bytes: Vec<u8>,
}

impl SharedMemory {
    /// Creates memory of at most `max_bytes`, which are taken from `slots`.
    pub(super) fn new(slots: Arc<SlotMemory>, max_bytes: u64) -> Arc<Self> {
        let (is_full, has_use, refused) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        Arc::new(Self { slots, max_bytes, used: Mutex::default(), is_full, has_use, refused })
    }

    /// Returns whether more may be kept.
    pub(super) fn may_keep(&self) -> bool {
        !self.is_full.load(Relaxed) && !self.slots.is_short()
    }

    /// Returns the bytes that are kept.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.used.lock().kept_bytes
    }

    /// Returns an empty buffer with room for `bytes` bytes, or `None` if there is no memory for it.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<SharedBuffer> {
        if self.slots.is_short() {
            return None;
        }
        let mut used = self.used.lock();
        let (mut buffer, mut unfit) = (used.take_spare(bytes), GivenUp::default());
        if buffer.is_none() {
            while !used.has_room(bytes as u64) {
                let next_bytes = STEP_BYTES * (used.reserved.len() as u64 + 1);
                let more = (next_bytes <= self.max_bytes).then(|| self.slots.reserve_shared(STEP_BYTES)).flatten();
                match more {
                    Some(more) => used.reserved.push(more),
                    None if used.spare.is_empty() => {
                        self.is_full.store(true, Relaxed);
                        return None;
                    }
                    // None of them has the right size.
                    None => unfit = used.give_up_spare(usize::MAX),
                }
            }
            buffer = Some(Vec::with_capacity(bytes));
        }
        let bytes = buffer?;
        used.kept_bytes += bytes.capacity() as u64;
        drop(used);
        drop(unfit);
        Some(SharedBuffer { memory: self.clone(), bytes })
    }

    /// Gives back what was not needed since the last call, and lets more be kept.
    pub(super) fn sweep(&self) {
        let mut used = self.used.lock();
        let unused = used.least_spare;
        let given_up = used.give_up_spare(unused);
        drop(used);
        drop(given_up);
        self.is_full.store(false, Relaxed);
    }

    /// Gives back the memory of all spare buffers.
    pub(super) fn give_back(&self) {
        let given_up = self.used.lock().give_up_spare(usize::MAX);
        drop(given_up);
    }

    /// Sets whether freed buffers are kept for reuse.
    pub(super) fn set_use(&self, has_use: bool) {
        self.has_use.store(has_use, Relaxed);
        if !has_use {
            self.give_back();
        }
    }
}

impl UsedMemory {
    fn has_room(&self, bytes: u64) -> bool {
        self.kept_bytes + self.spare_bytes + bytes <= STEP_BYTES * self.reserved.len() as u64
    }

    /// Returns a spare buffer with room for `bytes` bytes that is at most twice as large.
    fn take_spare(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let looked_at = self.spare.iter().enumerate().rev().take(LOOK_AT);
        let (at, _) = { looked_at }.find(|(_, buffer)| (bytes..=2 * bytes).contains(&buffer.capacity()))?;
        let buffer = self.spare.remove(at);
        self.spare_bytes -= buffer.capacity() as u64;
        self.least_spare = self.least_spare.min(self.spare.len());
        Some(buffer)
    }

    /// Gives up the oldest spare buffers, and what was reserved for them.
    fn give_up_spare(&mut self, count: usize) -> GivenUp {
        let buffers: Vec<_> = self.spare.drain(..count.min(self.spare.len())).collect();
        self.spare_bytes -= buffers.iter().map(|buffer| buffer.capacity() as u64).sum::<u64>();
        self.least_spare = self.spare.len();
        (buffers, self.give_up_reserved())
    }

    fn give_up_reserved(&mut self) -> Vec<SampleReservation> {
        let bytes = self.kept_bytes + self.spare_bytes;
        // One more step is kept, so that it is not reserved for each sample.
        let steps = bytes.div_ceil(STEP_BYTES) + u64::from(bytes > 0);
        self.reserved.split_off(self.reserved.len().min(usize::try_from(steps).unwrap_or(usize::MAX)))
    }
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.bytes);
        buffer.clear();
        let bytes = buffer.capacity();
        let memory = &self.memory;
        let mut given_up = GivenUp::default();
        let mut used = memory.used.lock();
        used.kept_bytes -= bytes as u64;
        if bytes >= LEAST_SPARE_BYTES && memory.has_use.load(Relaxed) && !memory.slots.is_short() {
            used.spare_bytes += bytes as u64;
            used.spare.push(buffer);
        } else {
            given_up = (vec![buffer], used.give_up_reserved());
        }
        drop(used);
        memory.is_full.store(false, Relaxed);
        drop(given_up);
    }
}

impl Deref for SharedBuffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Self::Target {
        &self.bytes
    }
}

impl DerefMut for SharedBuffer {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{budget::Budget, feed::Resources};

    const SAMPLE_BYTES: usize = 150_528;

    /// Returns memory for 8 MiB of what is kept.
    fn memory() -> Arc<SharedMemory> {
        let budget = Budget { cores: 1.0, memory_bytes: 256 << 20, disk: None };
        let resources = Resources::new("test", budget).expect("a thread");
        let memory = SharedMemory::new(resources.memory.slots.clone(), 2 * STEP_BYTES);
        memory.set_use(true);
        memory
    }

    /// Returns the bytes that are reserved, and the number of spare buffers.
    fn held(memory: &SharedMemory) -> (u64, usize) {
        let used = memory.used.lock();
        (STEP_BYTES * used.reserved.len() as u64, used.spare.len())
    }

    #[test]
    fn a_buffer_that_is_given_back_is_used_again_by_a_sample_of_about_its_size() {
        let memory = memory();
        let mut buffer = memory.take(SAMPLE_BYTES).unwrap();
        buffer.extend_from_slice(b"a sample");
        let at = buffer.as_ptr();
        drop(buffer);
        let small = memory.take(SAMPLE_BYTES / 3).unwrap();
        let again = memory.take(SAMPLE_BYTES - 1).unwrap();
        assert!(small.as_ptr() != at && again.as_ptr() == at && again.is_empty());
        assert_eq!(memory.kept_bytes(), (SAMPLE_BYTES + SAMPLE_BYTES / 3) as u64);
    }

    #[test]
    fn what_was_not_needed_since_the_last_sweep_is_given_back() {
        let memory = memory();
        let mut kept: Vec<_> = (0..40).map(|_| memory.take(SAMPLE_BYTES).unwrap()).collect();
        assert_eq!(held(&memory), (2 * STEP_BYTES, 0));
        kept.truncate(10);
        memory.sweep();
        assert_eq!(held(&memory).1, 30, "until then none was spare all the time");
        kept.extend((0..5).map(|_| memory.take(SAMPLE_BYTES).unwrap()));
        kept.truncate(10);
        memory.sweep();
        assert_eq!(held(&memory), (2 * STEP_BYTES, 5), "one step more than what is kept is reserved");
        drop(kept);
        memory.sweep();
        memory.sweep();
        assert_eq!((held(&memory), memory.kept_bytes()), ((0, 0), 0));
    }

    #[test]
    fn spare_buffers_make_room_for_samples_of_other_sizes() {
        let memory = memory();
        let fill = |bytes| std::iter::from_fn(|| memory.take(bytes)).collect::<Vec<_>>();
        let small = fill(SAMPLE_BYTES).len();
        assert_eq!(fill(1 << 20).len(), 8);
        assert!(memory.may_keep(), "all of it was given back");
        assert_eq!((small, fill(SAMPLE_BYTES).len()), (55, 55));
    }

    #[test]
    fn nothing_is_spare_once_no_rank_shares() {
        let memory = memory();
        let kept = memory.take(SAMPLE_BYTES).unwrap();
        drop(memory.take(SAMPLE_BYTES));
        memory.set_use(false);
        assert_eq!(held(&memory).1, 0);
        drop(kept);
        assert_eq!(held(&memory), (0, 0));
    }
}
