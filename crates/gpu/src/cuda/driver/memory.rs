//! Memory of a device, and page-locked host memory, which the device can read directly.

use std::{
    ops::Range,
    ptr::{self, NonNull},
    sync::Arc,
};

use cudarc::driver::sys;
use spdl_wire::slab::Slab;

use super::{
    Context, Stream,
    library::{self, code},
};
use crate::DeviceError;

/// Memory of the device. If the device has memory pools, it is allocated and freed as work on a stream. A call that
/// frees memory at once waits for all work of the device: for ever, if a kernel waits for another process, and that one
/// for this process.
pub(crate) struct DeviceMemory {
    stream: Arc<Stream>,
    pub(super) address: sys::CUdeviceptr,
    pub(super) bytes: usize,
    /// Whether the memory is freed on the stream.
    is_pooled: bool,
}

impl DeviceMemory {
    /// Allocates memory that may be used on `stream`, and on other streams after that one has passed the allocation.
    pub(crate) fn new(stream: &Arc<Stream>, bytes: usize, purpose: &'static str) -> Result<Self, DeviceError> {
        let context = stream.context();
        let current = context.enter()?;
        let mut address = 0;
        let (mut call, mut result) = ("cuMemAllocAsync", code::NOT_SUPPORTED);
        if context.has_pools {
            // SAFETY: the pointer is to a local of that type, and the stream lives.
            result = unsafe { library::cuMemAllocAsync(&raw mut address, bytes, stream.handle) };
        }
        let is_pooled = result != code::NOT_SUPPORTED;
        if !is_pooled {
            call = "cuMemAlloc";
            // SAFETY: the pointer is to a local of that type, and the context is current.
            result = unsafe { library::cuMemAlloc_v2(&raw mut address, bytes) };
        }
        drop(current);
        if result == code::OUT_OF_MEMORY {
            let (free_bytes, total_bytes) = context.memory()?;
            let device = context.placement().to_string();
            return Err(DeviceError::OutOfMemory {
                device,
                purpose,
                asked_bytes: bytes as u64,
                free_bytes,
                total_bytes,
            });
        }
        context.check(call, result)?;
        Ok(Self { stream: stream.clone(), address, bytes, is_pooled })
    }

    /// Returns the stream on which the memory is freed. If there is none, dropping it waits for all work of the device.
    pub(crate) fn freed_on(&self) -> Option<&Stream> {
        self.is_pooled.then_some(&*self.stream)
    }

    pub(crate) const fn address(&self) -> usize {
        self.address as usize
    }

    /// Copies `from` to the start of the memory on `stream`, and waits for that. A copy without a stream is on the
    /// default stream, may land after its call, and is not ordered with streams that do not wait for that stream.
    pub(crate) fn fill(&self, from: &[u8], stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: `from` is borrowed until the stream has passed the copy.
        let queued = unsafe { stream.copy(from, self, 0) };
        queued.and(stream.synchronise())
    }

    /// Returns a copy of the bytes at `address`, which must lie in this memory.
    pub(crate) fn read(&self, address: usize, bytes: usize) -> Result<Vec<u8>, DeviceError> {
        let at = address - self.address();
        assert!(at + bytes <= self.bytes, "{bytes} bytes from {at} of {}", self.bytes);
        let mut to = vec![0; bytes];
        let context = self.stream.context();
        let _current = context.enter()?;
        // SAFETY: both ranges have the given length, and the call returns when it has written `to`.
        let result = unsafe { library::cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), self.address + at as u64, bytes) };
        context.check("cuMemcpyDtoH", result)?;
        Ok(to)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let Ok(_current) = self.stream.context().enter() else { return };
        let _ = if self.is_pooled {
            // SAFETY: allocated by `new`, freed once. The owner has made the stream wait for work on other streams.
            unsafe { library::cuMemFreeAsync(self.address, self.stream.handle) }
        } else {
            // SAFETY: allocated by `new`, freed once. The driver waits for what still uses it.
            unsafe { library::cuMemFree_v2(self.address) }
        };
    }
}

/// Memory of the host that the device copies from.
pub(crate) enum HostMemory {
    /// The device reads it directly.
    Locked(LockedMemory),
    /// The driver copies it to its own buffer first, and the call blocks its thread until then.
    Pageable(Box<[u8]>),
}

impl HostMemory {
    /// Returns ordinary memory that is filled with zeros.
    pub(crate) fn pageable(bytes: usize) -> Self {
        Self::Pageable(vec![0; bytes].into())
    }

    pub(crate) const fn is_locked(&self) -> bool {
        matches!(self, Self::Locked(_))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Locked(memory) => memory.bytes(),
            Self::Pageable(bytes) => bytes,
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Locked(memory) => memory.bytes_mut(),
            Self::Pageable(bytes) => bytes,
        }
    }
}

/// Page-locked memory of the host.
pub(crate) struct LockedMemory {
    context: Arc<Context>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, as a `Vec` does.
unsafe impl Send for LockedMemory {}
// SAFETY: as above.
unsafe impl Sync for LockedMemory {}

impl LockedMemory {
    /// Allocates memory that is filled with zeros.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, DeviceError> {
        let current = context.enter()?;
        let mut start = ptr::null_mut();
        // SAFETY: the pointer is to a local of that type, and the context is current.
        let result = unsafe { library::cuMemAllocHost_v2(&raw mut start, bytes) };
        context.check("cuMemAllocHost", result)?;
        drop(current);
        let start = NonNull::new(start.cast::<u8>()).expect("the driver gives no null");
        // SAFETY: the driver gave that many bytes.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self { context: context.clone(), start, bytes })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: that many bytes, initialised in `new`, and borrowed as `self` is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    const fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and borrowed for writing as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: allocated by `new`, freed once. The driver waits for copies from it.
        let _ = unsafe { library::cuMemFreeHost(self.start.as_ptr().cast()) };
    }
}

/// Pages of a slot that are locked, so that the device can read them directly. A copy may read the pages of one lock,
/// or unlocked pages: the driver refuses a copy that reads both, or pages of two locks. Dropping the lock waits for all
/// work of the device.
pub(crate) struct PageLock {
    context: Arc<Context>,
    slab: Slab,
    slot: u32,
    range: Range<usize>,
}

impl PageLock {
    /// Locks whole pages of a published slot; they stay in place from then on. No other lock of them may exist.
    pub(crate) fn new(context: &Arc<Context>, slab: Slab, slot: u32, range: Range<usize>) -> Result<Self, DeviceError> {
        /// The driver's flag that makes the lock valid for all contexts of this process.
        const PORTABLE: u32 = 1;
        let _current = context.enter()?;
        assert!(range.end <= slab.slot_stride(), "{range:?} of a slot of {} bytes", slab.slot_stride());
        let start = slab.slot_ptr(slot).wrapping_add(range.start).cast_mut().cast();
        // SAFETY: the range lies in a mapping, which `slab` keeps until after it is unlocked.
        let result = unsafe { library::cuMemHostRegister_v2(start, range.len(), PORTABLE) };
        context.check("cuMemHostRegister", result)?;
        slab.lock(slot);
        Ok(Self { context: context.clone(), slab, slot, range })
    }

    pub(crate) const fn range(&self) -> &Range<usize> {
        &self.range
    }
}

impl Drop for PageLock {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        let start = self.slab.slot_ptr(self.slot).wrapping_add(self.range.start).cast_mut().cast();
        // SAFETY: locked by `new`, unlocked once.
        let _ = unsafe { library::cuMemHostUnregister(start) };
    }
}
