//! Runs work on another thread, while Python's thread shows its progress and handles signals.

use std::{
    pin::Pin,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use pyo3::prelude::*;
use spdl_dataset::{DatasetError, DatasetProgress};
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
};

use super::failure::Failure;

/// Time between two checks of signals and progress.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// How long interrupted work may take to remove the files that it wrote.
pub(super) const END: Duration = Duration::from_secs(5);

/// The progress of work: `(shards, records, bytes, total records, total bytes)`.
type WorkProgress = (u64, u64, u64, Option<u64>, Option<u64>);

/// Runs work on another thread. Meanwhile shows its progress and handles signals. The first interruption stops the
/// work, which then gets some seconds to remove the files that it wrote. The second returns at once.
pub(crate) fn run<T, W, F>(py: Python<'_>, on_progress: Option<Py<PyAny>>, work: W) -> PyResult<T>
where
    T: Send + 'static,
    W: FnOnce(Stopped, OnProgress) -> F + Send + 'static,
    F: Future<Output = Result<T, DatasetError>>,
{
    let at = Arc::new(Mutex::new(DatasetProgress::default()));
    let (stop, stopped) = oneshot::channel::<()>();
    let (sender, receiver) = mpsc::channel();
    let shared = Arc::clone(&at);
    let all = move || {
        let done = runtime().map_err(Failure::Runtime).and_then(|runtime| {
            let stopped: Stopped = Box::pin(async { drop(stopped.await) });
            let progress: OnProgress = Box::new(move |progress| *shared.lock() = progress);
            let done = runtime.block_on(work(stopped, progress)).map_err(Failure::Dataset);
            runtime.shutdown_background();
            done
        });
        // The receiver is gone after a second interruption.
        let _ = sender.send(done);
    };
    let thread = thread::Builder::new().name("dataset".to_owned());
    thread.spawn(all).map_err(|error| Failure::Runtime(error).error(py))?;
    let (receiver, mut stop) = (Mutex::new(receiver), Some(stop));
    let mut interrupted: Option<(PyErr, Instant)> = None;
    let show = || -> PyResult<()> {
        let Some(on_progress) = &on_progress else { return Ok(()) };
        let DatasetProgress { shards, records, bytes, total_records, total_bytes } = *at.lock();
        let progress: WorkProgress = (shards, records, bytes, total_records, total_bytes);
        on_progress.call1(py, progress).map(drop)
    };
    loop {
        let done = py.detach(|| receiver.lock().recv_timeout(LOOK));
        let done = match done {
            Ok(done) => done,
            Err(RecvTimeoutError::Disconnected) => Err(Failure::Panicked),
            Err(RecvTimeoutError::Timeout) => {
                let looked = py.check_signals();
                match &interrupted {
                    None => {
                        if let Err(error) = looked.and_then(|()| show()) {
                            interrupted = Some((error, Instant::now()));
                            stop = None;
                        }
                        continue;
                    }
                    Some((_, since)) if looked.is_ok() && since.elapsed() < END => continue,
                    Some(_) => Err(Failure::Panicked),
                }
            }
        };
        drop(stop);
        return match (interrupted, done) {
            (Some((error, _)), _) => Err(error),
            (None, Ok(done)) => show().map(|()| done),
            (None, Err(failure)) => Err(failure.error(py)),
        };
    }
}

/// A future that is ready when the work has to stop.
pub(crate) type Stopped = Pin<Box<dyn Future<Output = ()>>>;
/// A callback for the progress of the work.
pub(crate) type OnProgress = Box<dyn Fn(DatasetProgress) + Send + Sync>;

pub(super) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}
