//! The settings of the C library's allocator, for processes whose memory is bounded. Other C libraries than glibc have none.
#![allow(unsafe_code)] // Calls the allocator.

/// Size from which the memory of a buffer goes back to the system when the buffer is freed, in bytes.
#[cfg(target_env = "gnu")]
const LARGE_BUFFER_BYTES: libc::c_int = 1 << 20;

/// Lets all threads allocate from so few arenas. Otherwise there are up to eight for each core, and what a thread has freed, a thread of
/// another arena does not use: it takes new memory, whose pages fault one by one, and the process grows.
pub fn use_arenas(count: usize) {
    #[cfg(target_env = "gnu")]
    set(libc::M_ARENA_MAX, libc::c_int::try_from(count).unwrap_or(libc::c_int::MAX));
    #[cfg(not(target_env = "gnu"))]
    let _ = count;
}

/// Makes the allocator give large buffers back as soon as they are freed. Otherwise each thread that ever held one
/// keeps its memory, which adds up to more than the memory in use.
pub fn return_large_buffers() {
    #[cfg(target_env = "gnu")]
    set(libc::M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES);
}

#[cfg(target_env = "gnu")]
fn set(setting: libc::c_int, value: libc::c_int) {
    // SAFETY: `mallopt` takes two numbers and no pointers, and may be called at any time. If it fails, nothing changes.
    unsafe {
        libc::mallopt(setting, value);
    }
}
