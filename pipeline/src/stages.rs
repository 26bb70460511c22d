//! The work of the stages of a running pipeline.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use futures::{Stream, StreamExt};
use rayon::ThreadPool;
use tokio::sync::{Mutex, Semaphore, mpsc::Receiver};

use crate::{
    error::PipelineError,
    op::{OnFailure, Op, OutputOrder},
    queue::{Live, Outlet, StageMessage, Turnstile},
    stats::StageRecorder,
    tasks::Tasks,
};

/// Runs a blocking source on its own thread.
pub(crate) fn iterate<T>(mut items: impl Iterator<Item = T>, live: &Live, outlet: &Outlet<T>) {
    let mut recorder = StageRecorder::new(live.stage.clone());
    loop {
        recorder.start();
        live.working.store(1, Relaxed);
        let item = catch_unwind(AssertUnwindSafe(|| items.next()));
        live.working.store(0, Relaxed);
        let message = match item {
            Ok(Some(item)) => Ok(item),
            Ok(None) => return,
            Err(payload) => Err(PipelineError::panicked(live.stage.name(), &*payload)),
        };
        recorder.done(0);
        let is_last = message.is_err();
        if outlet.blocking_send(message).is_err() || is_last {
            return;
        }
        recorder.handed_over();
    }
}

/// Runs a source on the event loop.
pub(crate) async fn flow<T>(items: impl Stream<Item = T>, live: Arc<Live>, outlet: Outlet<T>) {
    let mut recorder = StageRecorder::new(live.stage.clone());
    let mut items = std::pin::pin!(items);
    loop {
        recorder.start();
        live.working.store(1, Relaxed);
        let item = items.next().await;
        live.working.store(0, Relaxed);
        let Some(item) = item else { return };
        recorder.done(0);
        if outlet.send(Ok(item)).await.is_err() {
            return;
        }
        recorder.handed_over();
    }
}

/// A pipe, shared by its workers.
pub(crate) struct Pipe<T, U> {
    live: Arc<Live>,
    op: Op<T, U>,
    pool: Arc<ThreadPool>,
    inlet: Mutex<Inlet<T>>,
    turnstile: Turnstile,
}

struct Inlet<T> {
    receiver: Receiver<StageMessage<T>>,
    next_number: u64,
}

impl<T: Send + 'static, U: Send + 'static> Pipe<T, U> {
    pub(crate) fn new(
        live: Arc<Live>,
        op: Op<T, U>,
        pool: Arc<ThreadPool>,
        receiver: Receiver<StageMessage<T>>,
    ) -> Self {
        let inlet = Mutex::new(Inlet { receiver, next_number: 0 });
        Self { live, op, pool, inlet, turnstile: Turnstile::new() }
    }

    /// Runs one of the pipe's workers: takes an item, processes it and passes the result on, until there are no more
    /// items.
    pub(crate) async fn work(self: Arc<Self>, outlet: Outlet<U>) {
        let mut recorder = StageRecorder::new(self.live.stage.clone());
        while let Some((number, message)) = self.take().await {
            recorder.start();
            let result = match message {
                Ok(item) => self.run(item, &mut recorder).await,
                Err(error) => Some(Err(error)),
            };
            if self.op.order == OutputOrder::Input {
                self.turnstile.wait_for(number).await;
            }
            if let Some(message) = result
                && outlet.send(message).await.is_err()
            {
                return;
            }
            self.turnstile.advance();
            recorder.handed_over();
        }
    }

    async fn take(&self) -> Option<(u64, StageMessage<T>)> {
        let mut inlet = self.inlet.lock().await;
        let message = inlet.receiver.recv().await?;
        self.live.stage.dequeued(1);
        let number = inlet.next_number;
        inlet.next_number += 1;
        Some((number, message))
    }

    /// Runs the operation on an item. Returns `None` if the item is left out.
    async fn run(&self, item: T, recorder: &mut StageRecorder) -> Option<StageMessage<U>> {
        self.live.working.fetch_add(1, Relaxed);
        let result = self.op.run(item, self.live.stage.name(), &self.pool).await;
        self.live.working.fetch_sub(1, Relaxed);
        match result {
            Ok(value) => {
                recorder.done((self.op.bytes)(&value));
                Some(Ok(value))
            }
            Err(error) => {
                recorder.failed();
                match &self.op.on_failure {
                    OnFailure::Fail => Some(Err(error)),
                    OnFailure::Skip => None,
                    OnFailure::Replace(replacement) => Some(Ok(replacement(&error))),
                }
            }
        }
    }
}

/// Collects items into lists of `count`; the last may be shorter. After an error nothing follows.
pub(crate) async fn aggregate<T>(
    live: Arc<Live>,
    count: usize,
    mut receiver: Receiver<StageMessage<T>>,
    outlet: Outlet<Vec<T>>,
) {
    let mut recorder = StageRecorder::new(live.stage.clone());
    let mut list = Vec::new();
    while let Some(message) = receiver.recv().await {
        live.stage.dequeued(1);
        recorder.start();
        match message {
            Ok(item) => list.push(item),
            Err(error) => {
                let _ = outlet.send(Err(error)).await;
                return;
            }
        }
        if list.len() == count {
            recorder.done(0);
            if outlet.send(Ok(std::mem::take(&mut list))).await.is_err() {
                return;
            }
            recorder.handed_over();
        }
    }
    if !list.is_empty() {
        recorder.start();
        recorder.done(0);
        let _ = outlet.send(Ok(list)).await;
    }
}

/// Splits lists into their items.
pub(crate) async fn disaggregate<L: IntoIterator<IntoIter: Send>>(
    live: Arc<Live>,
    mut receiver: Receiver<StageMessage<L>>,
    outlet: Outlet<L::Item>,
) {
    let mut recorder = StageRecorder::new(live.stage.clone());
    while let Some(message) = receiver.recv().await {
        live.stage.dequeued(1);
        recorder.start();
        let list = match message {
            Ok(list) => list.into_iter(),
            Err(error) => {
                let _ = outlet.send(Err(error)).await;
                return;
            }
        };
        recorder.done(0);
        for item in list {
            if outlet.send(Ok(item)).await.is_err() {
                return;
            }
        }
        recorder.handed_over();
    }
}

/// Passes items to the consumer, at most `buffer` ahead of it.
pub(crate) async fn sink<T: Send + 'static>(
    live: Arc<Live>,
    buffer: usize,
    mut receiver: Receiver<StageMessage<T>>,
    tasks: Tasks<T>,
) {
    let places = Arc::new(Semaphore::new(buffer));
    let mut recorder = StageRecorder::new(live.stage.clone());
    while let Some(message) = receiver.recv().await {
        live.stage.dequeued(1);
        recorder.start();
        match message {
            Ok(item) => {
                recorder.done(0);
                let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
                if !tasks.deliver(item, place) {
                    return;
                }
                recorder.handed_over();
            }
            Err(error) => return tasks.fail(error),
        }
    }
    tasks.stop();
}
