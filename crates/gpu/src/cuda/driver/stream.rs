//! Streams of device work, the events in them, and kernels.

use std::{
    ffi::{CString, c_void},
    ptr,
    sync::Arc,
};

use cudarc::driver::sys;

use super::{Context, DeviceMemory, check_with, library};
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
        let result = unsafe { library::cuEventCreate(&raw mut handle, BLOCKING_WITHOUT_TIMING) };
        context.check("cuEventCreate", result)?;
        Ok(Self { context: context.clone(), handle })
    }

    /// Blocks this thread until all work before the event is done.
    pub(crate) fn synchronise(&self) -> Result<(), DeviceError> {
        let _current = self.context.enter()?;
        // SAFETY: the event lives.
        self.context.check("cuEventSynchronize", unsafe { library::cuEventSynchronize(self.handle) })
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: created by `new`, destroyed once; the driver keeps it for what still waits for it.
        let _ = unsafe { library::cuEventDestroy_v2(self.handle) };
    }
}

/// A queue of work for the device.
pub(crate) struct Stream {
    context: Arc<Context>,
    pub(super) handle: sys::CUstream,
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
        let result = unsafe { library::cuStreamCreate(&raw mut handle, NON_BLOCKING) };
        context.check("cuStreamCreate", result)?;
        Ok(Self { context: context.clone(), handle })
    }

    pub(crate) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Makes later work on this stream wait for `event`.
    pub(crate) fn wait(&self, event: &CudaEvent) -> Result<(), DeviceError> {
        let _current = self.context.enter()?;
        // SAFETY: both live.
        self.context.check("cuStreamWaitEvent", unsafe { library::cuStreamWaitEvent(self.handle, event.handle, 0) })
    }

    /// Records `event` after all work queued so far.
    pub(crate) fn record(&self, event: &CudaEvent) -> Result<(), DeviceError> {
        let _current = self.context.enter()?;
        // SAFETY: both live.
        self.context.check("cuEventRecord", unsafe { library::cuEventRecord(event.handle, self.handle) })
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
        let result = unsafe {
            library::cuMemcpyHtoDAsync_v2(to.address + at as u64, from.as_ptr().cast(), from.len(), self.handle)
        };
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
            library::cuLaunchKernel(
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
        self.context.check("cuStreamSynchronize", unsafe { library::cuStreamSynchronize(self.handle) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: created by `new`, destroyed once; what was put there still runs.
        let _ = unsafe { library::cuStreamDestroy_v2(self.handle) };
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
        let mut log = [0u8; 4096];
        // The driver takes the size of the log as the pointer itself, not as a number at an address.
        let mut options =
            [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast(), ptr::without_provenance_mut::<c_void>(log.len())];
        // SAFETY: the pointers are to locals of these types; the image is PTX that ends with a zero. There are two
        // options, and the driver writes at most the given number of bytes to the log.
        let result = unsafe {
            library::cuModuleLoadDataEx(
                &raw mut module,
                image.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        check_with(context.placement(), "cuModuleLoadDataEx", result, || compiler_log(&log))?;
        let mut kernel = Self { context: context.clone(), module, function: ptr::null_mut() };
        // SAFETY: the pointer is to a field of that type; the module is loaded.
        let result = unsafe { library::cuModuleGetFunction(&raw mut kernel.function, module, name.as_ptr()) };
        context.check("cuModuleGetFunction", result)?;
        Ok(kernel)
    }
}

/// Returns the compiler's log, to be added to an error. It ends at the first zero.
fn compiler_log(log: &[u8]) -> String {
    let words = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let words = String::from_utf8_lossy(words);
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.is_empty() { words } else { format!("; the driver's compiler: {words}") }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: loaded by `new`, unloaded once.
        let _ = unsafe { library::cuModuleUnload(self.module) };
    }
}
