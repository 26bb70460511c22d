//! The loader for threads that know no async.

use std::{future::Future, pin::pin, time::Duration};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::{ClientError, Loader, Source};

/// A loader with a runtime of its own, one small thread: an iterator over batches whose every step waits for
/// at most the loader's timeout.
///
/// It must not be used inside an async runtime, where waiting would stop everything else; there, use the
/// [`Loader`] itself. Dropped, it says goodbye, for at most a second or two.
#[derive(Debug)]
pub struct Blocking<S: Source> {
    /// Both are `None` only while dropping.
    runtime: Option<Runtime>,
    loader: Option<Loader<S>>,
}

impl<S: Source> Blocking<S> {
    /// Runs `make` to its end, and keeps the loader that it gives.
    ///
    /// # Errors
    /// What `make` says; [`ClientError::InsideRuntime`] when called inside an async runtime.
    pub fn start<F>(make: F) -> Result<Self, ClientError>
    where
        F: Future<Output = Result<Loader<S>, ClientError>>,
    {
        match Self::start_checked(make, Duration::MAX, || Ok::<_, std::convert::Infallible>(())) {
            Ok(started) => started,
        }
    }

    /// The same, calling `check` each time it has waited for `every`; what that refuses ends the waiting.
    ///
    /// # Errors
    /// Outside, what `check` says; inside, as [`Blocking::start`].
    pub fn start_checked<F, E>(
        make: F,
        every: Duration,
        check: impl FnMut() -> Result<(), E>,
    ) -> Result<Result<Self, ClientError>, E>
    where
        F: Future<Output = Result<Loader<S>, ClientError>>,
    {
        let runtime = match refuse_runtime().and_then(|()| runtime()) {
            Ok(runtime) => runtime,
            Err(error) => return Ok(Err(error)),
        };
        let loader = wait(&runtime, make, every, check)?;
        Ok(loader.map(|loader| Self { runtime: Some(runtime), loader: Some(loader) }))
    }

    /// The next batch, waited for as long as the loader's timeout; `None` when all epochs are delivered.
    ///
    /// # Errors
    /// As [`Loader::next`]; [`ClientError::InsideRuntime`] when called inside an async runtime.
    pub fn next_batch(&mut self) -> Result<Option<S::Batch>, ClientError> {
        refuse_runtime()?;
        let (runtime, loader) = self.parts();
        runtime.block_on(loader.next())
    }

    /// The same with its own timeout.
    ///
    /// # Errors
    /// As [`Blocking::next_batch`].
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<S::Batch>, ClientError> {
        refuse_runtime()?;
        let (runtime, loader) = self.parts();
        runtime.block_on(loader.next_within(timeout))
    }

    /// The next batch, calling `check` each time it has waited for `every`; what that refuses ends the waiting, and the
    /// next call goes on waiting for the same batch.
    ///
    /// # Errors
    /// Outside, what `check` says; inside, as [`Blocking::next_batch`].
    pub fn next_checked<E>(
        &mut self,
        every: Duration,
        check: impl FnMut() -> Result<(), E>,
    ) -> Result<Result<Option<S::Batch>, ClientError>, E> {
        if let Err(error) = refuse_runtime() {
            return Ok(Err(error));
        }
        let (runtime, loader) = self.parts();
        wait(runtime, loader.next(), every, check)
    }

    /// Goes back to the beginning of the stream.
    ///
    /// # Errors
    /// As [`Loader::restart`]; [`ClientError::InsideRuntime`] when called inside an async runtime.
    pub fn restart(&mut self) -> Result<(), ClientError> {
        refuse_runtime()?;
        let (runtime, loader) = self.parts();
        runtime.block_on(loader.restart())
    }

    /// The loader: its position, state, receipt and figures.
    ///
    /// # Panics
    /// Never: it is there until this is dropped.
    #[must_use]
    pub fn loader(&self) -> &Loader<S> {
        self.loader.as_ref().expect("there until dropped")
    }

    fn parts(&mut self) -> (&Runtime, &mut Loader<S>) {
        (self.runtime.as_ref().expect("there until dropped"), self.loader.as_mut().expect("there until dropped"))
    }
}

/// A runtime of one small thread.
fn runtime() -> Result<Runtime, ClientError> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("spdl-client")
        .enable_all()
        .build()
        .map_err(|error| ClientError::System { action: "start the client's thread", cause: error.to_string() })
}

/// Runs `future` to its end, in turns with `check`, which runs outside the runtime.
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

/// Waiting inside a runtime would make tokio panic; an error can be acted on.
fn refuse_runtime() -> Result<(), ClientError> {
    if Handle::try_current().is_ok() { Err(ClientError::InsideRuntime) } else { Ok(()) }
}

/// Ends after an error that ends the loader; after a timeout, the next step goes on waiting for the same batch.
impl<S: Source> Iterator for Blocking<S> {
    type Item = Result<S::Batch, ClientError>;

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
        let goodbye = move || {
            runtime.block_on(loader.close());
            runtime.shutdown_background();
        };
        if refuse_runtime().is_ok() {
            goodbye();
        } else {
            // Neither waiting nor dropping a runtime is allowed here.
            let _ = std::thread::Builder::new().name("spdl-client-close".into()).spawn(goodbye);
        }
    }
}
