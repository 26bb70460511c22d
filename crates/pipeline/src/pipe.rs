//! The stages with an operation that returns one result per item.

use std::{
    any::Any,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Instant,
};

use futures::future::BoxFuture;

use crate::{
    engine::{Engine, Locked, Task, ThreadStage},
    error::{OpError, PipelineError},
    link::{Link, LinkMessage, NoItem, Slot, TakenMessage},
    op::{AsyncCall, AsyncFn, FailurePolicy, Spawner, ThreadFn},
    pipeline_state::{Count, PipelineState},
};

/// The parts that all pipes have.
pub(crate) struct Pipe<T, U> {
    pub(crate) name: String,
    pub(crate) policy: FailurePolicy,
    pub(crate) bytes: fn(&U) -> u64,
    pub(crate) failures: AtomicU64,
    pub(crate) input: Arc<Link<T>>,
    pub(crate) output: Arc<Link<U>>,
}

/// The end of a step: what leaves the stage in the item's place, and what is counted.
pub(crate) struct Outcome<U> {
    pub(crate) message: Option<LinkMessage<U>>,
    pub(crate) count: Count,
}

impl<T, U> Pipe<T, U> {
    /// Takes an item and reserves a slot for its result. Returns `None` if the message has no item; it is passed on.
    fn begin(&self, stage: usize, state: &mut PipelineState) -> Option<(Slot, T)> {
        let TakenMessage { message, is_last } = self.input.take(state);
        let slot = self.output.reserve(state, is_last);
        match message {
            Ok(item) => {
                let stage = state.change(stage);
                stage.running += 1;
                stage.open += 1;
                Some((slot, item))
            }
            Err(error) => {
                self.place(stage, state, slot, Some(Err(error)));
                None
            }
        }
    }

    pub(crate) fn place(&self, stage: usize, state: &mut PipelineState, slot: Slot, message: Option<LinkMessage<U>>) {
        if matches!(message, Some(Err(NoItem::Failed(_)))) {
            state.halt(stage);
        }
        self.output.place(state, slot, message);
    }

    /// Ends the work on an item.
    fn end<'e>(&self, engine: &'e Engine, stage: usize, slot: Slot, begun: Instant, outcome: Outcome<U>) -> Locked<'e> {
        let ended = Instant::now();
        let mut state = engine.lock_at(ended);
        let numbers = state.change(stage);
        numbers.running -= 1;
        numbers.open -= 1;
        state.count(stage, outcome.count, ended - begun);
        self.place(stage, &mut state, slot, outcome.message);
        engine.settle(state)
    }

    /// Calls the operation on an item.
    pub(crate) fn call<V>(&self, item: T, f: &ThreadFn<T, V>) -> Result<V, PipelineError> {
        self.named(catch_unwind(AssertUnwindSafe(|| f(item))))
    }

    async fn call_async(&self, item: T, call: &mut dyn AsyncCall<T, U>) -> Result<Option<U>, PipelineError> {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| call.start(item))) {
            return self.named(Err(payload));
        }
        let poll = poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| call.poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(payload)),
        });
        self.named(poll.await)
    }

    pub(crate) fn named<V>(&self, result: std::thread::Result<Result<V, OpError>>) -> Result<V, PipelineError> {
        match result {
            Ok(result) => result.map_err(|source| PipelineError::Failed { stage: self.name.clone(), source }),
            Err(payload) => Err(self.panicked(&*payload)),
        }
    }

    pub(crate) fn panicked(&self, payload: &(dyn Any + Send)) -> PipelineError {
        PipelineError::panicked(&self.name, payload)
    }

    /// Applies the policy for failures to a result.
    pub(crate) fn outcome(&self, result: Result<Option<U>, PipelineError>) -> Outcome<U> {
        let outcome = catch_unwind(AssertUnwindSafe(|| match result {
            Ok(Some(value)) => Outcome { count: Count::Item((self.bytes)(&value)), message: Some(Ok(value)) },
            Ok(None) => Outcome { count: Count::Nothing, message: None },
            Err(error) => {
                let count = self.failures.fetch_add(1, Relaxed) + 1;
                let message = self.policy.decide(error, count, &self.name);
                Outcome { count: Count::Failure, message: message.map(|error| Err(error.into())) }
            }
        }));
        outcome.unwrap_or_else(|payload| Outcome {
            count: Count::Failure,
            message: Some(Err(self.panicked(&*payload).into())),
        })
    }
}

/// A pipe whose operation returns one result per item, on threads.
pub(crate) struct OnePipe<T, U> {
    pub(crate) pipe: Pipe<T, U>,
    pub(crate) f: Box<ThreadFn<T, Option<U>>>,
}

impl<T: Send, U: Send> ThreadStage for OnePipe<T, U> {
    fn step<'e>(&self, engine: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        let Some((slot, item)) = self.pipe.begin(stage, &mut state) else { return engine.settle(state) };
        let begun = state.now;
        engine.release(engine.settle(state));
        let outcome = self.pipe.outcome(self.pipe.call(item, &*self.f));
        self.pipe.end(engine, stage, slot, begun, outcome)
    }
}

/// A pipe whose operation is asynchronous.
pub(crate) struct AsyncPipe<T, U> {
    pub(crate) pipe: Pipe<T, U>,
    pub(crate) f: Box<AsyncFn<T, U>>,
    pub(crate) spawner: Option<Spawner>,
}

impl<T: Send + 'static, U: Send + 'static> Task for AsyncPipe<T, U> {
    fn spawner(&self) -> Option<&Spawner> {
        self.spawner.as_ref()
    }

    fn task(self: Arc<Self>, engine: Arc<Engine>, stage: usize, number: usize) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut call = (self.f)();
            loop {
                let begun = engine.next_step(stage, number).await.map(|mut state| {
                    let begun = self.pipe.begin(stage, &mut state).map(|(slot, item)| (slot, item, state.now));
                    engine.release(engine.settle(state));
                    begun
                });
                let Some(begun) = begun else { return };
                // An error was passed on.
                let Some((slot, item, begun)) = begun else { continue };
                let outcome = self.pipe.outcome(self.pipe.call_async(item, &mut *call).await);
                engine.release(self.pipe.end(&engine, stage, slot, begun, outcome));
            }
        })
    }
}
