//! Loads modules from PTX, with the compiler's log.

use std::{
    ffi::{CStr, c_char},
    ptr,
    sync::Arc,
};

use crate::{
    ptx,
    state::{Code, DriverState, Handle, INVALID_PTX},
};

/// The option for the buffer of the compiler's errors, and the one for its size.
const ERROR_LOG: u32 = 5;
const ERROR_LOG_BYTES: u32 = 6;

/// Parses PTX for the current device, and returns the handle of the module. Writes what is wrong to the log that the
/// options name.
///
/// # Safety
/// The image ends with a zero, and the log of the options has the given size.
pub(crate) unsafe fn load(state: &DriverState, image: *const c_char, options: &[(u32, usize)]) -> Result<usize, Code> {
    let device = state.current()?;
    // SAFETY: the caller's contract.
    let text = unsafe { CStr::from_ptr(image) }.to_str().map_err(|_| INVALID_PTX)?;
    let refused = || Err("ptxas fatal   : refused by the settings\n".to_owned());
    let kernels = if state.settings.refuse_ptx { refused() } else { ptx::parse(text) };
    let kernels = kernels.map_err(|problem| {
        // SAFETY: the caller's contract.
        unsafe { write_log(options, &problem) };
        if !state.settings.refuse_ptx {
            state.wrong(problem);
        }
        INVALID_PTX
    })?;
    Ok(state.add(Handle::Module(device, Arc::new(kernels))))
}

unsafe fn write_log(options: &[(u32, usize)], problem: &str) {
    let value = |name| options.iter().find(|(option, _)| *option == name).map(|(_, value)| *value);
    if let (Some(log), Some(bytes @ 1..)) = (value(ERROR_LOG), value(ERROR_LOG_BYTES)) {
        let length = problem.len().min(bytes - 1);
        // SAFETY: within the caller's bytes.
        unsafe {
            ptr::copy_nonoverlapping(problem.as_ptr(), log as *mut u8, length);
            (log as *mut u8).add(length).write(0);
        }
    }
}
