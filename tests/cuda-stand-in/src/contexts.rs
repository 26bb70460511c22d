//! Contexts beside the primary ones, and the contexts of streams.

use std::{
    ffi::{c_int, c_uint},
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::{
    calls::{call, driver_calls, give},
    state::{Code, INVALID_CONTEXT, INVALID_DEVICE, lock},
};

/// Contexts that a program creates are numbers from here on.
pub(crate) const CREATED: usize = 0x8000;

#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v2(context: *mut usize, _flags: c_uint, device: c_int) -> Code {
    static NEXT: AtomicUsize = AtomicUsize::new(CREATED);
    call("cuCtxCreate_v2", |state| {
        let device = usize::try_from(device).ok().filter(|device| *device < state.settings.devices);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        lock(&state.created_contexts).insert(number, device.ok_or(INVALID_DEVICE)?);
        // The new context becomes the current one.
        state.push(number)?;
        give(context, number)
    })
}

driver_calls! {
    fn cuCtxDestroy_v2(context: usize) |state| {
        lock(&state.created_contexts).remove(&context).ok_or(INVALID_CONTEXT)?;
        state.pop_if(context);
        Ok(())
    }

    fn cuCtxSynchronize() |state| {
        let device = state.current()?;
        state.streams(device).iter().try_for_each(|stream| stream.synchronise())
    }

    fn cuStreamGetCtx(stream: usize, context: *mut usize) |state| {
        match stream {
            0..=2 => give(context, state.current_context().ok_or(INVALID_CONTEXT)?),
            _ => give(context, state.any_stream(stream)?.context()),
        }
    }
}
