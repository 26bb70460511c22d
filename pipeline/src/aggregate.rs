//! The stage that collects items into lists. It has no operation, so it needs no thread: the thread that gives it an item or
//! takes a list runs it.

use std::sync::Arc;

use crate::{
    engine::{Engine, Locked, Step},
    link::Link,
    sync::{Mutex, lock},
};

/// Room that a list has from the beginning, at the most; a longer one grows.
const INITIAL_CAPACITY: usize = 1024;

/// Collects items into lists of `count`. A shorter rest is kept or dropped. After an error nothing follows.
pub(crate) struct Aggregate<T> {
    pub(crate) count: usize,
    pub(crate) keeps_rest: bool,
    pub(crate) input: Arc<Link<T>>,
    pub(crate) output: Arc<Link<Vec<T>>>,
    pub(crate) list: Mutex<Vec<T>>,
}

impl<T: Send> Step for Aggregate<T> {
    fn step<'e>(&self, _: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        let mut list = lock(&self.list);
        let mut error = None;
        while list.len() < self.count && error.is_none() && state.links[self.input.id].ready > 0 {
            match self.input.take(&mut state) {
                Ok(item) => {
                    if list.capacity() == 0 {
                        list.reserve(self.count.min(INITIAL_CAPACITY));
                    }
                    list.push(item);
                }
                Err(failed) => error = Some(failed),
            }
        }
        let is_last = state.stages[stage].has_rest && list.len() < self.count && error.is_none();
        let is_last = is_last && state.links[self.input.id].has_ended();
        state.change(stage).has_rest = false;
        let message = match error {
            Some(error) => Err(error),
            None if list.len() == self.count || is_last => Ok(std::mem::take(&mut *list)),
            None => {
                state.change(stage).has_rest = self.keeps_rest && !list.is_empty();
                return state;
            }
        };
        if message.is_err() {
            state.halt(stage);
        } else {
            state.count(stage, Some(0), std::time::Duration::ZERO);
        }
        let slot = self.output.reserve(&mut state);
        self.output.place(&mut state, slot, Some(message));
        state
    }
}
