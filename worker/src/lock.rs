//! Locks of files that one worker uses at a time.

use std::{
    fs::{File, TryLockError},
    thread,
    time::{Duration, Instant},
};

/// Maximum wait for a lock whose holder may be about to end: a worker that is being replaced, or the last tasks of a
/// loader of this process.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// How often the lock is tried.
const PERIOD: Duration = Duration::from_millis(5);

/// Locks the file for as long as it is open, and waits for a holder that is about to end.
///
/// # Errors
/// [`TryLockError::WouldBlock`] if another open file still has the lock after the wait.
pub(crate) fn lock(file: &File) -> Result<(), TryLockError> {
    let begun = Instant::now();
    lock_while(file, || {
        thread::sleep(PERIOD);
        begun.elapsed() < MAX_WAIT
    })
}

/// Tries to lock the file until it is locked or `wait` returns `false`.
fn lock_while(file: &File, mut wait: impl FnMut() -> bool) -> Result<(), TryLockError> {
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if wait() => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_is_about_to_end_is_waited_for_and_one_that_stays_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let open = || File::create(directory.path().join("lock")).unwrap();
        let first = open();
        lock(&first).unwrap();
        let mut holder = Some(first);
        let mut waits = 0;
        let second = open();
        let end = || {
            waits += 1;
            if waits == 3 {
                holder = None;
            }
            true
        };
        lock_while(&second, end).unwrap();
        assert_eq!((waits, holder.is_none()), (3, true));
        assert!(matches!(lock(&open()), Err(TryLockError::WouldBlock)));
    }
}
