//! Memory that the pool and a child have both mapped.

use std::{io, os::fd::OwnedFd, ptr::NonNull, slice};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    mm::{MapFlags, ProtFlags},
};

/// The seals that keep a child from changing the size: an access behind the end of a mapped file raises SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Memory that two processes have mapped. Only pages that were touched take memory.
#[derive(Debug)]
pub(crate) struct FrameMemory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is valid in every thread, and Rust's rules of borrowing decide who may access it.
unsafe impl Send for FrameMemory {}
// SAFETY: as above.
unsafe impl Sync for FrameMemory {}

impl FrameMemory {
    /// Makes memory of zeros. Returns the descriptor by which another process maps it, too.
    pub(crate) fn make(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = rustix::fs::memfd_create("spdl-frames", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        Ok((Self::map(&fd, bytes)?, fd))
    }

    /// Maps memory that [`FrameMemory::make`] has made with so many bytes.
    pub(crate) fn map(fd: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null address lets the kernel choose, so no existing mapping is replaced. The file cannot shrink: `make` has sealed
        // it, and a child maps only what its parent has made.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, 0)? };
        Ok(Self { start: NonNull::new(start.cast()).expect("mmap never gives null"), bytes })
    }

    /// Returns the number of bytes.
    pub(crate) const fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has so many bytes until `self` is dropped, and nothing in this process writes while `self` is borrowed.
        // The protocol forbids the other process to write what it has handed over; a child that breaks this, because a damaged stream
        // has taken it over, causes other pixels and nothing worse: no number in this memory is a length or a place.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed for writing. The other process does not touch it before it gets the next
        // message; one that breaks this changes only what it reads or returns itself.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for FrameMemory {
    fn drop(&mut self) {
        // SAFETY: the whole range was mapped by us, and what borrows from it is gone.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
