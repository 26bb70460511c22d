//! Streams of device work, the events in them, and kernels.

use std::{
    ffi::{CString, c_void},
    ptr,
    sync::Arc,
};

use cudarc::driver::sys::{self, CUresult};

use super::{Context, DeviceMemory};
use crate::DeviceError;

/// A point in a stream that others can wait for.
pub(crate) struct CudaEvent {
    context: Arc<Context>,
    pub(super) handle: sys::CUevent,
}

// SAFETY: an event may be used from any thread.
unsafe impl Send for CudaEvent {}
// SAFETY: as above; the driver synchronises its own state.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// Creates an event that counts as done until it is recorded.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        /// The driver's flags with which waiting threads sleep and no time stamps are taken.
        const BLOCKING_WITHOUT_TIMING: u32 = 1 | 2;
        let _current = context.enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is to a local of that type, and the context is current.
        let result = unsafe { sys::cuEventCreate(&raw mut handle, BLOCKING_WITHOUT_TIMING) };
        context.check("cuEventCreate", result)?;
        Ok(Self { context: context.clone(), handle })
    }

    /// Returns whether all work before the event is done.
    pub(crate) fn is_done(&self) -> Result<bool, DeviceError> {
        let _current = self.context.enter()?;
        // SAFETY: the event lives.
        match unsafe { sys::cuEventQuery(self.handle) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => self.context.check("cuEventQuery", result).map(|()| true),
        }
    }

    /// Blocks this thread until all work before the event is done.
    pub(crate) fn synchronise(&self) -> Result<(), DeviceError> {
        let _current = self.context.enter()?;
        // SAFETY: the event lives.
        self.context.check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.handle) })
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: created by `new`, destroyed once; the driver keeps it for what still waits for it.
        let _ = unsafe { sys::cuEventDestroy_v2(self.handle) };
    }
}

/// A queue of work for the device.
pub(crate) struct Stream {
    context: Arc<Context>,
    handle: sys::CUstream,
}

// SAFETY: a stream may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver serialises concurrent calls.
unsafe impl Sync for Stream {}

impl Stream {
    /// Creates a stream that does not wait for the default stream.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        const NON_BLOCKING: u32 = 1;
        let _current = context.enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is to a local of that type, and the context is current.
        let result = unsafe { sys::cuStreamCreate(&raw mut handle, NON_BLOCKING) };
        context.check("cuStreamCreate", result)?;
        Ok(Self { context: context.clone(), handle })
    }

    /// Makes later work on this stream wait for `event`.
    pub(crate) fn wait(&self, event: &CudaEvent) -> Result<(), DeviceError> {
        let _current = self.context.enter()?;
        // SAFETY: both live.
        self.context.check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.handle, event.handle, 0) })
    }

    /// Records `event` after all work queued so far.
    pub(crate) fn record(&self, event: &CudaEvent) -> Result<(), DeviceError> {
        let _current = self.context.enter()?;
        // SAFETY: both live.
        self.context.check("cuEventRecord", unsafe { sys::cuEventRecord(event.handle, self.handle) })
    }

    /// Queues a copy of `from` to offset `at` of `to`.
    ///
    /// # Safety
    /// `from` must stay unchanged and valid until the stream has passed the copy.
    pub(crate) unsafe fn copy(&self, from: &[u8], to: &DeviceMemory, at: usize) -> Result<(), DeviceError> {
        assert!(at + from.len() <= to.bytes, "{} bytes at {at} of {}", from.len(), to.bytes);
        let _current = self.context.enter()?;
        // SAFETY: both ranges have the given length; the caller keeps `from`, and memory of the device is freed only
        // when the device is done with it.
        let result =
            unsafe { sys::cuMemcpyHtoDAsync_v2(to.address + at as u64, from.as_ptr().cast(), from.len(), self.handle) };
        self.context.check("cuMemcpyHtoDAsync", result)
    }

    /// Queues a kernel with these arguments.
    ///
    /// # Safety
    /// The arguments must match the kernel's in number and size. The memory that it accesses through them must be the
    /// device's for as long as it runs.
    pub(crate) unsafe fn launch(
        &self,
        kernel: &Kernel,
        grid: [u32; 2],
        block: u32,
        arguments: &mut [Argument],
    ) -> Result<(), DeviceError> {
        let mut pointers: Vec<*mut c_void> = arguments.iter_mut().map(Argument::as_ptr).collect();
        let ([x, y], no_shared_bytes) = (grid, 0);
        let _current = self.context.enter()?;
        // SAFETY: the driver copies the arguments before it returns; the caller guarantees their number, sizes and
        // addresses.
        let result = unsafe {
            sys::cuLaunchKernel(
                kernel.function,
                x,
                y,
                1,
                block,
                1,
                1,
                no_shared_bytes,
                self.handle,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.context.check("cuLaunchKernel", result)
    }

    /// Blocks this thread until all work queued so far is done.
    pub(crate) fn synchronise(&self) -> Result<(), DeviceError> {
        let _current = self.context.enter()?;
        // SAFETY: the stream lives.
        self.context.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.handle) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: created by `new`, destroyed once; what was put there still runs.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.handle) };
    }
}

/// An argument of a kernel.
pub(crate) enum Argument {
    /// An address or a 64-bit number.
    Long(u64),
    /// A 32-bit number.
    Short(u32),
}

impl Argument {
    const fn as_ptr(&mut self) -> *mut c_void {
        match self {
            Self::Long(value) => (&raw mut *value).cast(),
            Self::Short(value) => (&raw mut *value).cast(),
        }
    }
}

/// A kernel, and the module that contains it.
pub(crate) struct Kernel {
    context: Arc<Context>,
    module: sys::CUmodule,
    function: sys::CUfunction,
}

// SAFETY: the handles may be used from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Compiles `ptx` for this device with the driver, and looks up the kernel `name` in it.
    pub(crate) fn new(context: &Arc<Context>, ptx: &str, name: &str) -> Result<Self, DeviceError> {
        let (image, name) = (CString::new(ptx), CString::new(name));
        let (image, name) = (image.expect("PTX is text"), name.expect("a name is text"));
        let _current = context.enter()?;
        let mut module = ptr::null_mut();
        // SAFETY: the pointer is to a local of that type; the image is PTX that ends with a zero.
        let result = unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
        context.check("cuModuleLoadData", result)?;
        let mut kernel = Self { context: context.clone(), module, function: ptr::null_mut() };
        // SAFETY: the pointer is to a field of that type; the module is loaded.
        let result = unsafe { sys::cuModuleGetFunction(&raw mut kernel.function, module, name.as_ptr()) };
        context.check("cuModuleGetFunction", result)?;
        Ok(kernel)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: loaded by `new`, unloaded once.
        let _ = unsafe { sys::cuModuleUnload(self.module) };
    }
}
