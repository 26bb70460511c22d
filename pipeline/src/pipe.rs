//! The stages with an operation.

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
    engine::{Engine, Locked, Step, Task},
    error::{OpError, PipelineError},
    link::{Link, Message},
    op::{AsyncCall, AsyncFn, FailurePolicy, OutputOrder, Results, ThreadFn},
    state::State,
    sync::{Mutex, lock},
};

/// What all pipes have.
pub(crate) struct Pipe<T, U> {
    pub(crate) name: String,
    pub(crate) policy: FailurePolicy<T, U>,
    pub(crate) bytes: fn(&U) -> u64,
    pub(crate) failures: AtomicU64,
    pub(crate) input: Arc<Link<T>>,
    pub(crate) output: Arc<Link<U>>,
}

/// The end of a step: what leaves the stage in the item's place, and what is counted.
struct Outcome<U> {
    message: Option<Message<U>>,
    /// The bytes of the result, or `None` if the operation failed.
    bytes: Option<u64>,
}

impl<T, U> Pipe<T, U> {
    /// Takes an item and reserves a slot for its result. Returns `None` if it was an error, which is passed on.
    fn begin(&self, stage: usize, state: &mut State) -> Option<(u64, T)> {
        let message = self.input.take(state);
        let slot = self.output.reserve(state);
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

    fn place(&self, stage: usize, state: &mut State, slot: u64, message: Option<Message<U>>) {
        if matches!(message, Some(Err(_))) {
            state.halt(stage);
        }
        self.output.place(state, slot, message);
    }

    /// Ends the work on an item.
    fn end<'e>(&self, engine: &'e Engine, stage: usize, slot: u64, begun: Instant, outcome: Outcome<U>) -> Locked<'e> {
        let ended = Instant::now();
        let mut state = engine.lock_at(ended);
        let numbers = state.change(stage);
        numbers.running -= 1;
        numbers.open -= 1;
        state.count(stage, outcome.bytes, ended - begun);
        self.place(stage, &mut state, slot, outcome.message);
        engine.settle(state)
    }

    /// Calls the operation on an item, again after failures that are to be tried again.
    fn call<V>(&self, mut item: T, f: &ThreadFn<T, V>) -> Result<V, PipelineError> {
        let mut attempt = 0;
        loop {
            let copy = self.policy.copy_for_retry(&item, attempt);
            match (self.named(catch_unwind(AssertUnwindSafe(|| f(item)))), copy) {
                (Err(_), Some(copy)) => (item, attempt) = (copy, attempt + 1),
                (result, _) => return result,
            }
        }
    }

    async fn call_async(&self, mut item: T, call: &mut dyn AsyncCall<T, U>) -> Result<U, PipelineError> {
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

    fn named<V>(&self, result: std::thread::Result<Result<V, OpError>>) -> Result<V, PipelineError> {
        match result {
            Ok(result) => result.map_err(|source| PipelineError::Failed { stage: self.name.clone(), source }),
            Err(payload) => Err(self.panicked(&*payload)),
        }
    }

    fn panicked(&self, payload: &(dyn Any + Send)) -> PipelineError {
        PipelineError::panicked(&self.name, payload)
    }

    /// Applies the policy for failures to a result.
    fn outcome(&self, result: Result<U, PipelineError>) -> Outcome<U> {
        let outcome = catch_unwind(AssertUnwindSafe(|| match result {
            Ok(value) => Outcome { bytes: Some((self.bytes)(&value)), message: Some(Ok(value)) },
            Err(error) => {
                let count = self.failures.fetch_add(1, Relaxed) + 1;
                let message = self.policy.decide(error, count, &self.name);
                Outcome { bytes: None, message: message.map(|message| message.map_err(Box::new)) }
            }
        }));
        outcome.unwrap_or_else(|payload| Outcome { bytes: None, message: Some(Err(self.panicked(&*payload).into())) })
    }
}

/// A pipe whose operation returns one result per item, on threads.
pub(crate) struct OnePipe<T, U> {
    pub(crate) pipe: Pipe<T, U>,
    pub(crate) f: Box<ThreadFn<T, U>>,
}

impl<T: Send, U: Send> Step for OnePipe<T, U> {
    fn step<'e>(&self, engine: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        let Some((slot, item)) = self.pipe.begin(stage, &mut state) else { return engine.settle(state) };
        let begun = state.now;
        let state = engine.settle(state);
        engine.release(state);
        let outcome = self.pipe.outcome(self.pipe.call(item, &*self.f));
        self.pipe.end(engine, stage, slot, begun, outcome)
    }
}

/// A pipe whose operation is asynchronous.
pub(crate) struct AsyncPipe<T, U> {
    pub(crate) pipe: Pipe<T, U>,
    pub(crate) f: Box<AsyncFn<T, U>>,
}

impl<T: Send + 'static, U: Send + 'static> Task for AsyncPipe<T, U> {
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

/// A pipe whose operation returns many results per item. Between two results an item's iterator is parked.
pub(crate) struct ManyPipe<T, U> {
    pub(crate) pipe: Pipe<T, U>,
    pub(crate) f: Box<ThreadFn<T, Results<U>>>,
    pub(crate) order: OutputOrder,
    pub(crate) open: Mutex<OpenItems<U>>,
}

/// The items that a stage has taken and not finished.
pub(crate) struct OpenItems<U> {
    next_number: u64,
    items: Vec<OpenItem<U>>,
}

struct OpenItem<U> {
    number: u64,
    /// `None` while a thread works on it.
    rest: Option<Rest<U>>,
}

/// What an item still gives.
enum Rest<U> {
    Results(Results<U>),
    /// A last message, of an operation that failed. What it counts was counted.
    Last(Message<U>),
}

impl<U> Default for OpenItems<U> {
    fn default() -> Self {
        Self { next_number: 0, items: Vec::new() }
    }
}

impl<U> OpenItems<U> {
    fn add(&mut self, rest: Option<Rest<U>>) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.items.push(OpenItem { number, rest });
        number
    }

    fn set(&mut self, number: u64, rest: Option<Rest<U>>) {
        let at = self.items.iter().position(|item| item.number == number).expect("an item is open until it has ended");
        match rest {
            Some(rest) => self.items[at].rest = Some(rest),
            // Not `swap_remove`: the items stay in the order in which they came.
            None => drop(self.items.remove(at)),
        }
    }

    /// Takes what the earliest item that is parked still gives.
    fn take(&mut self) -> (u64, Rest<U>) {
        let parked = self.items.iter_mut().find_map(|item| Some((item.number, item.rest.take()?)));
        parked.expect("the state counts the items that are parked")
    }

    /// Returns the number of items that could give a result.
    fn parked(&self, order: OutputOrder) -> usize {
        let parked = |item: &&OpenItem<U>| item.rest.is_some();
        match order {
            OutputOrder::Input => self.items.first().filter(parked).into_iter().count(),
            OutputOrder::Completion => self.items.iter().filter(parked).count(),
        }
    }
}

impl<T: Send, U: Send> Step for ManyPipe<T, U> {
    fn step<'e>(&self, engine: &'e Engine, stage: usize, state: Locked<'e>) -> Locked<'e> {
        if state.stages[stage].parked > 0 && state.has_room(stage) {
            self.give(engine, stage, state)
        } else {
            self.start(engine, stage, state)
        }
    }
}

impl<T: Send, U: Send> ManyPipe<T, U> {
    /// Takes an item and calls the operation on it.
    fn start<'e>(&self, engine: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        let item = match self.pipe.input.take(&mut state) {
            Ok(item) => item,
            Err(error) => {
                self.change(stage, &mut state, |open| open.add(Some(Rest::Last(Err(error)))));
                state.change(stage).open += 1;
                return engine.settle(state);
            }
        };
        let number = self.change(stage, &mut state, |open| open.add(None));
        let numbers = state.change(stage);
        numbers.running += 1;
        numbers.open += 1;
        engine.release(engine.settle(state));
        let rest = match self.pipe.call(item, &*self.f) {
            Ok(results) => Ok(Some(Rest::Results(results))),
            Err(error) => Err(self.pipe.outcome(Err(error)).message.map(Rest::Last)),
        };
        let mut state = engine.lock();
        if rest.is_err() {
            state.count(stage, None, std::time::Duration::ZERO);
        }
        state.change(stage).running -= 1;
        self.set(stage, &mut state, number, rest.unwrap_or_else(|last| last));
        engine.settle(state)
    }

    /// Gives one result of an item that is parked.
    fn give<'e>(&self, engine: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        let (number, rest) = self.change(stage, &mut state, OpenItems::take);
        let slot = self.pipe.output.reserve(&mut state);
        let mut results = match rest {
            Rest::Results(results) => results,
            Rest::Last(message) => {
                self.pipe.place(stage, &mut state, slot, Some(message));
                self.set(stage, &mut state, number, None);
                return engine.settle(state);
            }
        };
        state.change(stage).running += 1;
        let begun = state.now;
        engine.release(state);

        // An iterator at its end is dropped here, as its code is the user's.
        let next = catch_unwind(AssertUnwindSafe(move || results.next().map(|result| (result, results))));
        let (result, rest) = match next {
            Ok(None) => (None, None),
            Ok(Some((result, results))) => (Some(self.pipe.named(Ok(result))), Some(Rest::Results(results))),
            Err(payload) => (Some(Err(self.pipe.panicked(&*payload))), None),
        };
        let outcome = result.map(|result| self.pipe.outcome(result));

        let ended = Instant::now();
        let mut state = engine.lock_at(ended);
        state.change(stage).running -= 1;
        if let Some(outcome) = &outcome {
            state.count(stage, outcome.bytes, ended - begun);
        }
        self.pipe.place(stage, &mut state, slot, outcome.and_then(|outcome| outcome.message));
        self.set(stage, &mut state, number, rest);
        engine.settle(state)
    }

    /// Parks an item, or ends it.
    fn set(&self, stage: usize, state: &mut State, number: u64, rest: Option<Rest<U>>) {
        if rest.is_none() {
            state.change(stage).open -= 1;
        }
        self.change(stage, state, |open| open.set(number, rest));
    }

    fn change<R>(&self, stage: usize, state: &mut State, change: impl FnOnce(&mut OpenItems<U>) -> R) -> R {
        let mut open = lock(&self.open);
        let result = change(&mut open);
        state.change(stage).parked = open.parked(self.order);
        result
    }
}
