//! The settings of the C library's allocator in a worker process, whose memory is bounded.
#![allow(unsafe_code)] // Calls the allocator.

/// Makes all threads allocate from one arena. Otherwise there are up to eight for each core, and what a thread has freed, a
/// thread of another arena does not use: Parquet, whose blocks are decoded by one thread and then another, took 80 MB more than a
/// budget of 256 MiB. Threads do not wait for each other, as they allocate less than twice for each sample.
pub(crate) fn use_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes two numbers and no pointers, and may be called at any time. If it fails, nothing changes.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
