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
    time::{Duration, Instant},
};

use futures::future::BoxFuture;

use crate::{
    engine::{Engine, Locked, Task, ThreadStage},
    error::{OpError, PipelineError},
    link::{Link, LinkMessage, NoItem, Slot, TakenMessage},
    memo::{Memo, MemoAnswer},
    op::{AsyncCall, AsyncFn, FailurePolicy, Spawner, ThreadFn},
    pipeline_state::{Count, PipelineState},
};

/// The parts that all pipes have.
pub(crate) struct Pipe<T, U> {
    pub(crate) name: String,
    pub(crate) policy: FailurePolicy<T, U>,
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

    /// Calls the operation on an item, and again after each failure that is to be retried.
    pub(crate) fn call<V>(&self, mut item: T, f: &ThreadFn<T, V>) -> Result<V, PipelineError> {
        let mut attempt = 0;
        loop {
            let copy = self.policy.copy_for_retry(&item, attempt);
            match (self.named(catch_unwind(AssertUnwindSafe(|| f(item)))), copy) {
                (Err(_), Some(copy)) => (item, attempt) = (copy, attempt + 1),
                (result, _) => return result,
            }
        }
    }

    async fn call_async(&self, mut item: T, call: &mut dyn AsyncCall<T, U>) -> Result<Option<U>, PipelineError> {
        let mut attempt = 0;
        loop {
            let copy = self.policy.copy_for_retry(&item, attempt);
            let result = match catch_unwind(AssertUnwindSafe(|| call.start(item))) {
                Err(payload) => Err(payload),
                Ok(()) => {
                    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| call.poll(context))) {
                        Ok(poll) => poll.map(Ok),
                        Err(payload) => Poll::Ready(Err(payload)),
                    })
                    .await
                }
            };
            match (self.named(result), copy) {
                (Err(_), Some(copy)) => (item, attempt) = (copy, attempt + 1),
                (result, _) => return result,
            }
        }
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
                Outcome { count: Count::Failure, message: message.map(|message| message.map_err(Into::into)) }
            }
        }));
        outcome.unwrap_or_else(|payload| Outcome {
            count: Count::Failure,
            message: Some(Err(self.panicked(&*payload).into())),
        })
    }
}

/// A run of an operation whose result is kept.
struct MemoizedRun<T> {
    number: u64,
    slot: Slot,
    begun: Instant,
    item: T,
}

impl<T, U> Pipe<T, U> {
    /// Looks up the kept result for an item. If there is none, returns the run that has to make it.
    fn ask<'e>(
        &self,
        engine: &'e Engine,
        stage: usize,
        memo: &dyn Memo<T, U>,
        begun: Instant,
        slot: Slot,
        item: T,
    ) -> (Locked<'e>, Option<MemoizedRun<T>>) {
        let result = match catch_unwind(AssertUnwindSafe(|| memo.ask(item, slot))) {
            Ok(MemoAnswer::Run(number, item)) => {
                return (engine.lock(), Some(MemoizedRun { number, slot, begun, item }));
            }
            Ok(MemoAnswer::Shared) => {
                let mut state = engine.lock();
                state.change(stage).running -= 1;
                return (engine.settle(state), None);
            }
            Ok(MemoAnswer::Kept(value)) => Ok(Some(value)),
            Err(payload) => Err(self.panicked(&*payload)),
        };
        (self.end(engine, stage, slot, begun, self.outcome(result)), None)
    }

    /// Ends a run, and with it the items that waited for its result. If there is no result, the first of these items
    /// has to run.
    fn end_run<'e>(
        &self,
        engine: &'e Engine,
        stage: usize,
        memo: &dyn Memo<T, U>,
        (number, slot, begun): (u64, Slot, Instant),
        result: Result<Option<U>, PipelineError>,
    ) -> (Locked<'e>, Option<MemoizedRun<T>>) {
        let Ok(Some(value)) = &result else {
            let next = memo.failed(number);
            let mut state = self.end(engine, stage, slot, begun, self.outcome(result));
            let run = next.map(|(slot, item)| MemoizedRun { number, slot, begun: state.now, item });
            state.change(stage).running += usize::from(run.is_some());
            return (state, run);
        };
        let copy = || catch_unwind(AssertUnwindSafe(|| memo.copy(value))).map_err(|payload| self.panicked(&*payload));
        let waited = memo.succeeded(number, value);
        let waited: Vec<_> = waited.into_iter().map(|slot| (slot, self.outcome(copy().map(Some)))).collect();
        let mut state = self.end(engine, stage, slot, begun, self.outcome(result));
        for (slot, outcome) in waited {
            state.change(stage).open -= 1;
            state.count(stage, outcome.count, Duration::ZERO);
            self.place(stage, &mut state, slot, outcome.message);
        }
        (engine.settle(state), None)
    }
}

/// A pipe whose operation returns one result per item, on threads.
pub(crate) struct OnePipe<T, U> {
    pub(crate) pipe: Pipe<T, U>,
    pub(crate) f: Box<ThreadFn<T, Option<U>>>,
    pub(crate) memo: Option<Box<dyn Memo<T, U>>>,
}

impl<T: Send, U: Send> ThreadStage for OnePipe<T, U> {
    fn step<'e>(&self, engine: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        let Some((slot, item)) = self.pipe.begin(stage, &mut state) else { return engine.settle(state) };
        let begun = state.now;
        let state = engine.settle(state);
        engine.release(state);
        let Some(memo) = &self.memo else {
            let outcome = self.pipe.outcome(self.pipe.call(item, &*self.f));
            return self.pipe.end(engine, stage, slot, begun, outcome);
        };
        let (mut state, mut run) = self.pipe.ask(engine, stage, &**memo, begun, slot, item);
        while let Some(MemoizedRun { number, slot, begun, item }) = run {
            engine.release(state);
            let result = self.pipe.call(item, &*self.f);
            (state, run) = self.pipe.end_run(engine, stage, &**memo, (number, slot, begun), result);
        }
        state
    }
}

/// A pipe whose operation is asynchronous.
pub(crate) struct AsyncPipe<T, U> {
    pub(crate) pipe: Pipe<T, U>,
    pub(crate) f: Box<AsyncFn<T, U>>,
    pub(crate) spawner: Option<Spawner>,
    pub(crate) memo: Option<Box<dyn Memo<T, U>>>,
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
                let Some(memo) = &self.memo else {
                    let outcome = self.pipe.outcome(self.pipe.call_async(item, &mut *call).await);
                    engine.release(self.pipe.end(&engine, stage, slot, begun, outcome));
                    continue;
                };
                let unlocked = |(state, run)| {
                    engine.release(state);
                    run
                };
                let mut run = unlocked(self.pipe.ask(&engine, stage, &**memo, begun, slot, item));
                while let Some(MemoizedRun { number, slot, begun, item }) = run {
                    let result = self.pipe.call_async(item, &mut *call).await;
                    run = unlocked(self.pipe.end_run(&engine, stage, &**memo, (number, slot, begun), result));
                }
            }
        })
    }
}
