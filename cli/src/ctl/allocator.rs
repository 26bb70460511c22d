//! The settings of the C library's allocator, for commands whose memory is bounded.
#![allow(unsafe_code)] // Calls the allocator.

/// Size from which the memory of a buffer goes back to the system when the buffer is freed, in bytes.
#[cfg(target_env = "gnu")]
const LARGE_BUFFER_BYTES: libc::c_int = 1 << 20;

/// Makes the allocator give large buffers back as soon as they are freed. Otherwise each thread that ever held one
/// keeps its memory, which adds up to more than the memory in use.
pub(crate) fn return_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes two numbers and no pointers, and may be called at any time. If it fails, nothing changes.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES);
    }
}
