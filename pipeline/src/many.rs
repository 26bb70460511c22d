//! The stage whose operation returns many results per item.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use crate::{
    engine::{Engine, Locked, Step},
    link::{Message, NoItem, Taken},
    op::{OutputOrder, Results, ThreadFn},
    pipe::Pipe,
    state::{Count, State},
    sync::{Mutex, lock},
};

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
    /// Whether the last result is also the last one of an item of the branch.
    is_last: bool,
    /// `None` while a thread works on it.
    rest: Option<Rest<U>>,
}

/// What an item still gives.
enum Rest<U> {
    Results(Results<U>),
    /// A last message, of an operation that failed or of a message without an item. What it counts was counted.
    Last(Message<U>),
}

impl<U> Default for OpenItems<U> {
    fn default() -> Self {
        Self { next_number: 0, items: Vec::new() }
    }
}

impl<U> OpenItems<U> {
    fn add(&mut self, is_last: bool, rest: Option<Rest<U>>) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.items.push(OpenItem { number, is_last, rest });
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
    fn take(&mut self) -> (u64, bool, Rest<U>) {
        let parked = self.items.iter_mut().find_map(|item| Some((item.number, item.is_last, item.rest.take()?)));
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
        let Taken { message, is_last } = self.pipe.input.take(&mut state);
        let item = match message {
            Ok(item) => item,
            Err(none) => {
                self.change(stage, &mut state, |open| open.add(is_last, Some(Rest::Last(Err(none)))));
                state.change(stage).open += 1;
                return engine.settle(state);
            }
        };
        let number = self.change(stage, &mut state, |open| open.add(is_last, None));
        let numbers = state.change(stage);
        numbers.running += 1;
        numbers.open += 1;
        engine.release(engine.settle(state));
        let rest = match self.pipe.call(item, &*self.f) {
            Ok(results) => Ok(Some(Rest::Results(results))),
            Err(error) => {
                Err(self.pipe.outcome(Err(error)).message.or(is_last.then_some(Err(NoItem::LeftOut))).map(Rest::Last))
            }
        };
        let mut state = engine.lock();
        if rest.is_err() {
            state.count(stage, Count::Failure, std::time::Duration::ZERO);
        }
        state.change(stage).running -= 1;
        self.set(stage, &mut state, number, rest.unwrap_or_else(|last| last));
        engine.settle(state)
    }

    /// Gives one result of an item that is parked.
    fn give<'e>(&self, engine: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        let (number, is_last, rest) = self.change(stage, &mut state, OpenItems::take);
        // Only a result that no other follows is the last.
        let slot = self.pipe.output.reserve(&mut state, false);
        let mut last_slot = slot;
        last_slot.is_last = is_last;
        let mut results = match rest {
            Rest::Results(results) => results,
            Rest::Last(message) => {
                self.pipe.place(stage, &mut state, last_slot, Some(message));
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
        let outcome = result.map(|result| self.pipe.outcome(result.map(Some)));

        let ended = Instant::now();
        let mut state = engine.lock_at(ended);
        state.change(stage).running -= 1;
        if let Some(outcome) = &outcome {
            state.count(stage, outcome.count, ended - begun);
        }
        let slot = if rest.is_some() { slot } else { last_slot };
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
