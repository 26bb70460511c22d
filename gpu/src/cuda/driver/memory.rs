//! Memory of a device, and page-locked host memory, which the device can read directly.

use std::{
    ptr::{self, NonNull},
    sync::Arc,
};

use cudarc::driver::sys::{self, CUresult};
use spdl_wire::slab::Slab;

use super::Context;
use crate::DeviceError;

/// Memory of the device.
pub(crate) struct DeviceMemory {
    context: Arc<Context>,
    pub(super) address: sys::CUdeviceptr,
    pub(super) bytes: usize,
}

impl DeviceMemory {
    pub(crate) fn new(context: &Arc<Context>, bytes: usize, purpose: &'static str) -> Result<Self, DeviceError> {
        let current = context.enter()?;
        let mut address = 0;
        // SAFETY: the pointer is to a local of that type, and the context is current.
        let result = unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) };
        drop(current);
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
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
        context.check("cuMemAlloc", result)?;
        Ok(Self { context: context.clone(), address, bytes })
    }

    pub(crate) const fn address(&self) -> usize {
        self.address as usize
    }

    /// Copies `from` to the start of the memory, and waits for that.
    pub(crate) fn fill(&self, from: &[u8]) -> Result<(), DeviceError> {
        assert!(from.len() <= self.bytes, "{} bytes into {}", from.len(), self.bytes);
        let _current = self.context.enter()?;
        // SAFETY: both ranges have the given length, and the call returns when it has read `from`.
        let result = unsafe { sys::cuMemcpyHtoD_v2(self.address, from.as_ptr().cast(), from.len()) };
        self.context.check("cuMemcpyHtoD", result)
    }

    /// Returns a copy of the bytes at `address`, which must lie in this memory.
    pub(crate) fn read(&self, address: usize, bytes: usize) -> Result<Vec<u8>, DeviceError> {
        let at = address - self.address();
        assert!(at + bytes <= self.bytes, "{bytes} bytes from {at} of {}", self.bytes);
        let mut to = vec![0; bytes];
        let _current = self.context.enter()?;
        // SAFETY: both ranges have the given length, and the call returns when it has written `to`.
        let result = unsafe { sys::cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), self.address + at as u64, bytes) };
        self.context.check("cuMemcpyDtoH", result)?;
        Ok(to)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: allocated by `new`, freed once. The driver waits for what still uses it.
        let _ = unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// Page-locked host memory.
pub(crate) struct HostMemory {
    context: Arc<Context>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, as a `Vec` does.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates memory that is filled with zeros.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, DeviceError> {
        let current = context.enter()?;
        let mut start = ptr::null_mut();
        // SAFETY: the pointer is to a local of that type, and the context is current.
        let result = unsafe { sys::cuMemAllocHost_v2(&raw mut start, bytes) };
        context.check("cuMemAllocHost", result)?;
        drop(current);
        let start = NonNull::new(start.cast::<u8>()).expect("the driver gives no null");
        // SAFETY: the driver gave that many bytes.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self { context: context.clone(), start, bytes })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: that many bytes, initialised in `new`, and borrowed as `self` is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and borrowed for writing as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: allocated by `new`, freed once. The driver waits for copies from it.
        let _ = unsafe { sys::cuMemFreeHost(self.start.as_ptr().cast()) };
    }
}

/// A slab whose pages are locked, so that the device can read them directly.
pub(crate) struct PageLock {
    context: Arc<Context>,
    slab: Slab,
}

impl PageLock {
    pub(crate) fn new(context: &Arc<Context>, slab: Slab) -> Result<Self, DeviceError> {
        /// The driver's flag that makes the lock valid for all contexts of this process.
        const PORTABLE: u32 = 1;
        let _current = context.enter()?;
        let start = slab.as_ptr().cast_mut().cast();
        // SAFETY: the range is a mapping of that size, which `slab` keeps until after it is unlocked.
        let result = unsafe { sys::cuMemHostRegister_v2(start, slab.bytes(), PORTABLE) };
        context.check("cuMemHostRegister", result)?;
        Ok(Self { context: context.clone(), slab })
    }

    pub(crate) const fn slab(&self) -> &Slab {
        &self.slab
    }
}

impl Drop for PageLock {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: locked by `new`, unlocked once.
        let _ = unsafe { sys::cuMemHostUnregister(self.slab.as_ptr().cast_mut().cast()) };
    }
}
