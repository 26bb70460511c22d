//! Memory for long ranges of shards, which stays mapped from one use to the next: a page that is there already costs no page fault, and
//! the system need not clear it.
//!
//! It lies within the budget of cached blocks and of what is read for one use. It is given back to the system when the budget shrinks, when other blocks need the
//! room, and when no rank reads any more.
#![allow(unsafe_code)] // Advises the system about memory.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

/// Memory that waits for its next use, and the counts by which it stays within the budget.
#[derive(Debug, Default)]
pub(crate) struct ReusedMemory(Mutex<ReusedState>);

#[derive(Debug, Default)]
struct ReusedState {
    /// Bytes that cached blocks may have.
    limit_bytes: u64,
    /// Bytes that are read for one use beside them, now or next.
    single_use_bytes: u64,
    /// Bytes that were lent and have not come back.
    lent_bytes: u64,
    /// Bytes of long blocks that are being read, for which memory was lent or will soon be.
    loading_bytes: u64,
    /// Bytes of cached blocks in other memory.
    other_bytes: u64,
    /// Ranks that read.
    readers: usize,
    /// Memory without a use, in the order in which it came back.
    idle: Vec<BytesMut>,
}

impl ReusedMemory {
    /// Changes the limit of cached blocks; what is lent and what waits stay within it and what is read for one use.
    pub(super) fn set_limit(&self, limit_bytes: u64) {
        self.change(|state| state.limit_bytes = limit_bytes);
    }

    /// Notes that so many bytes are read for one use at once. The next such read takes as many, so that much memory may wait for it.
    pub(super) fn note_single_use(&self, bytes: u64) {
        self.change(|state| state.single_use_bytes = bytes);
    }

    /// Notes the bytes of all cached blocks, those included that are being read.
    pub(super) fn note_used(&self, used_bytes: u64) {
        self.change(|state| {
            state.other_bytes = used_bytes.saturating_sub(state.lent_bytes + state.loading_bytes);
        });
    }

    /// Notes that a rank begins to read.
    pub(super) fn enter(&self) {
        self.0.lock().readers += 1;
    }

    /// Notes that a rank does not read any more.
    pub(super) fn leave(&self) {
        self.change(|state| state.readers -= 1);
    }

    /// Notes that a long block of `bytes` is being read, until the returned value is dropped.
    pub(super) fn loading(self: &Arc<Self>, bytes: u64) -> LoadingBytes {
        self.0.lock().loading_bytes += bytes;
        LoadingBytes { memory: self.clone(), bytes }
    }

    /// Lends memory of this length, which holds any bytes.
    pub(super) fn take(self: &Arc<Self>, length: usize) -> LentMemory {
        let idle = {
            let mut state = self.0.lock();
            state.lent_bytes += length as u64;
            // The smallest that has room, or else the largest.
            let order = |idle: &BytesMut| match idle.capacity() {
                room if room < length => usize::MAX - room,
                room => room,
            };
            let nearest = (0..state.idle.len()).min_by_key(|at| order(&state.idle[*at]));
            nearest.map(|at| state.idle.remove(at))
        };
        let bytes = resized(idle.unwrap_or_default(), length);
        // What was taken may have been shorter.
        self.change(|_| ());
        let lent = LentBytes { memory: self.clone(), bytes: length as u64 };
        LentMemory { bytes, _lent: Arc::new(lent) }
    }

    /// Takes memory back that is lent no more.
    fn keep(&self, bytes: BytesMut) {
        self.change(|state| state.idle.push(bytes));
    }

    /// Makes a change, and gives back what exceeds the limit then.
    fn change(&self, change: impl FnOnce(&mut ReusedState)) {
        let excess: Vec<BytesMut> = {
            let mut state = self.0.lock();
            change(&mut state);
            let limit_bytes = if state.readers == 0 { 0 } else { state.limit_bytes + state.single_use_bytes };
            let free_bytes = limit_bytes.saturating_sub(state.lent_bytes + state.other_bytes);
            let mut idle_bytes = state.idle_bytes();
            let given_back = state.idle.iter().take_while(|idle| {
                let exceeds = idle_bytes > free_bytes;
                idle_bytes -= idle.capacity() as u64;
                exceeds
            });
            let given_back = given_back.count();
            state.idle.drain(..given_back).collect()
        };
        // Unmapping takes long.
        drop(excess);
    }

    /// Returns the bytes that wait for their next use, and those that are lent.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> (u64, u64) {
        let state = self.0.lock();
        (state.idle_bytes(), state.lent_bytes)
    }
}

impl ReusedState {
    fn idle_bytes(&self) -> u64 {
        self.idle.iter().map(|idle| idle.capacity() as u64).sum()
    }
}

/// Keeps memory for a long block that is being read.
#[derive(Debug)]
pub(super) struct LoadingBytes {
    memory: Arc<ReusedMemory>,
    bytes: u64,
}

impl Drop for LoadingBytes {
    fn drop(&mut self) {
        self.memory.0.lock().loading_bytes -= self.bytes;
    }
}

/// Counts what is lent, until all of its pieces are dropped.
#[derive(Debug)]
struct LentBytes {
    memory: Arc<ReusedMemory>,
    bytes: u64,
}

impl Drop for LentBytes {
    fn drop(&mut self) {
        self.memory.0.lock().lent_bytes -= self.bytes;
    }
}

/// Memory that is lent, or a piece of it.
#[derive(Debug)]
pub(crate) struct LentMemory {
    pub(super) bytes: BytesMut,
    _lent: Arc<LentBytes>,
}

impl LentMemory {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Removes the first `length` bytes and returns them.
    pub(super) fn split_to(&mut self, length: usize) -> Self {
        Self { bytes: self.bytes.split_to(length), _lent: self._lent.clone() }
    }

    /// Returns whether `next` is the piece that came after this one when they were split.
    pub(super) fn is_before(&self, next: &Self) -> bool {
        Arc::ptr_eq(&self._lent, &next._lent) && self.bytes.as_ptr_range().end == next.bytes.as_ptr()
    }

    /// Appends the piece that came after this one when they were split.
    pub(super) fn unsplit(&mut self, next: Self) {
        debug_assert!(self.is_before(&next), "pieces of different memory");
        self.bytes.unsplit(next.bytes);
    }

    /// Returns the bytes, whose memory is used again when they are dropped.
    pub(super) fn freeze(self) -> Bytes {
        Bytes::from_owner(FrozenMemory(Some(self)))
    }
}

/// Read-only bytes. When they are dropped, their memory waits for its next use.
struct FrozenMemory(Option<LentMemory>);

impl AsRef<[u8]> for FrozenMemory {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |lent| &lent.bytes)
    }
}

impl Drop for FrozenMemory {
    fn drop(&mut self) {
        let Some(LentMemory { bytes, _lent: lent }) = self.0.take() else { return };
        let (memory, is_whole) = (lent.memory.clone(), bytes.len() as u64 == lent.bytes);
        drop(lent);
        if is_whole {
            memory.keep(bytes);
        }
    }
}

/// Returns memory of this length, with the pages of `idle` as far as they go. At most an eighth is spare, so that blocks of nearly one
/// length keep their pages.
fn resized(mut idle: BytesMut, length: usize) -> BytesMut {
    if (length..=length + length / 8).contains(&idle.capacity()) {
        idle.resize(length, 0);
        return idle;
    }
    let written = idle.len().min(length);
    if written == 0 {
        let mut new = BytesMut::zeroed(length);
        use_large_pages(&mut new);
        return new;
    }
    idle.truncate(written);
    // Converting it copies nothing, unless something else still has the memory.
    let mut memory = Vec::from(idle);
    memory.shrink_to(length);
    memory.reserve_exact(length - written);
    use_large_pages(memory.spare_capacity_mut());
    memory.resize(length, 0);
    Bytes::from(memory).into()
}

/// Asks for large pages. A system without them gives small ones.
fn use_large_pages<T>(memory: &mut [T]) {
    /// The largest size of ordinary pages.
    const PAGE_BYTES: usize = 64 << 10;
    let range = memory.as_mut_ptr_range();
    let start = (range.start as usize).next_multiple_of(PAGE_BYTES);
    let length = (range.end as usize).saturating_sub(start) / PAGE_BYTES * PAGE_BYTES;
    if length > 0 {
        // SAFETY: the pages lie inside `memory`, and the advice changes no byte of them.
        unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn memory(limit_mib: usize) -> Arc<ReusedMemory> {
        let memory = Arc::<ReusedMemory>::default();
        memory.set_limit((limit_mib * MIB) as u64);
        memory.enter();
        memory
    }

    /// Lends memory, fills it with `byte` and returns it frozen.
    fn filled(memory: &Arc<ReusedMemory>, length: usize, byte: u8) -> Bytes {
        let mut lent = memory.take(length);
        assert_eq!(lent.len(), length);
        lent.bytes.fill(byte);
        lent.freeze()
    }

    fn mib((idle, lent): (u64, u64)) -> (usize, usize) {
        assert!(idle.is_multiple_of(MIB as u64) && lent.is_multiple_of(MIB as u64), "{idle} {lent}");
        (idle as usize / MIB, lent as usize / MIB)
    }

    #[test]
    fn memory_of_any_length_is_used_again_with_all_its_bytes() {
        let memory = memory(100);
        drop(filled(&memory, 8 * MIB, 1));
        for length in [8 * MIB, 3 * MIB + 5, 9 * MIB + 1, 9 * MIB, 1, 40 * MIB] {
            let before = memory.bytes().0 as usize;
            let lent = memory.take(length);
            assert_eq!(memory.bytes(), (0, length as u64));
            let kept = before.min(length);
            assert!(lent.bytes[..kept].iter().all(|byte| *byte == 1), "{length}");
            assert!(lent.bytes[kept..].iter().all(|byte| *byte == 0), "{length}");
            drop(lent.freeze());
            drop(filled(&memory, length, 1));
        }
    }

    #[test]
    fn memory_of_nearly_the_same_length_keeps_its_pages() {
        let memory = memory(100);
        drop(filled(&memory, 8 * MIB, 1));
        for length in [8 * MIB - 100, 8 * MIB, 7 * MIB + MIB / 4, 8 * MIB] {
            let lent = memory.take(length);
            assert_eq!((lent.len(), lent.bytes.capacity()), (length, 8 * MIB));
            drop(lent.freeze());
            assert_eq!(mib(memory.bytes()), (8, 0));
        }
        // So much would be spare that others could need it.
        assert_eq!(memory.take(7 * MIB).bytes.capacity(), 7 * MIB);
    }

    #[test]
    fn what_is_lent_and_what_waits_stay_within_the_limit() {
        let memory = memory(10);
        let all: Vec<_> = [4, 3, 2].map(|length| filled(&memory, length * MIB, 1)).into();
        assert_eq!(mib(memory.bytes()), (0, 9));
        drop(all);
        assert_eq!(mib(memory.bytes()), (9, 0));
        // Nothing that waits is long enough, so the longest grows.
        let long = filled(&memory, 5 * MIB, 1);
        assert_eq!(mib(memory.bytes()), (5, 5));
        // A block that came from elsewhere takes room.
        memory.note_used(7 * MIB as u64);
        assert_eq!(mib(memory.bytes()), (2, 5));
        memory.set_limit(MIB as u64);
        assert_eq!(mib(memory.bytes()), (0, 5));
        drop(long);
        assert_eq!(mib(memory.bytes()), (0, 0));
    }

    #[test]
    fn a_block_that_is_being_read_keeps_the_memory_that_it_will_take() {
        let memory = memory(10);
        drop(filled(&memory, 8 * MIB, 1));
        let loading = memory.loading(8 * MIB as u64);
        memory.note_used(8 * MIB as u64);
        assert_eq!(mib(memory.bytes()), (8, 0));
        let block = filled(&memory, 8 * MIB, 1);
        drop(loading);
        memory.note_used(8 * MIB as u64);
        assert_eq!(mib(memory.bytes()), (0, 8));
        drop(block);
        assert_eq!(mib(memory.bytes()), (8, 0));
        memory.leave();
        assert_eq!(mib(memory.bytes()), (0, 0));
    }

    #[test]
    fn memory_of_what_is_read_for_one_use_waits_for_the_next_beside_full_caches() {
        let memory = memory(8);
        memory.note_single_use(3 * MIB as u64);
        let cached = [4, 4].map(|length| filled(&memory, length * MIB, 1));
        drop(filled(&memory, 3 * MIB, 1));
        assert_eq!(mib(memory.bytes()), (3, 8));
        // So much would not be there for the next.
        memory.note_single_use(2 * MIB as u64);
        assert_eq!(mib(memory.bytes()), (0, 8));
        drop(cached);
    }

    #[test]
    fn pieces_that_are_not_put_together_go_back_to_the_system() {
        let memory = memory(10);
        let mut lent = memory.take(4 * MIB);
        let first = lent.split_to(MIB);
        drop(lent);
        assert_eq!(mib(memory.bytes()), (0, 4));
        drop(first.freeze());
        assert_eq!(mib(memory.bytes()), (0, 0));
    }
}
