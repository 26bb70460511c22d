//! Checked wrappers of the driver's calls, with owned handles. Only this folder calls the driver.
//!
//! [`library`] loads the driver when the first device is opened, so nothing is linked.
#![allow(unsafe_code)]

mod exit;
mod library;
mod memory;
mod numa;
mod stream;
mod trainer_stream;

use std::{fmt, ptr, sync::Arc};

use cudarc::driver::sys;
use exit::DriverCall;
use library::{LoadError, ResultCode, code};

pub(super) use exit::is_exiting;
pub(super) use memory::{DeviceMemory, HostMemory, LockedMemory, PageLock};
pub(super) use numa::NumaNode;
pub(super) use stream::{Argument, CudaEvent, Kernel, Stream};

use crate::{BatchPlacement, DeviceError};

/// Converts a result into an error that names the call and the result.
fn check(placement: BatchPlacement, call: &'static str, result: ResultCode) -> Result<(), DeviceError> {
    check_with(placement, call, result, String::new)
}

/// Converts a result into an error, whose text ends with `details`.
fn check_with(
    placement: BatchPlacement,
    call: &'static str,
    result: ResultCode,
    details: impl FnOnce() -> String,
) -> Result<(), DeviceError> {
    if result == code::SUCCESS {
        return Ok(());
    }
    let (device, (name, meaning)) = (placement.to_string(), library::describe(result));
    let meaning = meaning + &details();
    Err(if is_lost(result) {
        DeviceError::Lost { device, call, code: result, name, meaning }
    } else {
        DeviceError::Call { device, call, code: result, name, meaning }
    })
}

/// Returns whether the context is unusable after this result: no later call of this process can succeed in it.
const fn is_lost(result: ResultCode) -> bool {
    matches!(
        result,
        code::DEINITIALIZED
        | 46 // The device is unavailable.
        | 201 // The context is invalid: another part of the process has reset the device.
        | 214 // An uncorrectable error of the memory.
        | 220 // An uncorrectable error of NVLink.
        | 226 // A fault that the device has contained: all later calls return the same.
        | 700 // An illegal address.
        | 702 // A kernel took longer than the system allows.
        | 709 // The context is destroyed.
        | 710 // A kernel's assertion failed.
        | 714
            ..=719 // A kernel's stack, instruction, alignment, address space, program counter, or any other fault.
        | 721 // A kernel left tensor memory allocated.
        | 810 // The MPS server has ended this client.
        | 911 // A device outside of CUDA failed.
        | 916 // A failed rotation of keys, with confidential computing.
        | 999 // A fault that the driver does not know.
    )
}

/// Begins a call of the driver; returns an error if the process exits.
fn begin(placement: BatchPlacement) -> Result<DriverCall, DeviceError> {
    DriverCall::begin().ok_or_else(|| DeviceError::Lost {
        device: placement.to_string(),
        call: "cuCtxPushCurrent",
        code: code::DEINITIALIZED,
        name: "CUDA_ERROR_DEINITIALIZED".to_owned(),
        meaning: "the process exits".to_owned(),
    })
}

/// Loads and initialises the driver.
fn load(placement: BatchPlacement) -> Result<(), DeviceError> {
    library::load().map_err(|error| match error {
        LoadError::Missing => DeviceError::DriverMissing { device: placement.to_string() },
        LoadError::Lacks(symbol) => DeviceError::DriverOld { symbol },
    })?;
    // SAFETY: initialising is allowed any number of times; 0 is the only value of its argument.
    check(placement, "cuInit", unsafe { library::cuInit(0) })
}

/// A device's primary context, which all users of the device in this process share.
pub(crate) struct Context {
    ordinal: u32,
    device: sys::CUdevice,
    handle: sys::CUcontext,
    /// Whether memory can be allocated and freed as work on a stream.
    has_pools: bool,
    node: Option<NumaNode>,
}

// SAFETY: a context may be used from any thread, by several at once; each thread has its own current context.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A guard that makes a context current on this thread, and lets its calls run beside a capture of the trainer's.
/// Dropping it restores the previous context and mode, on which the trainer's own libraries rely.
struct Entered<'a> {
    context: &'a Context,
    /// The thread's mode before.
    mode: u32,
    _call: DriverCall,
}

/// The capture mode in which calls of this thread neither fail nor disturb a capture while another thread captures a
/// graph: the trainer, on streams of its own. In the mode that a thread begins with, a query of an event or an
/// allocation would return `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`, and the capture would be invalid. None of our calls
/// is on a stream that captures.
const RELAXED: u32 = 2;

impl Context {
    /// Opens the context of the device with this number.
    pub(crate) fn open(ordinal: u32) -> Result<Arc<Self>, DeviceError> {
        let placement = BatchPlacement::Cuda { ordinal };
        let devices = count(placement)?;
        let _call = begin(placement)?;
        if ordinal >= devices {
            return Err(DeviceError::Index { ordinal, devices });
        }
        let mut device = 0;
        // SAFETY: the pointer is to a local of that type; the number is below the number of devices.
        let result = unsafe { library::cuDeviceGet(&raw mut device, ordinal.cast_signed()) };
        check(placement, "cuDeviceGet", result)?;
        // A driver that does not know the attribute has no pools.
        let has_pools = attribute(device, MEMORY_POOLS_SUPPORTED).is_some_and(|pools| pools != 0);
        let node = pci_address(device).and_then(|address| NumaNode::of_pci_device(&address));
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is to a local of that type; the device is one that the driver gave.
        let result = unsafe { library::cuDevicePrimaryCtxRetain(&raw mut handle, device) };
        check(placement, "cuDevicePrimaryCtxRetain", result)?;
        // By now the driver has registered its own handlers.
        exit::register();
        Ok(Arc::new(Self { ordinal, device, handle, has_pools, node }))
    }

    /// Returns the number of devices.
    pub(crate) fn count() -> Result<u32, DeviceError> {
        count(BatchPlacement::Cuda { ordinal: 0 })
    }

    pub(crate) const fn placement(&self) -> BatchPlacement {
        BatchPlacement::Cuda { ordinal: self.ordinal }
    }

    /// Returns the NUMA node that the device is next to, if the machine has several.
    pub(crate) const fn node(&self) -> Option<NumaNode> {
        self.node
    }

    /// Returns the model name of the device.
    pub(crate) fn device_name(&self) -> Result<String, DeviceError> {
        let _call = begin(self.placement())?;
        let mut name = [0u8; 128];
        // SAFETY: the driver writes at most 128 bytes, with a zero at their end.
        let result = unsafe { library::cuDeviceGetName(name.as_mut_ptr().cast(), 128, self.device) };
        self.check("cuDeviceGetName", result)?;
        Ok(name.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect())
    }

    /// Returns the free and the total bytes of the device's memory.
    pub(crate) fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are to locals of that type.
        let result = unsafe { library::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        self.check("cuMemGetInfo", result)?;
        Ok((free as u64, total as u64))
    }

    fn check(&self, call: &'static str, result: ResultCode) -> Result<(), DeviceError> {
        check(self.placement(), call, result)
    }

    fn enter(&self) -> Result<Entered<'_>, DeviceError> {
        let call = begin(self.placement())?;
        // SAFETY: the context is retained until `self` is dropped.
        let result = unsafe { library::cuCtxPushCurrent_v2(self.handle) };
        self.check("cuCtxPushCurrent", result)?;
        let mut entered = Entered { context: self, mode: RELAXED, _call: call };
        // SAFETY: the pointer is to a field of that type, which gets the thread's mode.
        let result = unsafe { library::cuThreadExchangeStreamCaptureMode(&raw mut entered.mode) };
        self.check("cuThreadExchangeStreamCaptureMode", result)?;
        Ok(entered)
    }
}

/// The driver's attribute for support of `cuMemAllocAsync`.
const MEMORY_POOLS_SUPPORTED: i32 = 115;
/// The attributes for the numbers in a device's PCI address: domain, bus and device.
const PCI_ADDRESS: [i32; 3] = [50, 33, 34];

/// Returns an attribute of a device that the driver gave. `None` if this driver does not know it.
fn attribute(device: sys::CUdevice, attribute: i32) -> Option<i32> {
    let mut value = 0;
    // SAFETY: the pointer is to a local of that type; the caller got the device from the driver.
    let result = unsafe { library::cuDeviceGetAttribute(&raw mut value, attribute, device) };
    (result == code::SUCCESS).then_some(value)
}

/// Returns the PCI address of a device that the driver gave, as the system writes it.
fn pci_address(device: sys::CUdevice) -> Option<String> {
    let [domain, bus, slot] = PCI_ADDRESS.map(|number| attribute(device, number));
    Some(format!("{:04x}:{:02x}:{:02x}.0", domain?, bus?, slot?))
}

/// Loads the driver and returns the number of devices. Errors name `placement`.
fn count(placement: BatchPlacement) -> Result<u32, DeviceError> {
    let _call = begin(placement)?;
    match load(placement) {
        Err(DeviceError::Call { code: code::NO_DEVICE, .. }) => return Ok(0),
        loaded => loaded?,
    }
    let mut devices = 0;
    // SAFETY: the pointer is to a local of that type.
    check(placement, "cuDeviceGetCount", unsafe { library::cuDeviceGetCount(&raw mut devices) })?;
    Ok(u32::try_from(devices).unwrap_or(0))
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.placement())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let Some(_call) = DriverCall::begin() else { return };
        // SAFETY: retained once, in `open`; everything made in it holds an `Arc` of this and is gone.
        let _ = unsafe { library::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // SAFETY: the pointer is to a field of that type. Exchanges the mode back.
        let _ = unsafe { library::cuThreadExchangeStreamCaptureMode(&raw mut self.mode) };
        let mut popped = ptr::null_mut();
        // SAFETY: pushed by `enter` on this thread (an `Entered` is not `Send`), and popped once.
        let result = unsafe { library::cuCtxPopCurrent_v2(&raw mut popped) };
        debug_assert!(result != code::SUCCESS || popped == self.context.handle, "contexts nest");
    }
}
