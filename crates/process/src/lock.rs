//! Locks of files that one process uses at a time.

use std::{
    fs::{File, TryLockError},
    thread,
    time::{Duration, Instant},
};

/// Maximum wait for a lock whose holder may be about to end: a process that is being replaced or was just killed, a child that has not yet become
/// another program, or the last tasks of a loader of this process.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// How often the lock is tried.
const PERIOD: Duration = Duration::from_millis(5);

/// Locks the file for as long as it is open, and waits for a holder that is about to end.
///
/// # Errors
/// [`TryLockError::WouldBlock`] if another open file still has the lock after the wait.
pub fn lock(file: &File) -> Result<(), TryLockError> {
    patiently(|| file.try_lock(), |error| matches!(error, TryLockError::WouldBlock))
}

/// Tries `take` until it succeeds, and waits for a holder that is about to end while its error `is_held`.
///
/// # Errors
/// That of the last try.
pub fn patiently<T, E>(take: impl FnMut() -> Result<T, E>, is_held: impl Fn(&E) -> bool) -> Result<T, E> {
    let begun = Instant::now();
    take_while(take, is_held, || {
        thread::sleep(PERIOD);
        begun.elapsed() < MAX_WAIT
    })
}

/// Tries `take` until its outcome is not that something is held, or `wait` returns `false`.
fn take_while<T, E>(
    mut take: impl FnMut() -> Result<T, E>,
    is_held: impl Fn(&E) -> bool,
    mut wait: impl FnMut() -> bool,
) -> Result<T, E> {
    loop {
        match take() {
            Err(error) if is_held(&error) && wait() => {}
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
        take_while(|| second.try_lock(), |error| matches!(error, TryLockError::WouldBlock), end).unwrap();
        assert_eq!((waits, holder.is_none()), (3, true));
        assert!(matches!(lock(&open()), Err(TryLockError::WouldBlock)));
    }
}
