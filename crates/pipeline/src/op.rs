//! Operations of a pipeline: their work on an item, the order of their results, and their failure policy.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::task::Spawn;

use crate::{
    error::{OpError, PipelineError},
    link::OutputOrder,
};

/// The results of an operation that makes many items of one.
pub(crate) type Results<U> = Box<dyn Iterator<Item = Result<U, OpError>> + Send>;
pub(crate) type AsyncFn<T, U> = dyn Fn() -> Box<dyn AsyncCall<T, U>> + Send + Sync;
/// Runs the tasks of asynchronous operations.
pub(crate) type Spawner = Arc<dyn Spawn + Send + Sync>;
pub(crate) type ThreadFn<T, U> = dyn Fn(T) -> Result<U, OpError> + Send + Sync;

/// The work of a pipe on each item, with its policies.
pub struct Op<T, U> {
    pub(crate) work: OpWork<T, U>,
    pub(crate) order: OutputOrder,
    pub(crate) failures: FailurePolicy,
    pub(crate) bytes: fn(&U) -> u64,
}

pub(crate) enum OpWork<T, U> {
    /// On the pipeline's event loop, unless there is a spawner.
    Asynchronous(Box<AsyncFn<T, U>>, Option<Spawner>),
    One(Box<ThreadFn<T, Option<U>>>, Threads),
    Many(Box<ThreadFn<T, Results<U>>>, Threads),
}

/// A call of an asynchronous operation, which may leave its item out; its memory serves one item after another.
pub(crate) trait AsyncCall<T, U>: Send {
    fn start(&mut self, item: T);
    /// Polls the call that was started. Once it is ready, another can be started.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<U>, OpError>>;
}

struct ReusedCall<F, R, V, U> {
    f: Arc<F>,
    future: Pin<Box<Option<R>>>,
    /// Converts the result of the future; `None` leaves the item out.
    convert: fn(V) -> Option<U>,
}

impl<T, U, F, R, V, E> AsyncCall<T, U> for ReusedCall<F, R, V, U>
where
    F: Fn(T) -> R + Send + Sync,
    R: Future<Output = Result<V, E>> + Send,
    E: Into<OpError>,
{
    fn start(&mut self, item: T) {
        let future = (self.f)(item);
        self.future.set(Some(future));
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<U>, OpError>> {
        let future = self.future.as_mut().as_pin_mut().expect("a call is started before it is polled");
        let result = ready!(future.poll(context));
        self.future.set(None);
        Poll::Ready(result.map(self.convert).map_err(Into::into))
    }
}

/// The threads that an operation runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// The pipeline's pool.
    Pool,
    /// Threads of the stage.
    OwnStage,
}

/// The effect on the pipeline when an operation fails or panics.
pub(crate) struct FailurePolicy {
    /// Number of failures that are skipped; one more fails the pipeline.
    max: u64,
    action: OnFailure,
}

enum OnFailure {
    Fail,
    Skip,
    SkipWhile(Box<dyn Fn() -> bool + Send + Sync>),
}

impl<T: Send + 'static> Op<T, (usize, T)> {
    /// Creates an operation for [`Stages::route`](crate::Stages::route) that computes the number of the branch for an item.
    pub fn router(route: impl Fn(&T) -> usize + Send + Sync + 'static) -> Self {
        Self::cpu(move |item| Ok::<_, std::convert::Infallible>((route(&item), item)))
    }
}

impl<T: Send + 'static, U: Send + 'static> Op<T, U> {
    /// Creates an operation that mostly waits. It runs on the pipeline's event loop, which it must not block.
    pub fn asynchronous<F, R, E>(f: F) -> Self
    where
        F: Fn(T) -> R + Send + Sync + 'static,
        R: Future<Output = Result<U, E>> + Send + 'static,
        E: Into<OpError>,
    {
        Self::waiting(f, Some)
    }

    /// Creates an operation that mostly waits, and that leaves out the items for which it returns `None`. These do not
    /// count as failures.
    pub fn asynchronous_filter_map<F, R, E>(f: F) -> Self
    where
        F: Fn(T) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Option<U>, E>> + Send + 'static,
        E: Into<OpError>,
    {
        Self::waiting(f, |result| result)
    }

    fn waiting<F, R, V, E>(f: F, convert: fn(V) -> Option<U>) -> Self
    where
        F: Fn(T) -> R + Send + Sync + 'static,
        R: Future<Output = Result<V, E>> + Send + 'static,
        V: 'static,
        E: Into<OpError>,
    {
        let f = Arc::new(f);
        let call = move || -> Box<dyn AsyncCall<T, U>> {
            Box::new(ReusedCall { f: f.clone(), future: Box::pin(None), convert })
        };
        Self::new(OpWork::Asynchronous(Box::new(call), None))
    }

    /// Creates an operation that computes. It runs on the pipeline's thread pool, which it should not block: see
    /// [`blocking`](Self::blocking).
    pub fn cpu<F, E>(f: F) -> Self
    where
        F: Fn(T) -> Result<U, E> + Send + Sync + 'static,
        E: Into<OpError>,
    {
        Self::new(OpWork::One(one(f, Some), Threads::Pool))
    }

    /// Creates an operation that computes, and that leaves out the items for which it returns `None`. These do not
    /// count as failures.
    pub fn cpu_filter_map<F, E>(f: F) -> Self
    where
        F: Fn(T) -> Result<Option<U>, E> + Send + Sync + 'static,
        E: Into<OpError>,
    {
        Self::new(OpWork::One(one(f, |result| result), Threads::Pool))
    }

    /// Creates an operation that may block, such as one that reads files. It runs on threads of its stage, one for each
    /// unit of the stage's concurrency, so it keeps no thread of the pool from computing.
    pub fn blocking<F, E>(f: F) -> Self
    where
        F: Fn(T) -> Result<U, E> + Send + Sync + 'static,
        E: Into<OpError>,
    {
        Self::new(OpWork::One(one(f, Some), Threads::OwnStage))
    }

    /// Creates an operation that computes many items of one. The iterator that `f` returns runs on the pipeline's thread
    /// pool, one item at a time: it is asked for the next one when there is room for it. An error that it returns is a
    /// failure of that result alone, so where failures are skipped the iterator is asked for the next.
    pub fn cpu_many<F, I, E>(f: F) -> Self
    where
        F: Fn(T) -> Result<I, E> + Send + Sync + 'static,
        I: Iterator<Item = Result<U, E>> + Send + 'static,
        E: Into<OpError>,
    {
        Self::new(OpWork::Many(many(f), Threads::Pool))
    }

    /// Creates an operation that makes many items of one and may block: like [`cpu_many`](Self::cpu_many), but on
    /// threads of the stage, as [`blocking`](Self::blocking) does.
    pub fn blocking_many<F, I, E>(f: F) -> Self
    where
        F: Fn(T) -> Result<I, E> + Send + Sync + 'static,
        I: Iterator<Item = Result<U, E>> + Send + 'static,
        E: Into<OpError>,
    {
        Self::new(OpWork::Many(many(f), Threads::OwnStage))
    }

    fn new(work: OpWork<T, U>) -> Self {
        let failures = FailurePolicy { max: u64::MAX, action: OnFailure::Fail };
        Self { work, order: OutputOrder::default(), failures, bytes: |_| 0 }
    }

    /// Lets `spawner` run an asynchronous operation, in place of the pipeline's event loop; it has no effect on other
    /// operations. The spawner gets one task for each unit of the stage's concurrency. A task ends soon after the
    /// pipeline has ended, and drops the work that it still runs then.
    #[must_use]
    pub fn spawn_on(mut self, spawner: Arc<dyn Spawn + Send + Sync>) -> Self {
        if let OpWork::Asynchronous(_, on) = &mut self.work {
            *on = Some(spawner);
        }
        self
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
        self.failures.action = OnFailure::Skip;
        self
    }

    /// Leaves out failed items and counts them, as long as `condition` returns true when an item fails. The first
    /// failure for which it returns false stops the pipeline.
    #[must_use]
    pub fn skip_failures_while(mut self, condition: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.failures.action = OnFailure::SkipWhile(Box::new(condition));
        self
    }

    /// Skips at most `count` failures; one more fails the pipeline. Default: no limit. Without
    /// [`skip_failures`](Self::skip_failures), the first failure fails the pipeline.
    #[must_use]
    pub fn max_failures(mut self, count: u64) -> Self {
        self.failures.max = count;
        self
    }

    /// Sets the function that returns the number of bytes of a result, for the statistics.
    #[must_use]
    pub fn count_bytes(mut self, bytes: fn(&U) -> u64) -> Self {
        self.bytes = bytes;
        self
    }
}

fn one<T, U, V: 'static, E: Into<OpError>>(
    f: impl Fn(T) -> Result<V, E> + Send + Sync + 'static,
    convert: fn(V) -> Option<U>,
) -> Box<ThreadFn<T, Option<U>>>
where
    U: 'static,
{
    Box::new(move |item| f(item).map(convert).map_err(Into::into))
}

fn many<T, U, I, E>(f: impl Fn(T) -> Result<I, E> + Send + Sync + 'static) -> Box<ThreadFn<T, Results<U>>>
where
    I: Iterator<Item = Result<U, E>> + Send + 'static,
    E: Into<OpError>,
{
    Box::new(move |item| match f(item) {
        Ok(results) => Ok(Box::new(results.map(|result| result.map_err(Into::into)))),
        Err(error) => Err(error.into()),
    })
}

impl FailurePolicy {
    /// Returns the error that takes the place of the failed item, or `None` if the item is left out. `count` is the number
    /// of failures of the stage, this one included.
    pub(crate) fn decide(&self, error: PipelineError, count: u64, stage: &str) -> Option<PipelineError> {
        if !matches!(self.action, OnFailure::Fail) && count > self.max {
            let stage = stage.to_owned();
            return Some(PipelineError::TooManyFailures { stage, max: self.max, last: Box::new(error) });
        }
        match &self.action {
            OnFailure::Fail => Some(error),
            OnFailure::Skip => None,
            OnFailure::SkipWhile(condition) => (!condition()).then_some(error),
        }
    }
}
