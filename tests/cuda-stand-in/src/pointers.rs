//! What the driver knows about an address.

use std::ffi::{c_int, c_void};

use crate::{
    calls::{driver_calls, give},
    state::INVALID_VALUE,
};

/// The attribute of the kind of memory, and its value for page-locked memory of the host.
const MEMORY_TYPE: c_int = 2;
const HOST: u32 = 1;

driver_calls! {
    /// Only page-locked memory of the host is known here.
    fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: usize) |state| {
        if attribute != MEMORY_TYPE || !state.host.is_locked(address, 1)? {
            return Err(INVALID_VALUE);
        }
        give(value.cast(), HOST)
    }
}
