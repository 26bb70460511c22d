//! Memory whose allocation and release are work on a stream, from the device's pool; and attributes of a device.

use std::ffi::c_int;

use crate::{
    calls::{driver_calls, give},
    state::{INVALID_VALUE, NOT_SUPPORTED},
    stream::Work,
};

/// The number of the attribute for support of pools.
const MEMORY_POOLS_SUPPORTED: c_int = 115;
/// The numbers of the attributes for the parts of a PCI address. The first device is `0000:3b:00.0`.
const PCI_DOMAIN: c_int = 50;
const PCI_BUS: c_int = 33;
const PCI_DEVICE: c_int = 34;
const FIRST_BUS: c_int = 0x3b;

driver_calls! {
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) |state| {
        match attribute {
            MEMORY_POOLS_SUPPORTED => give(value, c_int::from(state.settings.has_pools)),
            PCI_BUS => give(value, FIRST_BUS + device),
            PCI_DOMAIN | PCI_DEVICE => give(value, 0),
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuMemAllocAsync(address: *mut usize, bytes: usize, stream: usize) |state| {
        let (device, stream) = (state.current()?, state.stream(stream)?);
        if !state.settings.has_pools {
            return Err(NOT_SUPPORTED);
        }
        let allocated = state.memory.allocate_from_pool(device, bytes)?;
        stream.put(Work::Allocate { address: allocated });
        give(address, allocated)
    }

    fn cuMemFreeAsync(address: usize, stream: usize) |state| {
        let (device, stream) = (state.current()?, state.stream(stream)?);
        state.memory.begin_free(device, address)?;
        stream.put(Work::Free { address });
        Ok(())
    }
}
