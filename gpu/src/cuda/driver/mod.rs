//! Checked wrappers of the driver's calls, with owned handles. Only this folder calls the driver.
//!
//! cudarc declares the functions and loads the library on first use, so nothing is linked. Its version feature decides
//! which result codes have names, not which driver is needed: a driver of CUDA 11.4 has all the functions used here.
#![allow(unsafe_code)]

mod memory;
mod stream;

use std::{
    ffi::{c_char, c_void},
    fmt, ptr,
    sync::Arc,
};

use cudarc::driver::{
    DriverError,
    sys::{self, CUresult},
};

pub(super) use memory::{DeviceMemory, HostMemory, PageLock};
pub(super) use stream::{Argument, CudaEvent, Kernel, Stream};

use crate::{BatchPlacement, DeviceError, StreamHandle};

/// Functions to look up before the first call, because cudarc panics when one is missing.
const SYMBOLS: [&str; 33] = [
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemAllocHost_v2",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuDeviceGetName",
    "cuGetErrorName",
    "cuGetErrorString",
];

/// Converts a result code into an error that names the call and the code.
fn check(placement: BatchPlacement, call: &'static str, result: CUresult) -> Result<(), DeviceError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let (device, code) = (placement.to_string(), format!("{result:?}"));
    let words = DriverError(result).error_string().map(|words| words.to_string_lossy().into_owned());
    let meaning = words.unwrap_or_else(|_| "the driver does not know this code".to_owned());
    Err(if is_lost(result) {
        DeviceError::Lost { device, call, code, meaning }
    } else {
        DeviceError::Call { device, call, code, meaning }
    })
}

/// Returns whether the context is unusable after this result.
const fn is_lost(result: CUresult) -> bool {
    matches!(
        result,
        CUresult::CUDA_ERROR_DEINITIALIZED
            | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
            | CUresult::CUDA_ERROR_UNKNOWN
    )
}

/// Loads and initialises the driver.
fn load(placement: BatchPlacement) -> Result<(), DeviceError> {
    // SAFETY: the driver's initialisers may run at any time, on any thread.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::DriverMissing { device: placement.to_string() });
    }
    // SAFETY: as above; it was there a moment ago, and only then does this call not panic.
    let library = unsafe { sys::culib() };
    for symbol in SYMBOLS {
        // SAFETY: the symbol is looked up and not used, so its type does not matter.
        if unsafe { library.get::<*const c_void>(symbol.as_bytes()) }.is_err() {
            return Err(DeviceError::DriverOld { symbol });
        }
    }
    // SAFETY: initialising is allowed any number of times; 0 is the only value of its argument.
    check(placement, "cuInit", unsafe { sys::cuInit(0) })
}

/// A device's primary context, which all users of the device in this process share.
pub(crate) struct Context {
    ordinal: u32,
    device: sys::CUdevice,
    handle: sys::CUcontext,
}

// SAFETY: a context may be used from any thread, by several at once; each thread has its own current context.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A guard that makes a context current on this thread. Dropping it restores the previous context, on which the
/// trainer's own libraries rely.
struct Entered<'a>(&'a Context);

impl Context {
    /// Opens the context of the device with this number.
    pub(crate) fn open(ordinal: u32) -> Result<Arc<Self>, DeviceError> {
        let placement = BatchPlacement::Cuda { ordinal };
        let devices = count(placement)?;
        if ordinal >= devices {
            return Err(DeviceError::Index { ordinal, devices });
        }
        let mut device = 0;
        // SAFETY: the pointer is to a local of that type; the number is below the number of devices.
        let result = unsafe { sys::cuDeviceGet(&raw mut device, ordinal.cast_signed()) };
        check(placement, "cuDeviceGet", result)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is to a local of that type; the device is one that the driver gave.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut handle, device) };
        check(placement, "cuDevicePrimaryCtxRetain", result)?;
        Ok(Arc::new(Self { ordinal, device, handle }))
    }

    /// Returns the number of devices.
    pub(crate) fn count() -> Result<u32, DeviceError> {
        count(BatchPlacement::Cuda { ordinal: 0 })
    }

    pub(crate) const fn placement(&self) -> BatchPlacement {
        BatchPlacement::Cuda { ordinal: self.ordinal }
    }

    /// Returns the model name of the device.
    pub(crate) fn device_name(&self) -> Result<String, DeviceError> {
        let mut name: [c_char; 128] = [0; 128];
        // SAFETY: the driver writes at most 128 bytes, with a zero at their end.
        let result = unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), 128, self.device) };
        self.check("cuDeviceGetName", result)?;
        Ok(name.iter().take_while(|byte| **byte != 0).map(|byte| char::from(byte.cast_unsigned())).collect())
    }

    /// Returns the free and the total bytes of the device's memory.
    pub(crate) fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are to locals of that type.
        let result = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        self.check("cuMemGetInfo", result)?;
        Ok((free as u64, total as u64))
    }

    fn check(&self, call: &'static str, result: CUresult) -> Result<(), DeviceError> {
        check(self.placement(), call, result)
    }

    fn enter(&self) -> Result<Entered<'_>, DeviceError> {
        // SAFETY: the context is retained until `self` is dropped.
        let result = unsafe { sys::cuCtxPushCurrent_v2(self.handle) };
        self.check("cuCtxPushCurrent", result)?;
        Ok(Entered(self))
    }

    /// Makes the trainer's `stream` wait for `event`.
    pub(crate) fn make_wait(&self, stream: StreamHandle, event: &CudaEvent) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: the creator of the handle guarantees that the stream lives; the event lives.
        let result = unsafe { sys::cuStreamWaitEvent(stream.as_raw() as sys::CUstream, event.handle, 0) };
        self.check("cuStreamWaitEvent", result)
    }

    /// Records `event` on the trainer's `stream`, after all work queued there so far.
    pub(crate) fn record(&self, stream: StreamHandle, event: &CudaEvent) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: as in `make_wait`.
        let result = unsafe { sys::cuEventRecord(event.handle, stream.as_raw() as sys::CUstream) };
        self.check("cuEventRecord", result)
    }
}

/// Loads the driver and returns the number of devices. Errors name `placement`.
fn count(placement: BatchPlacement) -> Result<u32, DeviceError> {
    match load(placement) {
        Err(DeviceError::Call { code, .. }) if code == "CUDA_ERROR_NO_DEVICE" => return Ok(0),
        loaded => loaded?,
    }
    let mut devices = 0;
    // SAFETY: the pointer is to a local of that type.
    check(placement, "cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut devices) })?;
    Ok(u32::try_from(devices).unwrap_or(0))
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.placement())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, in `open`; everything made in it holds an `Arc` of this and is gone.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut popped = ptr::null_mut();
        // SAFETY: pushed by `enter` on this thread (an `Entered` is not `Send`), and popped once.
        let result = unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) };
        debug_assert!(result != CUresult::CUDA_SUCCESS || popped == self.0.handle, "contexts nest");
    }
}
