//! The driver's functions: one table, looked up when the first device is opened.
//!
//! Only the types of the handles come from cudarc. Results are plain numbers, because a newer driver has codes that are
//! in no list of ours.
#![allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's names and signatures")]

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr,
    sync::OnceLock,
};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUjit_option, CUmodule, CUstream};
use libloading::Library;

/// The result of a call. 0 is success.
pub(super) type ResultCode = u32;

/// The results that the loader reacts to.
pub(super) mod code {
    use super::ResultCode;

    pub(in super::super) const SUCCESS: ResultCode = 0;
    pub(in super::super) const OUT_OF_MEMORY: ResultCode = 2;
    pub(in super::super) const DEINITIALIZED: ResultCode = 4;
    pub(in super::super) const NO_DEVICE: ResultCode = 100;
    pub(in super::super) const NOT_SUPPORTED: ResultCode = 801;
    pub(in super::super) const CAPTURE_IMPLICIT: ResultCode = 906;
}

/// The driver's file names. If there is only `libcuda.so`, it may be the stub of a toolkit, for linking on a machine
/// without a driver: its calls return 34.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// Why the functions cannot be called.
pub(super) enum LoadError {
    /// There is no driver.
    Missing,
    /// The driver lacks this function.
    Lacks(&'static str),
}

/// Declares the table and, for each line, a function that calls the entry. All lines are required, so list only what a
/// driver of CUDA 11.4 has.
macro_rules! driver_functions {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> ResultCode,)*
            /// Keeps the library loaded.
            _library: Library,
        }

        impl Functions {
            fn look_up(library: Library) -> Result<Self, LoadError> {
                Ok(Self {
                    // SAFETY: the type is that of the driver's manual. The library stays loaded, since the table is
                    // never dropped.
                    $($name: *unsafe { library.get(concat!(stringify!($name), "\0")) }
                        .map_err(|_| LoadError::Lacks(stringify!($name)))?,)*
                    _library: library,
                })
            }
        }

        $(
            /// Calls the driver's function of this name.
            ///
            /// # Safety
            /// As in the driver's manual.
            pub(super) unsafe fn $name($($argument: $type),*) -> ResultCode {
                // SAFETY: the caller's contract.
                unsafe { (functions().$name)($($argument),*) }
            }
        )*
    };
}

driver_functions! {
    cuInit(flags: c_uint);
    cuGetErrorName(code: ResultCode, name: *mut *const c_char);
    cuGetErrorString(code: ResultCode, text: *mut *const c_char);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetName(name: *mut c_char, bytes: c_int, device: CUdevice);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuCtxPushCurrent_v2(context: CUcontext);
    cuCtxPopCurrent_v2(context: *mut CUcontext);
    cuCtxSynchronize();
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    cuMemFree_v2(address: CUdeviceptr);
    cuMemAllocHost_v2(start: *mut *mut c_void, bytes: usize);
    cuMemFreeHost(start: *mut c_void);
    cuMemHostRegister_v2(start: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister(start: *mut c_void);
    cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize);
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamSynchronize(stream: CUstream);
    cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
    cuStreamIsCapturing(stream: CUstream, status: *mut c_uint);
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventSynchronize(event: CUevent);
    cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        options: c_uint,
        names: *mut CUjit_option,
        values: *mut *mut c_void,
    );
    cuModuleUnload(module: CUmodule);
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuLaunchKernel(
        function: CUfunction,
        blocks_x: c_uint,
        blocks_y: c_uint,
        blocks_z: c_uint,
        threads_x: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Loads the driver, if it is not loaded. A driver that was missing is looked for again by the next call.
pub(super) fn load() -> Result<(), LoadError> {
    if FUNCTIONS.get().is_none() {
        // SAFETY: the driver's initialisers may run at any time, on any thread.
        let library =
            NAMES.into_iter().find_map(|name| unsafe { Library::new(name) }.ok()).ok_or(LoadError::Missing)?;
        // Another thread may have been first, with the same library.
        let _ = FUNCTIONS.set(Functions::look_up(library)?);
    }
    Ok(())
}

fn functions() -> &'static Functions {
    FUNCTIONS.get().expect("the driver is loaded before a context is opened")
}

/// Returns the name and the meaning of a result, whether this driver knows it or not.
pub(super) fn describe(code: ResultCode) -> (String, String) {
    let mut text = ptr::null();
    // SAFETY: the pointer is to a local of that type. For an unknown code the driver leaves it null.
    unsafe { cuGetErrorName(code, &raw mut text) };
    let name = words(text).unwrap_or_else(|| format!("code {code}"));
    text = ptr::null();
    // SAFETY: as above.
    unsafe { cuGetErrorString(code, &raw mut text) };
    (name, words(text).unwrap_or_else(|| "the driver does not know this code".to_owned()))
}

fn words(text: *const c_char) -> Option<String> {
    // SAFETY: if not null, a text of the driver's that ends with a zero and is never freed.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
