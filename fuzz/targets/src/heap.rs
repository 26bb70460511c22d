//! Counts the bytes that a thread allocates, so that a target's limit can be checked: a length that a peer or a file
//! claims must be refused before memory is allocated for it.
#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// The system's allocator, counted by thread. Make it the global allocator.
pub struct CountingAllocator;

thread_local! {
    /// Bytes in use, and their maximum since the count was reset.
    static IN_USE: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

fn count(bytes: i64) {
    // A thread that is being torn down is no longer counted.
    let _ = IN_USE.try_with(|in_use| {
        let (now, most) = in_use.get();
        let now = now + bytes;
        in_use.set((now, most.max(now)));
    });
}

const fn signed(bytes: usize) -> i64 {
    // The size of a layout is at most `isize::MAX`.
    bytes as i64
}

// SAFETY: every call is passed to the system's allocator unchanged; counting allocates nothing, because the cell is
// initialised at compile time and has no destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(signed(bytes) - signed(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(start, layout, bytes) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

/// Returns the most bytes that this thread had in use at once while `work` ran, beyond those before it.
pub fn max_bytes(work: impl FnOnce()) -> u64 {
    IN_USE.with(|in_use| in_use.set((0, 0)));
    work();
    IN_USE.with(|in_use| u64::try_from(in_use.get().1).expect("it starts at 0"))
}
