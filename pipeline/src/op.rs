//! Operations of a pipeline: their work on an item, the order of their results, and their failure policy.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use rayon::ThreadPool;
use tokio::sync::oneshot;

use crate::error::{OpError, PipelineError};

type AsyncFn<T, U> = dyn Fn(T) -> BoxFuture<'static, Result<U, OpError>> + Send + Sync;
type CpuFn<T, U> = dyn Fn(T) -> Result<U, OpError> + Send + Sync;

/// The work of a pipe on each item, with its policies.
pub struct Op<T, U> {
    work: OpWork<T, U>,
    pub(crate) order: OutputOrder,
    pub(crate) on_failure: OnFailure<U>,
    pub(crate) bytes: fn(&U) -> u64,
}

enum OpWork<T, U> {
    Asynchronous(Box<AsyncFn<T, U>>),
    Cpu(Arc<CpuFn<T, U>>),
}

/// The order in which results leave a pipe whose concurrency is above 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputOrder {
    /// The order of the inputs: one slow item holds up the items behind it.
    #[default]
    Input,
    /// The order of completion.
    Completion,
}

/// The effect on the pipeline when an operation fails or panics.
pub(crate) enum OnFailure<U> {
    Fail,
    Skip,
    Replace(Box<dyn Fn(&PipelineError) -> U + Send + Sync>),
}

impl<T: Send + 'static, U: Send + 'static> Op<T, U> {
    /// Creates an operation that mostly waits. It runs on the pipeline's event loop, which it must not block.
    pub fn asynchronous<F, R, E>(f: F) -> Self
    where
        F: Fn(T) -> R + Send + Sync + 'static,
        R: Future<Output = Result<U, E>> + Send + 'static,
        E: Into<OpError>,
    {
        Self::new(OpWork::Asynchronous(Box::new(move |item| {
            let result = f(item);
            async move { result.await.map_err(Into::into) }.boxed()
        })))
    }

    /// Creates an operation that computes or blocks. It runs on the pipeline's thread pool.
    pub fn cpu<F, E>(f: F) -> Self
    where
        F: Fn(T) -> Result<U, E> + Send + Sync + 'static,
        E: Into<OpError>,
    {
        Self::new(OpWork::Cpu(Arc::new(move |item| f(item).map_err(Into::into))))
    }

    fn new(work: OpWork<T, U>) -> Self {
        Self { work, order: OutputOrder::default(), on_failure: OnFailure::Fail, bytes: |_| 0 }
    }

    /// Sets the order in which results leave. Default: the order of their inputs.
    #[must_use]
    pub fn order(mut self, order: OutputOrder) -> Self {
        self.order = order;
        self
    }

    /// Leaves out failed items and counts them. Without this, the first failure stops the pipeline.
    #[must_use]
    pub fn skip_failures(mut self) -> Self {
        self.on_failure = OnFailure::Skip;
        self
    }

    /// Replaces failed items by `replacement` and counts them.
    #[must_use]
    pub fn replace_failures(mut self, replacement: impl Fn(&PipelineError) -> U + Send + Sync + 'static) -> Self {
        self.on_failure = OnFailure::Replace(Box::new(replacement));
        self
    }

    /// Sets the function that returns the number of bytes of a result, for the statistics.
    #[must_use]
    pub fn count_bytes(mut self, bytes: fn(&U) -> u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Runs the operation on `item`; errors name `stage`.
    pub(crate) async fn run(&self, item: T, stage: &str, pool: &ThreadPool) -> Result<U, PipelineError> {
        let outcome = match &self.work {
            OpWork::Asynchronous(f) => AssertUnwindSafe(async { f(item).await }).catch_unwind().await,
            OpWork::Cpu(f) => {
                let (sender, receiver) = oneshot::channel();
                let f = f.clone();
                pool.spawn(move || {
                    // The receiver is gone once the pipeline has stopped.
                    if !sender.is_closed() {
                        let outcome = catch_unwind(AssertUnwindSafe(|| f(item)));
                        drop(f);
                        let _ = sender.send(outcome);
                    }
                });
                receiver.await.expect("a job whose result is awaited sends it")
            }
        };
        match outcome {
            Ok(result) => result.map_err(|source| PipelineError::Failed { stage: stage.to_owned(), source }),
            Err(payload) => Err(PipelineError::panicked(stage, &*payload)),
        }
    }
}
