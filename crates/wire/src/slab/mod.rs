//! A slab: the slots of one rank, in memory that two processes can share.
//!
//! The state of each slot is kept in this process, never in the shared region, so that a peer can corrupt only the
//! bytes of its own batches.
//!
//! Only pages that were touched take memory. A slot [keeps](SlotMut::keep) the pages of its batch and gives back the
//! others, unless they are few. A free slot can [give back](Slab::give_back) the pages that not every batch needs. A
//! slot that a device reads directly gives back none, because its pages have to stay in place.
#![allow(unsafe_code)]

mod region;

use std::{
    ops::{Deref, DerefMut},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    mm::Advice,
};
use spdl_control::MAX_SLAB_BYTES;

use self::region::Region;

/// The most slots of a slab.
pub const MAX_SLOTS: u32 = 4096;
/// The size of the largest page that Linux may have on this architecture, in bytes; on 64-bit Arm, pages have 4, 16 or
/// 64 KiB. Slots start on page boundaries, so that each can be page-locked or given back alone: the kernel takes back
/// only whole pages.
pub const PAGE_BYTES: usize = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 64 << 10 };
/// A slot keeps the pages after its batch for a larger one if they have at most this many bytes plus one part in
/// [`SPARE_FRACTION`] of the batch: the kernel has to fill each page that it hands out again with zeros.
const SPARE_BYTES: usize = 64 << 10;
/// The divisor of the batch's length: a slot keeps up to a quarter of its batch as spare pages.
const SPARE_FRACTION: usize = 4;
/// The seals that keep a peer from changing the size of the region: an access past the end of a mapped file raises
/// SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A slab cannot be made or attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum SlabError {
    /// The size is zero or too large.
    #[error(
        "slab of {slots} slots of {slot_bytes} bytes: at most {MAX_SLOTS} slots and {MAX_SLAB_BYTES} bytes, and not none"
    )]
    Size { slots: u32, slot_bytes: u64 },
    /// A system call failed.
    #[error("slab of {bytes} bytes: `{call}` failed: {source}")]
    Os { call: &'static str, bytes: usize, source: std::io::Error },
    /// A descriptor from a peer is not the sealed memory that the peer announced.
    #[error("descriptor from the peer is not its slab: {problem}")]
    Foreign { problem: String },
}

/// Returns the distance from one slot to the next if a batch takes at most `slot_bytes`: whole pages. `None` if that is
/// zero or more than a slab may have.
#[must_use]
pub fn slot_stride(slot_bytes: usize) -> Option<usize> {
    let stride = slot_bytes.checked_next_multiple_of(PAGE_BYTES)?;
    (stride > 0 && stride as u64 <= MAX_SLAB_BYTES).then_some(stride)
}

/// Returns the end of the page that holds the last of `bytes`, at most `stride`.
fn page_end(bytes: usize, stride: usize) -> usize {
    bytes.min(stride).next_multiple_of(PAGE_BYTES)
}

/// Returns the bytes of a slab, if its size is allowed.
fn slab_bytes(slots: u32, stride: usize) -> Option<usize> {
    let bytes = (slots as usize).checked_mul(stride)?;
    ((1..=MAX_SLOTS).contains(&slots) && bytes > 0 && bytes as u64 <= MAX_SLAB_BYTES).then_some(bytes)
}

/// Slots of equal size in one memory region. Cheap to clone: all clones share the slab.
#[derive(Clone, Debug)]
pub struct Slab {
    inner: Arc<SlabInner>,
}

#[derive(Debug)]
struct SlabInner {
    region: Region,
    fd: Option<OwnedFd>,
    stride: usize,
    /// Which process fills the slots: this one, or the peer whose slab was attached.
    filler: FilledBy,
    slots: Box<[SlotRecord]>,
}

/// The state of a slot in this process.
#[derive(Debug, Default)]
struct SlotRecord {
    /// [`FREE`], [`FILLING`], or [`PUBLISHED`] plus the number of its readers.
    state: AtomicU32,
    /// Bytes from its start that may have been touched; pages after them take no memory.
    held_bytes: AtomicUsize,
    /// Whether a device reads its pages directly.
    is_locked: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilledBy {
    Us,
    Peer,
}

const FREE: u32 = 0;
const FILLING: u32 = 1;
const PUBLISHED: u32 = 2;

impl Slab {
    /// Makes a slab in a sealed memfd, which a peer can [attach](Slab::attach). All slots are free.
    pub fn shared(slots: u32, slot_bytes: usize) -> Result<Self, SlabError> {
        let (stride, bytes) = Self::checked(slots, slot_bytes)?;
        let os = |call| move |error: rustix::io::Errno| SlabError::Os { call, bytes, source: error.into() };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("spdl-slab", flags).map_err(os("memfd_create"))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(os("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(os("fcntl(F_ADD_SEALS)"))?;
        let region = Region::of_file(&fd, bytes).map_err(os("mmap"))?;
        Ok(Self::new(region, Some(fd), slots, stride, FilledBy::Us))
    }

    /// Makes a slab in memory of this process alone, which a forked child shares. All slots are free.
    pub fn private(slots: u32, slot_bytes: usize) -> Result<Self, SlabError> {
        let (stride, bytes) = Self::checked(slots, slot_bytes)?;
        let region =
            Region::anonymous(bytes).map_err(|error| SlabError::Os { call: "mmap", bytes, source: error.into() })?;
        Ok(Self::new(region, None, slots, stride, FilledBy::Us))
    }

    /// Attaches a peer's slab by the descriptor that it sent. Its slots are free until the peer reports that it
    /// [filled](Slab::publish_filled) them.
    ///
    /// Returns [`SlabError::Foreign`] if the descriptor is not sealed memory of exactly that size.
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
        Ok(Self::new(region, Some(fd), slots, stride, FilledBy::Peer))
    }

    fn checked(slots: u32, slot_bytes: usize) -> Result<(usize, usize), SlabError> {
        let stride = slot_stride(slot_bytes);
        stride
            .and_then(|stride| Some((stride, slab_bytes(slots, stride)?)))
            .ok_or(SlabError::Size { slots, slot_bytes: slot_bytes as u64 })
    }

    fn new(region: Region, fd: Option<OwnedFd>, slots: u32, stride: usize, filler: FilledBy) -> Self {
        assert_eq!(region.bytes, slots as usize * stride, "region of {slots} slots of {stride} bytes");
        let slots = (0..slots).map(|_| SlotRecord::default()).collect();
        Self { inner: Arc::new(SlabInner { region, fd, stride, filler, slots }) }
    }

    /// Takes a free slot to fill it. Returns `None` if it is not free, does not exist, or a peer fills this slab.
    #[must_use]
    pub fn try_take(&self, slot: u32) -> Option<SlotMut> {
        if self.inner.filler == FilledBy::Peer {
            return None;
        }
        let state = &self.inner.slots.get(slot as usize)?.state;
        state.compare_exchange(FREE, FILLING, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(SlotMut { slab: self.clone(), slot, is_published: false })
    }

    /// Takes the first free slot to fill it.
    #[must_use]
    pub fn take_any(&self) -> Option<SlotMut> {
        (0..self.slots()).find_map(|slot| self.try_take(slot))
    }

    /// Records that the peer has filled a slot of an [attached](Slab::attach) slab. Returns false if the slot is not
    /// free or does not exist: the peer broke the protocol.
    #[must_use]
    pub fn publish_filled(&self, slot: u32) -> bool {
        self.inner.filler == FilledBy::Peer && self.change(slot, FREE, PUBLISHED)
    }

    /// Returns a published slot for reading; several readers at once are allowed.
    #[must_use]
    pub fn read(&self, slot: u32) -> Option<SlotRef> {
        let state = &self.inner.slots.get(slot as usize)?.state;
        let more = |state: u32| (state >= PUBLISHED).then(|| state.checked_add(1).expect("fewer readers than 2^32"));
        state.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).ok()?;
        Some(SlotRef { slab: self.clone(), slot })
    }

    /// Frees a published slot. Returns false if it is not published, or a [`SlotRef`] of it still exists.
    #[must_use]
    pub fn release(&self, slot: u32) -> bool {
        self.change(slot, PUBLISHED, FREE)
    }

    fn change(&self, slot: u32, from: u32, to: u32) -> bool {
        let Some(record) = self.inner.slots.get(slot as usize) else { return false };
        record.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Records that a device reads a slot directly from now on, so that its pages have to stay. The slot must be
    /// published.
    ///
    /// # Panics
    /// Panics if there is no such slot.
    pub fn lock(&self, slot: u32) {
        self.inner.slots[slot as usize].is_locked.store(true, Ordering::Relaxed);
    }

    /// Returns whether the pages of a slot have to stay.
    ///
    /// # Panics
    /// Panics if there is no such slot.
    #[must_use]
    pub fn is_locked(&self, slot: u32) -> bool {
        self.inner.slots[slot as usize].is_locked.load(Ordering::Relaxed)
    }

    /// Returns the bytes from the start of a slot that may take memory because of the batches that were
    /// [kept](SlotMut::keep) in it.
    ///
    /// # Panics
    /// Panics if there is no such slot.
    #[must_use]
    pub fn held_bytes(&self, slot: u32) -> usize {
        self.inner.slots[slot as usize].held_bytes.load(Ordering::Relaxed)
    }

    /// Gives the pages of a free slot after its first `bytes` back to the kernel, unless the slot is locked. Returns
    /// the bytes that the slot then holds.
    ///
    /// # Panics
    /// Panics if there is no such slot.
    pub fn give_back(&self, slot: u32, bytes: usize) -> usize {
        match self.try_take(slot) {
            Some(mut free) => free.give_back(bytes),
            None => self.held_bytes(slot),
        }
    }

    /// Returns the number of slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        u32::try_from(self.inner.slots.len()).expect("at most MAX_SLOTS")
    }

    /// Returns the number of slots that are free at this moment.
    #[must_use]
    pub fn free_slots(&self) -> u32 {
        self.inner.slots.iter().map(|record| u32::from(record.state.load(Ordering::Relaxed) == FREE)).sum()
    }

    /// Returns the distance from one slot to the next, in bytes.
    #[must_use]
    pub fn slot_stride(&self) -> usize {
        self.inner.stride
    }

    /// Returns the bytes of all slots.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inner.region.bytes
    }

    /// Returns the start of the region.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.inner.region.start.as_ptr()
    }

    /// Returns the start of a slot, for page-locking its [`Slab::slot_stride`] bytes.
    ///
    /// # Panics
    /// Panics if there is no such slot.
    #[must_use]
    pub fn slot_ptr(&self, slot: u32) -> *const u8 {
        self.slot_start(slot).as_ptr()
    }

    /// Returns the descriptor, if the slab is shared.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd.as_ref().map(AsFd::as_fd)
    }

    /// Returns the address of a slot's first byte.
    fn slot_start(&self, slot: u32) -> NonNull<u8> {
        let inner = &*self.inner;
        assert!((slot as usize) < inner.slots.len(), "slot {slot} of {}", inner.slots.len());
        // SAFETY: `slot` is below the number of slots, and the region is slots * stride bytes (asserted in `new`), so
        // the result lies inside the mapping.
        unsafe { inner.region.start.add(slot as usize * inner.stride) }
    }
}

/// A slot that this process fills. Dropping it unpublished frees the slot.
#[derive(Debug)]
pub struct SlotMut {
    slab: Slab,
    slot: u32,
    /// Once true, the slot may belong to another user and must not be freed here.
    is_published: bool,
}

impl SlotMut {
    /// Returns the number of the slot.
    #[must_use]
    pub const fn slot(&self) -> u32 {
        self.slot
    }

    /// Records that the slot holds a batch of `used_bytes`, and gives the pages after it back to the kernel, unless
    /// they are few enough to keep for a larger batch. Returns the bytes that the slot holds.
    pub fn keep(&mut self, used_bytes: usize) -> usize {
        let used_bytes = page_end(used_bytes, self.slab.slot_stride());
        let record = &self.slab.inner.slots[self.slot as usize];
        let held_bytes = record.held_bytes.fetch_max(used_bytes, Ordering::Relaxed).max(used_bytes);
        if held_bytes - used_bytes > used_bytes / SPARE_FRACTION + SPARE_BYTES {
            return self.give_back(used_bytes);
        }
        held_bytes
    }

    /// Gives the pages after the first `bytes` back to the kernel, unless the slot is locked. Returns the bytes that
    /// the slot then holds.
    pub fn give_back(&mut self, bytes: usize) -> usize {
        let record = &self.slab.inner.slots[self.slot as usize];
        let (from, held_bytes) = (page_end(bytes, self.slab.slot_stride()), record.held_bytes.load(Ordering::Relaxed));
        if from >= held_bytes || record.is_locked.load(Ordering::Relaxed) {
            return held_bytes;
        }
        let start = self.slab.slot_start(self.slot);
        // SAFETY: the range begins and ends inside the slot, on borders of pages, and lies in the mapping, which `self.slab`
        // keeps alive. The slot is FILLING and `self` is borrowed for writing, so nothing in this process refers to its
        // bytes, which become zeros.
        let removed =
            unsafe { rustix::mm::madvise(start.add(from).as_ptr().cast(), held_bytes - from, Advice::LinuxRemove) };
        if removed.is_err() {
            return held_bytes;
        }
        record.held_bytes.store(from, Ordering::Relaxed);
        from
    }

    /// Ends the filling: the slot can be read until it is released. Returns the number of the slot.
    pub fn publish(mut self) -> u32 {
        self.is_published = true;
        let was = self.slab.inner.slots[self.slot as usize].state.swap(PUBLISHED, Ordering::Release);
        assert_eq!(was, FILLING, "slot {} is published by the thread that fills it", self.slot);
        self.slot
    }
}

impl Drop for SlotMut {
    fn drop(&mut self) {
        if !self.is_published {
            self.slab.inner.slots[self.slot as usize].state.store(FREE, Ordering::Release);
        }
    }
}

impl Deref for SlotMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot is FILLING, and only one `SlotMut` exists per FILLING slot, so nothing in this process
        // writes while `self` is borrowed. The slot lies in the mapping, which `self.slab` keeps alive.
        unsafe { std::slice::from_raw_parts(self.slab.slot_start(self.slot).as_ptr(), self.slab.slot_stride()) }
    }
}

impl DerefMut for SlotMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and no `SlotRef` exists: those need the slot to be PUBLISHED. The protocol forbids a
        // peer that maps the region to touch slots that were not announced as filled; a peer that breaks this corrupts
        // only the bytes of its own rank's batches, which this process does not trust.
        unsafe { std::slice::from_raw_parts_mut(self.slab.slot_start(self.slot).as_ptr(), self.slab.slot_stride()) }
    }
}

/// A reader of a published slot.
#[derive(Debug)]
pub struct SlotRef {
    slab: Slab,
    slot: u32,
}

impl SlotRef {
    /// Returns the number of the slot.
    #[must_use]
    pub const fn slot(&self) -> u32 {
        self.slot
    }

    /// Returns the slab that it belongs to.
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
        let was = self.slab.inner.slots[self.slot as usize].state.fetch_sub(1, Ordering::Release);
        debug_assert!(was > PUBLISHED, "slot {} had no reader to release", self.slot);
    }
}

impl Deref for SlotRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot is PUBLISHED with at least this reader, and `release` fails while there is one, so no
        // `SlotMut` of it exists in this process. The protocol forbids a peer that fills this slab to touch the slot
        // until it gets the message that the slot is free; every reader checks every offset, so a peer that breaks this causes wrong
        // samples and nothing worse. The slot lies in the mapping, which `self.slab` keeps alive.
        unsafe { std::slice::from_raw_parts(self.slab.slot_start(self.slot).as_ptr(), self.slab.slot_stride()) }
    }
}

#[cfg(test)]
mod tests;
