//! The driver's functions that a trainer calls, by themselves: not through the loader that is tested.
#![allow(
    unsafe_code,
    non_snake_case,
    missing_docs,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "these are the driver's functions, with its names and its contract"
)]

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::OnceLock,
};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream,
};
use libloading::Library;

/// Returns the driver, which the first call loads.
///
/// # Panics
/// Panics when there is none.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let names = ["libcuda.so.1", "libcuda.so"];
        // SAFETY: the driver's initialisers may run at any time, on any thread.
        names.into_iter().find_map(|name| unsafe { Library::new(name) }.ok()).expect("a driver")
    })
}

/// Declares functions that look the driver's up at their first call, and panic when it has none of this name.
macro_rules! driver_functions {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        $(pub unsafe fn $name($($argument: $type),*) -> u32 {
            static FUNCTION: OnceLock<unsafe extern "C" fn($($type),*) -> u32> = OnceLock::new();
            // SAFETY: the type is that of the driver's manual, and the library stays loaded.
            let found = || match unsafe { library().get(concat!(stringify!($name), "\0")) } {
                Ok(function) => *function,
                Err(_) => panic!("the driver has no function `{}`", stringify!($name)),
            };
            // SAFETY: the caller's contract.
            unsafe { FUNCTION.get_or_init(found)($($argument),*) }
        })*
    };
}

driver_functions! {
    cuGetErrorName(code: u32, name: *mut *const c_char);
    cuDriverGetVersion(version: *mut c_int);
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetName(name: *mut c_char, bytes: c_int, device: CUdevice);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuCtxPushCurrent_v2(context: CUcontext);
    cuCtxPopCurrent_v2(context: *mut CUcontext);
    cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    cuCtxDestroy_v2(context: CUcontext);
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    cuMemFree_v2(address: CUdeviceptr);
    cuMemAllocHost_v2(start: *mut *mut c_void, bytes: usize);
    cuMemFreeHost(start: *mut c_void);
    cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize);
    cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize);
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: CUdeviceptr);
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamSynchronize(stream: CUstream);
    cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint);
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    cuGraphInstantiateWithFlags(executable: *mut CUgraphExec, graph: CUgraph, flags: u64);
    cuGraphLaunch(executable: CUgraphExec, stream: CUstream);
    cuGraphExecDestroy(executable: CUgraphExec);
    cuGraphDestroy(graph: CUgraph);
    cuLaunchHostFunc(stream: CUstream, function: extern "C" fn(*mut c_void), data: *mut c_void);
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventSynchronize(event: CUevent);
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
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

/// Returns the driver's name of a result.
pub fn name(code: u32) -> String {
    let mut name = std::ptr::null();
    // SAFETY: the pointer is to a local of that type. The driver leaves it null, or sets it to a text that ends with a
    // zero and is never freed.
    let name = unsafe {
        cuGetErrorName(code, &raw mut name);
        (!name.is_null()).then(|| CStr::from_ptr(name))
    };
    name.map_or_else(|| format!("code {code}"), |name| name.to_string_lossy().into_owned())
}
