//! The stage whose operation returns many results per item.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use crate::{
    engine::{Engine, Locked, ThreadStage},
    link::{LinkMessage, NoItem, OutputOrder, TakenMessage},
    op::{Results, ThreadFn},
    pipe::{Outcome, Pipe},
    pipeline_state::{Count, PipelineState},
    sync::{Mutex, lock},
};

/// A pipe whose operation returns many results per item. Between two results, an item's iterator is parked. Where
/// results leave in the order of the items, later items run ahead of the first, until as many results wait as the queue
/// behind the stage holds.
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
    /// Number of threads that make a result ahead.
    running_ahead: usize,
}

struct OpenItem<U> {
    number: u64,
    /// Whether the last result is also the last one of an item of the branch.
    is_last: bool,
    /// `None` while a thread works on it.
    rest: Option<Rest<U>>,
    /// Results that were made before the item was the first.
    ahead: VecDeque<LinkMessage<U>>,
}

/// The results that an item still gives.
enum Rest<U> {
    Results(Results<U>),
    /// A last message: of an operation that failed, or of a message without an item. It has been counted already.
    Last(LinkMessage<U>),
    /// Nothing beyond the results that were made ahead.
    Nothing,
}

impl<U> Default for OpenItems<U> {
    fn default() -> Self {
        Self { next_number: 0, items: Vec::new(), running_ahead: 0 }
    }
}

impl<U> OpenItems<U> {
    fn add(&mut self, is_last: bool, rest: Option<Rest<U>>) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.items.push(OpenItem { number, is_last, rest, ahead: VecDeque::new() });
        number
    }

    fn at(&self, number: u64) -> usize {
        self.items.iter().position(|item| item.number == number).expect("an item is open until it has ended")
    }

    fn set(&mut self, number: u64, rest: Option<Rest<U>>) {
        let at = self.at(number);
        match rest {
            Some(rest) => self.items[at].rest = Some(rest),
            // Not `swap_remove`: the items stay in the order in which they came.
            None => drop(self.items.remove(at)),
        }
    }

    /// Takes the remaining results of the earliest item that is parked.
    fn take(&mut self) -> (u64, bool, Rest<U>) {
        let parked = self.items.iter_mut().find_map(|item| Some((item.number, item.is_last, item.rest.take()?)));
        parked.expect("the state counts the items that are parked")
    }

    /// Takes the iterator of the earliest item behind the first that has one.
    fn take_ahead(&mut self) -> (u64, Results<U>) {
        self.running_ahead += 1;
        let mut items = self.items.iter_mut().skip(1);
        let item = items.find(|item| matches!(item.rest, Some(Rest::Results(_)))).expect("the state counts such items");
        match item.rest.take() {
            Some(Rest::Results(results)) => (item.number, results),
            _ => unreachable!("the item has an iterator"),
        }
    }

    /// Adds a result that was made ahead, and parks the item.
    fn add_ahead(&mut self, number: u64, message: Option<LinkMessage<U>>, rest: Option<Rest<U>>) {
        self.running_ahead -= 1;
        let at = self.at(number);
        let item = &mut self.items[at];
        item.ahead.extend(message);
        let end = if item.is_last { Rest::Last(Err(NoItem::LeftOut)) } else { Rest::Nothing };
        item.rest = Some(rest.unwrap_or(end));
    }

    /// Takes a result of the first item that was made ahead.
    fn take_made(&mut self) -> Option<LinkMessage<U>> {
        self.items.first_mut().and_then(|item| item.ahead.pop_front())
    }

    /// Removes the first items that give nothing more, and returns their number.
    fn remove_ended(&mut self) -> usize {
        let ended = |item: &OpenItem<U>| matches!(item.rest, Some(Rest::Nothing)) && item.ahead.is_empty();
        let count = self.items.iter().take_while(|item| ended(item)).count();
        drop(self.items.drain(..count));
        count
    }

    /// Returns the number of items that could give a result.
    fn parked(&self, order: OutputOrder) -> usize {
        let parked = |item: &&OpenItem<U>| item.rest.is_some() || !item.ahead.is_empty();
        match order {
            OutputOrder::Input => self.items.first().filter(parked).into_iter().count(),
            OutputOrder::Completion => self.items.iter().filter(parked).count(),
        }
    }

    /// Returns the number of items that could make a result ahead, where at most `limit` of these wait.
    fn could_run_ahead(&self, limit: usize) -> usize {
        let behind = || self.items.iter().skip(1);
        let parked = behind().filter(|item| matches!(item.rest, Some(Rest::Results(_)))).count();
        let made: usize = self.items.iter().map(|item| item.ahead.len()).sum();
        parked.min(limit.saturating_sub(made + self.running_ahead))
    }
}

impl<T: Send, U: Send> ThreadStage for ManyPipe<T, U> {
    fn step<'e>(&self, engine: &'e Engine, stage: usize, state: Locked<'e>) -> Locked<'e> {
        if state.stages[stage].parked > 0 && state.has_room(stage) {
            self.give(engine, stage, state)
        } else if state.can_start(stage) {
            self.start(engine, stage, state)
        } else {
            self.run_ahead(engine, stage, state)
        }
    }
}

impl<T: Send, U: Send> ManyPipe<T, U> {
    /// Takes an item and calls the operation on it.
    fn start<'e>(&self, engine: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        let TakenMessage { message, is_last } = self.pipe.input.take(&mut state);
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
        if let Some(message) = self.change(stage, &mut state, OpenItems::take_made) {
            let slot = self.pipe.output.reserve(&mut state, false);
            self.pipe.place(stage, &mut state, slot, Some(message));
            return engine.settle(state);
        }
        let (number, is_last, rest) = self.change(stage, &mut state, OpenItems::take);
        // A slot is marked as the last only if no other result follows.
        let slot = self.pipe.output.reserve(&mut state, false);
        let mut last_slot = slot;
        last_slot.is_last = is_last;
        let results = match rest {
            Rest::Results(results) => results,
            Rest::Nothing => unreachable!("items that give nothing more are removed"),
            Rest::Last(message) => {
                self.pipe.place(stage, &mut state, last_slot, Some(message));
                self.set(stage, &mut state, number, None);
                return engine.settle(state);
            }
        };
        let (mut state, message, rest) = self.make(engine, stage, state, results);
        let slot = if rest.is_some() { slot } else { last_slot };
        self.pipe.place(stage, &mut state, slot, message);
        self.set(stage, &mut state, number, rest);
        engine.settle(state)
    }

    /// Makes a result of an item behind the first.
    fn run_ahead<'e>(&self, engine: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        let (number, results) = self.change(stage, &mut state, OpenItems::take_ahead);
        let (mut state, message, rest) = self.make(engine, stage, state, results);
        self.change(stage, &mut state, |open| open.add_ahead(number, message, rest));
        engine.settle(state)
    }

    /// Makes a result with the state unlocked, and counts it. Returns it, and the rest of its item unless that has ended.
    fn make<'e>(
        &self,
        engine: &'e Engine,
        stage: usize,
        mut state: Locked<'e>,
        results: Results<U>,
    ) -> (Locked<'e>, Option<LinkMessage<U>>, Option<Rest<U>>) {
        state.change(stage).running += 1;
        let begun = state.now;
        engine.release(state);
        let (outcome, rest) = self.next(results);
        let ended = Instant::now();
        let mut state = engine.lock_at(ended);
        state.change(stage).running -= 1;
        if let Some(outcome) = &outcome {
            state.count(stage, outcome.count, ended - begun);
        }
        (state, outcome.and_then(|outcome| outcome.message), rest)
    }

    /// Asks an iterator for its next result. Returns the outcome, and the iterator unless it has ended.
    fn next(&self, mut results: Results<U>) -> (Option<Outcome<U>>, Option<Rest<U>>) {
        // An iterator at its end is dropped within `catch_unwind`, because that runs code of the user's.
        let next = catch_unwind(AssertUnwindSafe(move || results.next().map(|result| (result, results))));
        let (result, rest) = match next {
            Ok(None) => (None, None),
            Ok(Some((result, results))) => (Some(self.pipe.named(Ok(result))), Some(Rest::Results(results))),
            Err(payload) => (Some(Err(self.pipe.panicked(&*payload))), None),
        };
        (result.map(|result| self.pipe.outcome(result.map(Some))), rest)
    }

    /// Parks an item, or ends it.
    fn set(&self, stage: usize, state: &mut PipelineState, number: u64, rest: Option<Rest<U>>) {
        if rest.is_none() {
            state.change(stage).open -= 1;
        }
        self.change(stage, state, |open| open.set(number, rest));
    }

    fn change<R>(&self, stage: usize, state: &mut PipelineState, change: impl FnOnce(&mut OpenItems<U>) -> R) -> R {
        let mut open = lock(&self.open);
        let result = change(&mut open);
        let ended = open.remove_ended();
        let ahead = match self.order {
            OutputOrder::Input => open.could_run_ahead(state.capacity(self.pipe.output.id)),
            OutputOrder::Completion => 0,
        };
        let numbers = state.change(stage);
        numbers.open -= ended;
        (numbers.parked, numbers.ahead) = (open.parked(self.order), ahead);
        result
    }
}
