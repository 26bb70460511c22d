//! A slab: the slots of one rank, in memory that two processes can share.
//!
//! The state of each slot lives in this process, never in the shared region, so that a peer can spoil the bytes of
//! its own batches and nothing else.
#![allow(unsafe_code)]

use std::{
    ops::{Deref, DerefMut},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    mm::{MapFlags, ProtFlags},
};

/// The most slots of a slab.
pub const MAX_SLOTS: u32 = 4096;
/// The most bytes of a slab. Pages that no batch touches cost nothing, so this guards arithmetic, not memory.
pub const MAX_SLAB_BYTES: u64 = 1 << 40;
/// Slots start on a page, so that one can be page-locked or given back alone.
const PAGE_BYTES: usize = 4096;
/// What keeps the region from being changed under a reader's feet: a mapping past the end of a file is SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A slab that cannot be made or attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlabError {
    /// Nothing, or more than a slab may be.
    #[error(
        "slab of {slots} slots of {slot_bytes} bytes: at most {MAX_SLOTS} slots and {MAX_SLAB_BYTES} bytes, and not none"
    )]
    Size {
        /// Slots asked for.
        slots: u32,
        /// Bytes of each.
        slot_bytes: u64,
    },
    /// The kernel would not.
    #[error("slab of {bytes} bytes: `{call}` failed: {source}")]
    Os {
        /// The system call.
        call: &'static str,
        /// Bytes of the slab.
        bytes: usize,
        /// Why.
        source: std::io::Error,
    },
    /// A descriptor that came from a peer is not the sealed memory it was said to be.
    #[error("descriptor from the peer is not its slab: {problem}")]
    Foreign {
        /// What is wrong with it.
        problem: String,
    },
}

/// Distance from one slot to the next where a batch takes at most `slot_bytes`: whole pages. `None` when that is
/// nothing or more than a slab may be.
#[must_use]
pub fn slot_stride(slot_bytes: usize) -> Option<usize> {
    let stride = slot_bytes.checked_next_multiple_of(PAGE_BYTES)?;
    (stride > 0 && stride as u64 <= MAX_SLAB_BYTES).then_some(stride)
}

/// Bytes of a slab, where it is one that may be.
fn slab_bytes(slots: u32, stride: usize) -> Option<usize> {
    let bytes = (slots as usize).checked_mul(stride)?;
    ((1..=MAX_SLOTS).contains(&slots) && bytes > 0 && bytes as u64 <= MAX_SLAB_BYTES).then_some(bytes)
}

/// Slots of equal size in one region. Cheap to clone: all clones are one slab.
#[derive(Clone, Debug)]
pub struct Slab {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    region: Region,
    fd: Option<OwnedFd>,
    stride: usize,
    /// Whose hand fills the slots: ours, or that of the peer whose slab we attached.
    filler: Filler,
    /// [`FREE`], [`FILLING`], or [`PUBLISHED`] plus the number of its readers.
    states: Box<[AtomicU32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filler {
    Us,
    Peer,
}

const FREE: u32 = 0;
const FILLING: u32 = 1;
const PUBLISHED: u32 = 2;

impl Slab {
    /// A slab in a sealed memfd, which a peer can [attach](Slab::attach). All slots are free.
    ///
    /// # Errors
    /// [`SlabError`].
    pub fn shared(slots: u32, slot_bytes: usize) -> Result<Self, SlabError> {
        let (stride, bytes) = Self::checked(slots, slot_bytes)?;
        let os = |call| move |error: rustix::io::Errno| SlabError::Os { call, bytes, source: error.into() };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("spdl-slab", flags).map_err(os("memfd_create"))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(os("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(os("fcntl(F_ADD_SEALS)"))?;
        let region = Region::of_file(&fd, bytes).map_err(os("mmap"))?;
        Ok(Self::new(region, Some(fd), slots, stride, Filler::Us))
    }

    /// A slab in this process's own memory. All slots are free.
    ///
    /// # Errors
    /// [`SlabError`].
    pub fn private(slots: u32, slot_bytes: usize) -> Result<Self, SlabError> {
        let (stride, bytes) = Self::checked(slots, slot_bytes)?;
        let region =
            Region::anonymous(bytes).map_err(|error| SlabError::Os { call: "mmap", bytes, source: error.into() })?;
        Ok(Self::new(region, None, slots, stride, Filler::Us))
    }

    /// A peer's slab, from the descriptor it sent. Its slots are free until the peer says that it
    /// [filled](Slab::publish_filled) them.
    ///
    /// # Errors
    /// [`SlabError::Foreign`] when the descriptor is not sealed memory of exactly that size.
    pub fn attach(fd: OwnedFd, slots: u32, slot_stride: u64) -> Result<Self, SlabError> {
        let foreign = |problem: String| SlabError::Foreign { problem };
        let size = SlabError::Size { slots, slot_bytes: slot_stride };
        let Some(stride) = usize::try_from(slot_stride).ok().filter(|stride| stride % PAGE_BYTES == 0) else {
            return Err(foreign(format!("its slots are {slot_stride} bytes apart, which is not a number of pages")));
        };
        let bytes = slab_bytes(slots, stride).ok_or(size)?;
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| foreign("it has no seals".into()))?;
        if !seals.contains(SEALS) {
            return Err(foreign(format!("its size is not sealed (seals are {:#x})", seals.bits())));
        }
        let os = |call| move |error: rustix::io::Errno| SlabError::Os { call, bytes, source: error.into() };
        let actual = rustix::fs::fstat(&fd).map_err(os("fstat"))?.st_size;
        if u64::try_from(actual) != Ok(bytes as u64) {
            return Err(foreign(format!("it is {actual} bytes where {slots} slots take {bytes}")));
        }
        let region = Region::of_file(&fd, bytes).map_err(os("mmap"))?;
        Ok(Self::new(region, Some(fd), slots, stride, Filler::Peer))
    }

    fn checked(slots: u32, slot_bytes: usize) -> Result<(usize, usize), SlabError> {
        let stride = slot_stride(slot_bytes);
        stride
            .and_then(|stride| Some((stride, slab_bytes(slots, stride)?)))
            .ok_or(SlabError::Size { slots, slot_bytes: slot_bytes as u64 })
    }

    fn new(region: Region, fd: Option<OwnedFd>, slots: u32, stride: usize, filler: Filler) -> Self {
        assert_eq!(region.bytes, slots as usize * stride, "region of {slots} slots of {stride} bytes");
        let states = (0..slots).map(|_| AtomicU32::new(FREE)).collect();
        Self { inner: Arc::new(Inner { region, fd, stride, filler, states }) }
    }

    /// Takes a free slot to fill it. `None` when it is not free, there is no such slot, or a peer fills this slab.
    #[must_use]
    pub fn try_take(&self, slot: u32) -> Option<SlotMut> {
        if self.inner.filler == Filler::Peer {
            return None;
        }
        let state = self.inner.states.get(slot as usize)?;
        state.compare_exchange(FREE, FILLING, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(SlotMut { slab: self.clone(), slot, is_published: false })
    }

    /// Takes the first free slot to fill it.
    #[must_use]
    pub fn take_any(&self) -> Option<SlotMut> {
        (0..self.slots()).find_map(|slot| self.try_take(slot))
    }

    /// Notes that the peer has filled a slot of an [attached](Slab::attach) slab. False when the slot is not free or
    /// there is no such slot: the peer broke its word.
    #[must_use]
    pub fn publish_filled(&self, slot: u32) -> bool {
        self.inner.filler == Filler::Peer && self.change(slot, FREE, PUBLISHED)
    }

    /// A published slot, for reading; several may read it at once.
    #[must_use]
    pub fn read(&self, slot: u32) -> Option<SlotRef> {
        let state = self.inner.states.get(slot as usize)?;
        let more = |state: u32| (state >= PUBLISHED).then(|| state.checked_add(1).expect("fewer readers than 2^32"));
        state.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).ok()?;
        Some(SlotRef { slab: self.clone(), slot })
    }

    /// Makes a published slot free. False when it is not published, or a [`SlotRef`] of it is still alive.
    #[must_use]
    pub fn release(&self, slot: u32) -> bool {
        self.change(slot, PUBLISHED, FREE)
    }

    fn change(&self, slot: u32, from: u32, to: u32) -> bool {
        let Some(state) = self.inner.states.get(slot as usize) else { return false };
        state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Number of slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        u32::try_from(self.inner.states.len()).expect("at most MAX_SLOTS")
    }

    /// Slots that are free just then.
    #[must_use]
    pub fn free_slots(&self) -> u32 {
        self.inner.states.iter().map(|state| u32::from(state.load(Ordering::Relaxed) == FREE)).sum()
    }

    /// Distance from one slot to the next, in bytes.
    #[must_use]
    pub fn slot_stride(&self) -> usize {
        self.inner.stride
    }

    /// Bytes of all slots.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inner.region.bytes
    }

    /// Where the region begins, for whoever must page-lock it.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.inner.region.start.as_ptr()
    }

    /// The descriptor, where the slab is shared.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd.as_ref().map(AsFd::as_fd)
    }

    /// First byte of a slot.
    fn slot_start(&self, slot: u32) -> NonNull<u8> {
        let inner = &*self.inner;
        assert!((slot as usize) < inner.states.len(), "slot {slot} of {}", inner.states.len());
        // SAFETY: `slot` is below the number of slots, and the region is slots * stride bytes (asserted in `new`), so
        // the result lies inside the mapping.
        unsafe { inner.region.start.add(slot as usize * inner.stride) }
    }
}

/// A slot that this process fills. Free again when dropped unpublished.
#[derive(Debug)]
pub struct SlotMut {
    slab: Slab,
    slot: u32,
    /// From then on the slot may be in other hands.
    is_published: bool,
}

impl SlotMut {
    /// Which slot.
    #[must_use]
    pub const fn slot(&self) -> u32 {
        self.slot
    }

    /// Ends the filling: the slot can be read until it is released. Returns which slot it was.
    pub fn publish(mut self) -> u32 {
        self.is_published = true;
        let was = self.slab.inner.states[self.slot as usize].swap(PUBLISHED, Ordering::Release);
        assert_eq!(was, FILLING, "slot {} is published by whoever fills it", self.slot);
        self.slot
    }
}

impl Drop for SlotMut {
    fn drop(&mut self) {
        if !self.is_published {
            self.slab.inner.states[self.slot as usize].store(FREE, Ordering::Release);
        }
    }
}

impl Deref for SlotMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot is FILLING, and only one `SlotMut` exists per FILLING slot, so nobody in this process writes
        // while `self` is borrowed. The slot lies in the mapping, which `self.slab` keeps alive.
        unsafe { std::slice::from_raw_parts(self.slab.slot_start(self.slot).as_ptr(), self.slab.slot_stride()) }
    }
}

impl DerefMut for SlotMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and no `SlotRef` exists: those need the slot to be PUBLISHED. A peer that maps the
        // region has promised by the protocol to leave slots alone that it was not told to be filled; if it breaks that
        // promise it spoils only the bytes of its own rank's batches, which nobody here trusts.
        unsafe { std::slice::from_raw_parts_mut(self.slab.slot_start(self.slot).as_ptr(), self.slab.slot_stride()) }
    }
}

/// A published slot, being read.
#[derive(Debug)]
pub struct SlotRef {
    slab: Slab,
    slot: u32,
}

impl SlotRef {
    /// Which slot.
    #[must_use]
    pub const fn slot(&self) -> u32 {
        self.slot
    }

    /// The slab it belongs to.
    #[must_use]
    pub const fn slab(&self) -> &Slab {
        &self.slab
    }
}

impl Clone for SlotRef {
    fn clone(&self) -> Self {
        self.slab.read(self.slot).expect("a slot that is being read stays published")
    }
}

impl Drop for SlotRef {
    fn drop(&mut self) {
        let was = self.slab.inner.states[self.slot as usize].fetch_sub(1, Ordering::Release);
        debug_assert!(was > PUBLISHED, "slot {} had no reader to take away", self.slot);
    }
}

impl Deref for SlotRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot is PUBLISHED with at least this reader, and `release` refuses while there is one, so no
        // `SlotMut` of it exists in this process. A peer that fills this slab has promised by the protocol not to touch
        // the slot until it is told that it is free; whoever reads checks every offset, so a broken promise gives wrong
        // samples and nothing worse. The slot lies in the mapping, which `self.slab` keeps alive.
        unsafe { std::slice::from_raw_parts(self.slab.slot_start(self.slot).as_ptr(), self.slab.slot_stride()) }
    }
}

/// A mapping, unmapped when dropped.
#[derive(Debug)]
struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a `Region` is an address range that is valid in every thread; who may touch which part is decided by the
// atomic states of the slots.
unsafe impl Send for Region {}
// SAFETY: as above; `Region` itself has no method that touches the memory.
unsafe impl Sync for Region {}

impl Region {
    fn of_file(fd: &OwnedFd, bytes: usize) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null address lets the kernel choose, so no existing mapping is replaced. The file cannot shrink: it
        // is sealed, by us or as checked by `attach`.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, 0)? };
        Ok(Self { start: NonNull::new(start.cast()).expect("mmap never gives null"), bytes })
    }

    fn anonymous(bytes: usize) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a null address lets the kernel choose, so no existing mapping is replaced.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags)? };
        Ok(Self { start: NonNull::new(start.cast()).expect("mmap never gives null"), bytes })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by us, whole, and everything that borrows from it holds the slab that owns it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests;
