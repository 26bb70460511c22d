//! The memory of a slab: one mapping, which a file may back.

use std::{os::fd::OwnedFd, ptr::NonNull};

use rustix::mm::{MapFlags, ProtFlags};

/// A mapping, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) start: NonNull<u8>,
    pub(super) bytes: usize,
}

// SAFETY: a `Region` is an address range that is valid in every thread; the atomic states of the slots decide which
// thread may access which part.
unsafe impl Send for Region {}
// SAFETY: as above; `Region` itself has no method that accesses the memory.
unsafe impl Sync for Region {}

impl Region {
    pub(super) fn of_file(fd: &OwnedFd, bytes: usize) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null address lets the kernel choose, so no existing mapping is replaced. The file cannot shrink: it
        // is sealed, by us or as checked by `attach`.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, 0)? };
        Ok(Self { start: NonNull::new(start.cast()).expect("mmap never gives null"), bytes })
    }

    pub(super) fn anonymous(bytes: usize) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // Not a private mapping: after a fork, the first write to each of its pages would go to a new page, while a
        // device that reads page-locked memory goes on with the old one.
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a null address lets the kernel choose, so no existing mapping is replaced.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags)? };
        Ok(Self { start: NonNull::new(start.cast()).expect("mmap never gives null"), bytes })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the whole range was mapped by us, and everything that borrows from it holds the slab that owns it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
