//! Keeps the threads of this process out of the driver while the process exits.
//!
//! The driver frees its state in handlers of `exit`. A thread that is in a call then can crash. So can a call that
//! begins later, such as the drop of a batch that a static of another library owns. So a handler of our own refuses new
//! calls and waits for those that run. Handlers run in the reverse order of their registration, and this one is
//! registered after the driver's.

use std::{
    ffi::c_int,
    process, ptr,
    sync::{
        Once,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How long the exit of the process waits for calls that run. Calls take milliseconds, except for a copy that waits for
/// a trainer's long kernel, and on a busy machine where the thread gets no core.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the exit of the process looks at the calls.
const EXIT_POLL: Duration = Duration::from_millis(1);
/// Set in [`CALLS`] when the process exits.
const EXITING: usize = 1 << (usize::BITS - 1);

/// The number of threads that are in the driver.
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// The process that registered the handler. A forked child inherits it, and has none of the threads.
static OWNER: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    /// The C library's function.
    fn atexit(handler: extern "C" fn()) -> c_int;
}

/// Registers the handler, once, when the driver has registered its own.
pub(super) fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        OWNER.store(process::id(), Ordering::SeqCst);
        // SAFETY: the handler is a function of this program, which stays loaded until the process has exited. If the
        // C library has no room for it, the process exits as it would without.
        let _ = unsafe { atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    if process::id() != OWNER.load(Ordering::SeqCst) {
        return;
    }
    CALLS.fetch_or(EXITING, Ordering::SeqCst);
    let until = Instant::now() + EXIT_TIMEOUT;
    while CALLS.load(Ordering::SeqCst) != EXITING && Instant::now() < until {
        thread::sleep(EXIT_POLL);
    }
}

/// Returns whether the process exits, so that the driver must not be called any more.
pub(crate) fn is_exiting() -> bool {
    CALLS.load(Ordering::SeqCst) & EXITING != 0
}

/// Counts this thread as in the driver until it is dropped.
pub(super) struct DriverCall {
    /// Dropped on the thread that made it.
    _not_send: *const (),
}

impl DriverCall {
    /// Returns `None` when the process exits.
    pub(super) fn begin() -> Option<Self> {
        let before = CALLS.fetch_add(1, Ordering::SeqCst);
        // Dropping the guard counts down again.
        let call = Self { _not_send: ptr::null() };
        (before & EXITING == 0).then_some(call)
    }
}

impl Drop for DriverCall {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}
