//! What the driver knows about an address.

use std::ffi::{c_int, c_void};

use crate::{
    calls::{call, give},
    state::{Code, INVALID_VALUE},
};

/// The attribute of the kind of memory, and its value for page-locked memory of the host.
const MEMORY_TYPE: c_int = 2;
const HOST: u32 = 1;

/// Only page-locked memory of the host is known here.
#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: usize) -> Code {
    call("cuPointerGetAttribute", |state| {
        if attribute != MEMORY_TYPE || !state.host.is_locked(address, 1)? {
            return Err(INVALID_VALUE);
        }
        give(value.cast(), HOST)
    })
}
