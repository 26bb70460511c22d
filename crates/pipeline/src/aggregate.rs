//! The stage that collects items into lists. It has no operation, so it needs no thread: the thread that gives it an item or
//! takes a list runs it.

use std::sync::Arc;

use crate::{
    engine::{Engine, Locked, ThreadStage},
    link::{Link, LinkMessage, NoItem, TakenMessage},
    pipeline_state::{Count, PipelineState},
    sync::{Mutex, lock},
};

/// Upper limit of the capacity with which a list is created; a longer list grows.
const INITIAL_CAPACITY: usize = 1024;

/// Collects items into lists of `count`. A shorter rest is kept or dropped. After an error nothing follows.
pub(crate) struct Aggregate<T> {
    pub(crate) count: usize,
    pub(crate) keeps_rest: bool,
    pub(crate) input: Arc<Link<T>>,
    pub(crate) output: Arc<Link<Vec<T>>>,
    pub(crate) list: Mutex<Vec<T>>,
}

impl<T: Send> ThreadStage for Aggregate<T> {
    fn step<'e>(&self, _: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        let mut list = lock(&self.list);
        let (error, is_last) = self.collect(&mut list, &mut state);
        let has_ended = state.stages[stage].has_rest && !is_last && state.links[self.input.id].has_ended();
        state.change(stage).has_rest = false;
        let message: Option<LinkMessage<Vec<T>>> = match error {
            Some(error) => Some(Err(error)),
            None if list.len() == self.count || has_ended => Some(Ok(std::mem::take(&mut *list))),
            None => None,
        };
        match &message {
            Some(Ok(_)) => state.count(stage, Count::Item(0), std::time::Duration::ZERO),
            Some(Err(_)) => state.halt(stage),
            None => state.change(stage).has_rest = self.keeps_rest && !list.is_empty(),
        }
        if message.is_some() || is_last {
            let slot = self.output.reserve(&mut state, is_last);
            self.output.place(&mut state, slot, message);
        }
        state
    }
}

impl<T> Aggregate<T> {
    /// Takes items until the list is full, no item is ready, or an item of the branch gives no more. Returns the error
    /// that came in the place of an item, and whether an item of the branch has no more for the list.
    fn collect(&self, list: &mut Vec<T>, state: &mut PipelineState) -> (Option<NoItem>, bool) {
        while list.len() < self.count && state.links[self.input.id].ready > 0 {
            let TakenMessage { message, is_last } = self.input.take(state);
            match message {
                Ok(item) => {
                    if list.capacity() == 0 {
                        list.reserve(self.count.min(INITIAL_CAPACITY));
                    }
                    list.push(item);
                }
                Err(NoItem::LeftOut) => {}
                Err(error) => return (Some(error), is_last),
            }
            if is_last {
                return (None, true);
            }
        }
        (None, false)
    }
}
