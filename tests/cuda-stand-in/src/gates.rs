//! Functions with which a test keeps the device from going on, to see what does not wait for it.

use std::{
    ffi::c_int,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    calls::driver_calls,
    state::{lock, state},
    stream::Work,
};

/// How often a wait checks whether the device was lost meanwhile.
const CHECK: Duration = Duration::from_millis(1);

/// Lets copies pass, or not.
#[derive(Default)]
pub(crate) struct CopyGate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl CopyGate {
    /// Waits until the gate is open or the device is lost.
    pub(crate) fn pass(&self, device: usize) {
        let mut is_closed = lock(&self.is_closed);
        while *is_closed && state().check_lost(device).is_ok() {
            let waited = self.changed.wait_timeout(is_closed, CHECK);
            is_closed = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    fn set(&self, is_closed: bool) {
        *lock(&self.is_closed) = is_closed;
        self.changed.notify_all();
    }
}

/// Waits until the number at `until` is not zero or the device is lost.
pub(crate) fn hold(device: usize, until: usize) {
    // SAFETY: the address of a number that stays valid, as the contract of `cuda_stand_in_hold` requires.
    let until = unsafe { AtomicU32::from_ptr(until as *mut u32) };
    while until.load(Ordering::SeqCst) == 0 && state().check_lost(device).is_ok() {
        thread::sleep(CHECK);
    }
}

driver_calls! {
    /// Makes all copies that have not begun wait, if `is_paused` is not 0, or go on.
    fn cuda_stand_in_pause_copies(is_paused: c_int) |state| {
        state.gate.set(is_paused != 0);
        Ok(())
    }

    /// Keeps a stream busy until the number at `until` is not zero, like a kernel that waits for another process. The
    /// context must be current, and `until` must stay valid.
    fn cuda_stand_in_hold(stream: usize, until: *mut u32) |state| {
        state.stream(stream)?.put(Work::Hold { until: until as usize });
        Ok(())
    }
}
