//! A stream whose work waits until the host lets it go on.

use std::{
    ffi::c_void,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use super::{TrainerContext, TrainerStream, call};

/// Whether the stream may go on, and its waiting thread.
#[derive(Debug, Default)]
struct Permission {
    is_given: Mutex<bool>,
    given: Condvar,
}

/// A stream whose work waits. Dropping this lets it go on.
#[derive(Debug)]
pub struct BlockedStream(Arc<Permission>);

/// Runs on the driver's thread, in the stream's order. It makes no call of the driver, which would be forbidden.
extern "C" fn wait_for_permission(data: *mut c_void) {
    // SAFETY: made from an `Arc` in `block`, for this one call.
    let permission = unsafe { Arc::from_raw(data.cast_const().cast::<Permission>()) };
    let mut is_given = permission.is_given.lock().unwrap_or_else(PoisonError::into_inner);
    while !*is_given {
        is_given = permission.given.wait(is_given).unwrap_or_else(PoisonError::into_inner);
    }
}

impl TrainerContext {
    /// Makes all work that is put on a stream from here on wait until the result is dropped.
    #[must_use]
    pub fn block(&self, stream: TrainerStream) -> BlockedStream {
        let permission = Arc::new(Permission::default());
        let data = Arc::into_raw(permission.clone()).cast_mut().cast();
        call!(cuLaunchHostFunc(stream.0, wait_for_permission, data));
        BlockedStream(permission)
    }
}

impl Drop for BlockedStream {
    fn drop(&mut self) {
        *self.0.is_given.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.given.notify_all();
    }
}
