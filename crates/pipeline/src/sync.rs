//! Locks and threads: those of the standard library, or with `--cfg shuttle` those of a checker that runs the same code under
//! many interleavings.

#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

/// Locks a mutex. No operation of the user's runs under a lock, so none is poisoned.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code that may panic runs under this lock")
}
