//! The trainer's side of a device: its own streams, memory and kernels, by direct calls of the driver.
#![allow(unsafe_code)]

mod blocked;
mod graph;
mod second;

use std::{
    ffi::{CStr, CString, c_void},
    ptr,
};

use cudarc::driver::sys;
use spdl_gpu::StreamHandle;

use crate::driver;

pub use blocked::BlockedStream;
pub use graph::{CaptureMode, TrainerGraph};
pub use second::SecondContext;

/// A device's primary context. It is current on the thread that made it, and must be used on that thread.
#[derive(Debug)]
pub struct TrainerContext {
    device: sys::CUdevice,
    module: sys::CUmodule,
    kernels: TrainerKernels,
    /// The device's name.
    pub name: String,
    /// The version of CUDA that the driver has: 1000 times major plus 10 times minor.
    pub driver_version: i32,
}

/// The kernels of `trainer.ptx`.
#[derive(Debug)]
struct TrainerKernels {
    sum: sys::CUfunction,
    burn: sys::CUfunction,
    trap: sys::CUfunction,
}

/// A stream of the trainer.
#[derive(Clone, Copy, Debug)]
pub struct TrainerStream(sys::CUstream);

/// An event in a stream.
#[derive(Debug)]
pub struct Mark(sys::CUevent);

fn check(call: &str, result: u32) {
    assert!(result == 0, "`{call}` returned {}", driver::name(result));
}

/// `call!(cuName(arguments))` calls the function, and panics with its name if it fails.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {
        // SAFETY: each use passes arguments as the driver's manual requires, and pointers to live memory.
        $crate::raw::check(stringify!($name), unsafe { $crate::driver::$name($($argument),*) })
    };
}
use call;

impl TrainerContext {
    /// Uses the device of that number, which must have been opened with [`spdl_gpu::Device`] before.
    ///
    /// If a call fails; the same holds for all methods.
    #[must_use]
    pub fn new(ordinal: u32) -> Self {
        let (mut device, mut context, mut module) = (0, ptr::null_mut(), ptr::null_mut());
        call!(cuDeviceGet(&raw mut device, ordinal.cast_signed()));
        call!(cuDevicePrimaryCtxRetain(&raw mut context, device));
        call!(cuCtxPushCurrent_v2(context));
        let image = CString::new(include_str!("../trainer.ptx")).expect("text");
        call!(cuModuleLoadData(&raw mut module, image.as_ptr().cast()));
        let kernel = |name: &CStr| {
            let mut kernel = ptr::null_mut();
            call!(cuModuleGetFunction(&raw mut kernel, module, name.as_ptr()));
            kernel
        };
        let kernels = TrainerKernels {
            sum: kernel(c"trainer_sum"),
            burn: kernel(c"trainer_burn"),
            trap: kernel(c"trainer_trap"),
        };
        let mut name = [0u8; 128];
        call!(cuDeviceGetName(name.as_mut_ptr().cast(), 128, device));
        let mut driver_version = 0;
        call!(cuDriverGetVersion(&raw mut driver_version));
        let name = name.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
        Self { device, module, kernels, name, driver_version }
    }

    /// Returns an attribute of the device by the driver's number of it, or `None` if the driver does not know it.
    #[must_use]
    pub fn attribute(&self, number: i32) -> Option<i32> {
        let mut value = 0;
        // SAFETY: the pointer is to a local of that type.
        (unsafe { driver::cuDeviceGetAttribute(&raw mut value, number, self.device) } == 0).then_some(value)
    }

    /// Creates a stream.
    #[must_use]
    pub fn stream(&self) -> TrainerStream {
        const NON_BLOCKING: u32 = 1;
        let mut stream = ptr::null_mut();
        call!(cuStreamCreate(&raw mut stream, NON_BLOCKING));
        TrainerStream(stream)
    }

    /// Allocates memory of the device.
    #[must_use]
    pub fn allocate(&self, bytes: usize) -> u64 {
        let mut address = 0;
        call!(cuMemAlloc_v2(&raw mut address, bytes));
        address
    }

    /// Frees memory of the device.
    pub fn free(&self, address: u64) {
        call!(cuMemFree_v2(address));
    }

    /// Allocates page-locked memory of the host, and writes to all of it.
    #[must_use]
    pub fn allocate_host(&self, bytes: usize) -> *mut u8 {
        let mut start = ptr::null_mut();
        call!(cuMemAllocHost_v2(&raw mut start, bytes));
        // SAFETY: the driver allocated that many bytes.
        unsafe { start.cast::<u8>().write_bytes(0x5a, bytes) };
        start.cast()
    }

    /// Frees page-locked memory.
    pub fn free_host(&self, start: *mut u8) {
        call!(cuMemFreeHost(start.cast()));
    }

    /// Enqueues a bare asynchronous copy to the device, from [`TrainerContext::allocate_host`]'s memory to
    /// [`TrainerContext::allocate`]'s.
    pub fn copy(&self, stream: TrainerStream, to: u64, from: *const u8, bytes: usize) {
        call!(cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream.0));
    }

    /// Enqueues a copy from one place of the device to another.
    pub fn copy_on_device(&self, stream: TrainerStream, to: u64, from: u64, bytes: usize) {
        call!(cuMemcpyDtoDAsync_v2(to, from, bytes, stream.0));
    }

    /// Returns whether the driver knows this address as page-locked memory of the host, which the device reads by
    /// itself.
    #[must_use]
    pub fn is_page_locked(&self, address: *const u8) -> bool {
        const MEMORY_TYPE: i32 = 2;
        const HOST: u32 = 1;
        let mut kind = 0u32;
        // SAFETY: the pointer is to a local of the attribute's type. For pageable memory the call fails.
        let result =
            unsafe { driver::cuPointerGetAttribute((&raw mut kind).cast(), MEMORY_TYPE, address as sys::CUdeviceptr) };
        result == 0 && kind == HOST
    }

    /// Writes numbers to the device, and waits. A copy from pageable memory may land after its call.
    pub fn write(&self, to: u64, numbers: &[u64]) {
        call!(cuMemcpyHtoD_v2(to, numbers.as_ptr().cast(), size_of_val(numbers)));
        call!(cuStreamSynchronize(ptr::null_mut()));
    }

    /// Reads numbers from the device, and waits. Work on streams must have finished.
    #[must_use]
    pub fn read(&self, from: u64, count: usize) -> Vec<u64> {
        let mut numbers = vec![0; count];
        call!(cuMemcpyDtoH_v2(numbers.as_mut_ptr().cast(), from, count * size_of::<u64>()));
        numbers
    }

    /// Waits for all work on a stream.
    pub fn synchronise(&self, stream: TrainerStream) {
        call!(cuStreamSynchronize(stream.0));
    }

    /// Records an event after the work that is on the stream now.
    #[must_use]
    pub fn mark(&self, stream: TrainerStream) -> Mark {
        const BLOCKING_WITHOUT_TIMING: u32 = 1 | 2;
        let mut event = ptr::null_mut();
        call!(cuEventCreate(&raw mut event, BLOCKING_WITHOUT_TIMING));
        call!(cuEventRecord(event, stream.0));
        Mark(event)
    }

    /// Waits for a stream and destroys it, unless it is a default stream.
    pub fn end(&self, stream: TrainerStream) {
        self.synchronise(stream);
        if ![TrainerStream::DEFAULT.0, TrainerStream::PER_THREAD.0].contains(&stream.0) {
            call!(cuStreamDestroy_v2(stream.0));
        }
    }

    /// Enqueues a kernel that adds all 32-bit words of `bytes` bytes to the number at `sum`. Both addresses are the
    /// device's; `bytes` is a multiple of 4.
    pub fn sum(&self, stream: TrainerStream, from: u64, bytes: usize, sum: u64) {
        let words = u32::try_from(bytes / 4).expect("less than 2^34 bytes");
        let blocks = words.div_ceil(256 * 16).clamp(1, 2048);
        self.launch(stream, self.kernels.sum, blocks, &mut [from, u64::from(words), sum]);
    }

    /// Enqueues a kernel that keeps the device busy for `rounds` rounds of arithmetic. It starts from the 256 *
    /// `blocks` words at `from`, and writes its result to `to`.
    pub fn burn(&self, stream: TrainerStream, blocks: u32, from: u64, rounds: u64, to: u64) {
        self.launch(stream, self.kernels.burn, blocks, &mut [from, rounds, to]);
    }

    /// Enqueues a kernel that traps, after which nothing works on the device in this process.
    pub fn trap(&self, stream: TrainerStream) {
        self.launch(stream, self.kernels.trap, 1, &mut [0]);
    }

    fn launch(&self, stream: TrainerStream, kernel: sys::CUfunction, blocks: u32, arguments: &mut [u64]) {
        let mut pointers: Vec<*mut c_void> = arguments.iter_mut().map(|each| (&raw mut *each).cast()).collect();
        let arguments = pointers.as_mut_ptr();
        call!(cuLaunchKernel(kernel, blocks, 1, 1, 256, 1, 1, 0, stream.0, arguments, ptr::null_mut()));
    }
}

impl Drop for TrainerContext {
    fn drop(&mut self) {
        let mut context = ptr::null_mut();
        call!(cuModuleUnload(self.module));
        call!(cuCtxPopCurrent_v2(&raw mut context));
        call!(cuDevicePrimaryCtxRelease_v2(self.device));
    }
}

impl TrainerStream {
    /// The default stream that synchronises with the other blocking streams of its device.
    pub const DEFAULT: Self = Self(ptr::without_provenance_mut(1));
    /// The default stream of the calling thread.
    pub const PER_THREAD: Self = Self(ptr::without_provenance_mut(2));

    /// Returns the handle for a loader.
    #[must_use]
    pub fn handle(self) -> StreamHandle {
        // SAFETY: `TrainerContext::end` is called after the batches are dropped.
        unsafe { StreamHandle::from_raw(self.0 as usize) }
    }
}

impl Mark {
    /// Waits until all work before the event has finished.
    pub fn wait(&self) {
        call!(cuEventSynchronize(self.0));
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        call!(cuEventDestroy_v2(self.0));
    }
}
