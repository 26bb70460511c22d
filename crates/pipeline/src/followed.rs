//! The stage that passes on all items and then one more. Like the stage that collects lists, it needs no thread.

use std::sync::Arc;

use crate::{
    engine::{Engine, Locked, ThreadStage},
    link::{Link, NoItem, TakenMessage, pass_on},
    sync::{Mutex, lock},
};

/// Passes on items, and `last` when they have ended. After an error nothing follows.
pub(crate) struct Followed<T> {
    pub(crate) input: Arc<Link<T>>,
    pub(crate) output: Arc<Link<T>>,
    pub(crate) last: Mutex<Option<T>>,
}

impl<T: Send> ThreadStage for Followed<T> {
    fn step<'e>(&self, _: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        let TakenMessage { message, is_last } = if state.links[self.input.id].ready > 0 {
            self.input.take(&mut state)
        } else {
            state.change(stage).has_rest = false;
            let last = lock(&self.last).take().expect("the end of the input is reached once");
            TakenMessage { message: Ok(last), is_last: false }
        };
        if matches!(message, Err(NoItem::Failed(_))) {
            state.change(stage).has_rest = false;
        }
        pass_on(stage, &mut state, &self.output, is_last, message);
        state
    }
}
