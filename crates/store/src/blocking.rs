//! Runs work that takes a core for a while, beside asynchronous tasks.

use std::{future, panic};

use tokio::task::{JoinError, JoinSet};

/// Runs `work` on a thread of the runtime that may be blocked. If the work panics, so does the caller. If the runtime
/// shuts down before the work begins, this call never returns: the runtime drops the caller.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    result_of(tokio::task::spawn_blocking(work).await).await
}

/// Runs `work` as a task of its own, which goes on while the caller is busy, and ends when the caller is dropped. If the work panics, so
/// does the caller.
pub async fn in_task<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let mut task = JoinSet::new();
    task.spawn(work);
    result_of(task.join_next().await.expect("it has one task")).await
}

async fn result_of<T>(ended: Result<T, JoinError>) -> T {
    match ended {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panicked) => panic::resume_unwind(panicked),
            Err(_) => future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_runtime_that_shuts_down_makes_nobody_panic_who_waits_for_a_thread() {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).max_blocking_threads(1).build().unwrap();
        let ((begun, has_begun), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
        let first = begun.clone();
        runtime.spawn(blocking(move || {
            first.send(()).unwrap();
            released.recv().unwrap_err()
        }));
        has_begun.recv().unwrap();
        let waits = runtime.spawn(async move {
            begun.send(()).unwrap();
            blocking(|| ()).await;
        });
        has_begun.recv().unwrap();
        runtime.shutdown_background();
        let other = tokio::runtime::Runtime::new().unwrap();
        assert!(other.block_on(waits).unwrap_err().is_cancelled());
        drop(release);
    }

    #[test]
    fn a_panic_goes_on_in_the_caller() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let panicked = runtime.block_on(runtime.spawn(blocking(|| panic::panic_any(7))));
        assert_eq!(panicked.unwrap_err().into_panic().downcast_ref(), Some(&7));
    }
}
