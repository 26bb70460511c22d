//! The loader for threads without an async runtime.

use std::{future::Future, pin::pin, time::Duration};

use spdl_insight::Diagnosis;
use spdl_types::Position;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{ClientError, Diagnoser, Loader, Source};

/// A loader with a runtime of its own: an iterator over batches, each step of which waits at most the loader's timeout.
///
/// It must not be used inside an async runtime, where blocking would stop the runtime's thread; use the [`Loader`]
/// there. Dropping it closes the session, which takes at most a second or two.
#[derive(Debug)]
pub struct Blocking<S: Source> {
    /// Both fields are `None` only while this is being dropped.
    runtime: Option<Runtime>,
    loader: Option<Loader<S>>,
}

impl<S: Source> Blocking<S> {
    /// Runs `make` to completion and wraps the loader that it returns. The runtime has this many threads: one is enough
    /// unless batches come over several connections.
    ///
    /// # Errors
    /// Returns the error of `make`, or [`ClientError::InsideRuntime`] when called inside an async runtime.
    pub fn start<F>(threads: usize, make: F) -> Result<Self, S::Error>
    where
        F: Future<Output = Result<Loader<S>, S::Error>>,
    {
        match Self::start_checked(threads, make, Duration::MAX, || Ok::<_, std::convert::Infallible>(())) {
            Ok(started) => started,
        }
    }

    /// Starts as [`Blocking::start`] does, and calls `check` after each `every` of waiting. An error of `check` ends
    /// the wait.
    ///
    /// # Errors
    /// Returns the error of `check` in the outer result; in the inner one, the errors of [`Blocking::start`].
    pub fn start_checked<F, E>(
        threads: usize,
        make: F,
        every: Duration,
        check: impl FnMut() -> Result<(), E>,
    ) -> Result<Result<Self, S::Error>, E>
    where
        F: Future<Output = Result<Loader<S>, S::Error>>,
    {
        let runtime = match refuse_runtime().and_then(|()| runtime(threads)) {
            Ok(runtime) => runtime,
            Err(error) => return Ok(Err(error.into())),
        };
        let loader = wait(&runtime, make, every, check)?;
        Ok(loader.map(|loader| Self { runtime: Some(runtime), loader: Some(loader) }))
    }

    /// Waits for the next batch for at most the loader's timeout; returns `None` when all epochs are delivered.
    ///
    /// # Errors
    /// As [`Loader::next`]; [`ClientError::InsideRuntime`] when called inside an async runtime.
    pub fn next_batch(&mut self) -> Result<Option<S::Batch>, S::Error> {
        refuse_runtime()?;
        let (runtime, loader) = self.parts();
        runtime.block_on(loader.next())
    }

    /// Waits for the next batch as [`Blocking::next_batch`] does, with a timeout of its own.
    ///
    /// # Errors
    /// As [`Blocking::next_batch`].
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<S::Batch>, S::Error> {
        refuse_runtime()?;
        let (runtime, loader) = self.parts();
        runtime.block_on(loader.next_within(timeout))
    }

    /// Waits for the next batch, and calls `check` after each `every` of waiting. An error of `check` ends the wait;
    /// the next call waits for the same batch.
    ///
    /// # Errors
    /// Returns the error of `check` in the outer result; in the inner one, the errors of [`Blocking::next_batch`].
    pub fn next_checked<E>(
        &mut self,
        every: Duration,
        check: impl FnMut() -> Result<(), E>,
    ) -> Result<Result<Option<S::Batch>, S::Error>, E> {
        if let Err(error) = refuse_runtime() {
            return Ok(Err(error.into()));
        }
        let (runtime, loader) = self.parts();
        wait(runtime, loader.next(), every, check)
    }

    /// Goes to a position of the stream.
    ///
    /// # Errors
    /// As [`Loader::go_to`]; [`ClientError::InsideRuntime`] when called inside an async runtime.
    pub fn go_to(&mut self, position: Position) -> Result<(), S::Error> {
        refuse_runtime()?;
        let (runtime, loader) = self.parts();
        runtime.block_on(loader.go_to(position))
    }

    /// Gives the next `count` batches again and again, as [`Loader::repeat_batches`] does.
    ///
    /// # Errors
    /// As [`Loader::repeat_batches`].
    pub fn repeat_batches(&mut self, count: u32) -> Result<(), ClientError> {
        self.parts().1.repeat_batches(count)
    }

    /// Returns the loader, for its position, state, receipt and statistics.
    ///
    /// # Panics
    /// Never panics: the loader is there until this is dropped.
    #[must_use]
    pub fn loader(&self) -> &Loader<S> {
        self.loader.as_ref().expect("there until dropped")
    }

    /// Returns the diagnoser of the rank, for use on any thread.
    #[must_use]
    pub fn diagnoser(&self) -> BlockingDiagnoser {
        let runtime = self.runtime.as_ref().expect("there until dropped").handle().clone();
        BlockingDiagnoser { diagnoser: self.loader().diagnoser().clone(), runtime }
    }

    fn parts(&mut self) -> (&Runtime, &mut Loader<S>) {
        (self.runtime.as_ref().expect("there until dropped"), self.loader.as_mut().expect("there until dropped"))
    }
}

/// Finds out what limits the rank of a [`Blocking`] loader, also while another thread waits for a batch.
#[derive(Clone, Debug)]
pub struct BlockingDiagnoser {
    diagnoser: Diagnoser,
    runtime: Handle,
}

impl BlockingDiagnoser {
    /// Diagnoses the last seconds, as [`Diagnoser::diagnose`] does.
    ///
    /// # Errors
    /// As [`Diagnoser::diagnose`]; [`ClientError::InsideRuntime`] when called inside an async runtime.
    pub fn diagnose(&self) -> Result<Option<Diagnosis>, ClientError> {
        refuse_runtime()?;
        self.runtime.block_on(self.diagnoser.diagnose())
    }
}

/// Creates a runtime with this many worker threads.
fn runtime(threads: usize) -> Result<Runtime, ClientError> {
    Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .thread_name("spdl-client")
        .enable_all()
        .build()
        .map_err(|error| ClientError::System { action: "start the client's thread", cause: error.to_string() })
}

/// Runs `future` to completion, in a runtime of its own.
pub(crate) fn block_on<F: Future>(future: F) -> Result<F::Output, ClientError> {
    refuse_runtime()?;
    let runtime = runtime(1)?;
    let output = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(output)
}

/// Runs `future` to completion. Calls `check`, outside the runtime, after each `every` of waiting.
fn wait<F: Future, E>(
    runtime: &Runtime,
    future: F,
    every: Duration,
    mut check: impl FnMut() -> Result<(), E>,
) -> Result<F::Output, E> {
    let mut future = pin!(future);
    loop {
        match runtime.block_on(async { tokio::time::timeout(every, &mut future).await }) {
            Ok(output) => return Ok(output),
            Err(_) => check()?,
        }
    }
}

/// Returns an error inside a runtime, where blocking would make tokio panic.
fn refuse_runtime() -> Result<(), ClientError> {
    if Handle::try_current().is_ok() { Err(ClientError::InsideRuntime) } else { Ok(()) }
}

/// The iteration ends after an error that ends the loader. After a timeout, the next step waits for the same batch.
impl<S: Source> Iterator for Blocking<S> {
    type Item = Result<S::Batch, S::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.loader().is_failed() {
            return None;
        }
        self.next_batch().transpose()
    }
}

impl<S: Source> Drop for Blocking<S> {
    fn drop(&mut self) {
        let (Some(runtime), Some(loader)) = (self.runtime.take(), self.loader.take()) else { return };
        let close_and_stop = move || {
            runtime.block_on(loader.close());
            runtime.shutdown_background();
        };
        if refuse_runtime().is_ok() {
            close_and_stop();
        } else {
            // Inside a runtime, a thread may neither block nor drop another runtime.
            let _ = std::thread::Builder::new().name("spdl-client-close".into()).spawn(close_and_stop);
        }
    }
}
