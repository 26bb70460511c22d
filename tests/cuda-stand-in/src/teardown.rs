//! The end of the process: the driver frees its state in a handler of `exit`. A thread that is in a call by then, and a
//! call that comes later, would crash; here they abort the process, which a test sees.

use std::{
    ffi::c_int,
    process,
    sync::{
        Once,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

/// Set in [`CALLS`] when the driver is torn down.
const TORN_DOWN: usize = 1 << (usize::BITS - 1);

static CALLS: AtomicUsize = AtomicUsize::new(0);
static OWNER: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> c_int;
}

/// Registers the handler, as `cuInit` does.
pub(crate) fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        OWNER.store(process::id(), Ordering::SeqCst);
        // SAFETY: the handler is a function of this library, which is never unloaded.
        unsafe { atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    // A forked child has none of the threads.
    if process::id() == OWNER.load(Ordering::SeqCst) && CALLS.fetch_or(TORN_DOWN, Ordering::SeqCst) != 0 {
        eprintln!("stand-in: a thread is in the driver while the process exits");
        process::abort();
    }
}

/// Counts a thread as in the driver until it is dropped.
pub(crate) struct InDriver;

impl InDriver {
    pub(crate) fn enter(name: &str) -> Self {
        if CALLS.fetch_add(1, Ordering::SeqCst) & TORN_DOWN != 0 && process::id() == OWNER.load(Ordering::SeqCst) {
            eprintln!("stand-in: `{name}` is called after the driver was torn down");
            process::abort();
        }
        Self
    }
}

impl Drop for InDriver {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}
