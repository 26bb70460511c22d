//! The sources of a pipeline: an iterator on its own thread, or a stream on the event loop.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    time::Instant,
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream::AbortHandle};

use crate::{
    engine::{Engine, Locked, Task, ThreadStage},
    error::PipelineError,
    link::{Link, LinkMessage, Slot},
    pipeline_state::{Count, PipelineState},
    sync::{Mutex, lock},
};

/// An iterator; `None` once it has ended.
pub(crate) struct IteratorSource<I: Iterator> {
    items: Mutex<Option<I>>,
    output: Arc<Link<I::Item>>,
}

impl<I: Iterator> IteratorSource<I> {
    pub(crate) fn new(items: I, output: Arc<Link<I::Item>>) -> Self {
        Self { items: Mutex::new(Some(items)), output }
    }
}

impl<I: Iterator<Item: Send> + Send> ThreadStage for IteratorSource<I> {
    fn step<'e>(&self, engine: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        let slot = begin(stage, &mut state, &self.output);
        let begun = state.now;
        engine.release(state);
        // Only the thread of this source locks it, so no one waits.
        let mut items = self.items.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let item = catch_unwind(AssertUnwindSafe(|| items.as_mut().and_then(Iterator::next)));
        if matches!(item, Ok(Some(_))) {
            *lock(&self.items) = items;
        } else {
            // A panic while the iterator is dropped is ignored: its last item has come.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(items)));
        }
        finish(engine, stage, &self.output, slot, begun, item)
    }
}

/// A stream; `None` once its task has taken it.
pub(crate) struct StreamSource<T> {
    items: Mutex<Option<Pin<Box<dyn Stream<Item = T> + Send>>>>,
    output: Arc<Link<T>>,
}

impl<T> StreamSource<T> {
    /// Creates the source, and the handle that ends it while it waits for an item.
    pub(crate) fn new(items: impl Stream<Item = T> + Send + 'static, output: Arc<Link<T>>) -> (Self, AbortHandle) {
        let (items, abort) = futures::stream::abortable(items);
        (Self { items: Mutex::new(Some(items.boxed())), output }, abort)
    }
}

impl<T: Send + 'static> Task for StreamSource<T> {
    fn task(self: Arc<Self>, engine: Arc<Engine>, stage: usize, number: usize) -> BoxFuture<'static, ()> {
        let mut items = lock(&self.items).take().expect("a stream has one task");
        Box::pin(async move {
            loop {
                let slot_and_begun = engine.next_step(stage, number).await.map(|mut state| {
                    let slot = begin(stage, &mut state, &self.output);
                    let begun = state.now;
                    engine.release(state);
                    (slot, begun)
                });
                let Some((slot, begun)) = slot_and_begun else { return };
                let item = AssertUnwindSafe(items.next()).catch_unwind().await;
                engine.release(finish(&engine, stage, &self.output, slot, begun, item));
            }
        })
    }
}

/// Reserves a slot for the next item, and returns it.
fn begin<T>(stage: usize, state: &mut PipelineState, output: &Link<T>) -> Slot {
    let slot = output.reserve(state, false);
    state.change(stage).running = 1;
    slot
}

/// Places the item in its slot, or ends the source.
fn finish<'e, T>(
    engine: &'e Engine,
    stage: usize,
    output: &Link<T>,
    slot: Slot,
    begun: Instant,
    item: std::thread::Result<Option<T>>,
) -> Locked<'e> {
    let ended = Instant::now();
    let mut state = engine.lock_at(ended);
    state.change(stage).running = 0;
    let message: Option<LinkMessage<T>> = match item {
        Ok(Some(item)) => {
            state.count(stage, Count::Item(0), ended - begun);
            Some(Ok(item))
        }
        Ok(None) => None,
        Err(payload) => Some(Err(PipelineError::panicked(&state.stages[stage].name, &*payload).into())),
    };
    if !matches!(message, Some(Ok(_))) {
        state.exhaust(stage);
    }
    output.place(&mut state, slot, message);
    engine.settle(state)
}
