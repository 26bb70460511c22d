//! The work of the stages of a running pipeline.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture};
use rayon::ThreadPool;
use tokio::{
    sync::{Mutex, Semaphore, mpsc::Receiver, oneshot},
    task::spawn_blocking,
};

use crate::{
    error::{OpError, PipelineError},
    op::{Op, OpWork, OutputOrder, Results, Threads},
    queue::{Drain, Live, Outlet, StageMessage, Turnstile},
    stats::StageRecorder,
    tasks::Tasks,
};

/// Runs a blocking source on its own thread.
pub(crate) fn iterate<T>(mut items: impl Iterator<Item = T>, live: &Live, outlet: &Outlet<T>, drain: &Drain) {
    let mut recorder = StageRecorder::new(live.stage.clone());
    while !drain.is_asked() {
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
pub(crate) async fn flow<T>(items: impl Stream<Item = T>, live: Arc<Live>, outlet: Outlet<T>, drain: Arc<Drain>) {
    let mut recorder = StageRecorder::new(live.stage.clone());
    let mut items = std::pin::pin!(items.take_until(drain.asked()));
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

/// Starts a task of a stage.
pub(crate) type Spawn = Arc<dyn Fn(&Live, BoxFuture<'static, ()>) + Send + Sync>;

/// A pipe, shared by its workers.
pub(crate) struct Pipe<T, U> {
    live: Arc<Live>,
    op: Op<T, U>,
    pool: Arc<ThreadPool>,
    spawn: Spawn,
    workers: AtomicUsize,
    inlet: Mutex<Inlet<T>>,
    turnstile: Turnstile,
}

struct Inlet<T> {
    receiver: Receiver<StageMessage<T>>,
    next_number: u64,
}

/// The result of an operation on one item.
enum Outcome<U> {
    One(U),
    Many(Results<U>),
}

impl<T: Send + 'static, U: Send + 'static> Pipe<T, U> {
    pub(crate) fn new(
        live: Arc<Live>,
        op: Op<T, U>,
        pool: Arc<ThreadPool>,
        spawn: Spawn,
        receiver: Receiver<StageMessage<T>>,
    ) -> Arc<Self> {
        let inlet = Mutex::new(Inlet { receiver, next_number: 0 });
        let workers = AtomicUsize::new(0);
        Arc::new(Self { live, op, pool, spawn, workers, inlet, turnstile: Turnstile::new() })
    }

    /// Starts the workers that the concurrency of the stage allows.
    pub(crate) fn start_workers(self: &Arc<Self>, outlet: &Outlet<U>) {
        let limit = || self.live.concurrency.load(Relaxed);
        while self.workers.fetch_update(Relaxed, Relaxed, |count| (count < limit()).then_some(count + 1)).is_ok() {
            (self.spawn)(&self.live, self.clone().work(outlet.clone()).boxed());
        }
    }

    /// Ends the calling worker's count if there are more workers than the concurrency of the stage allows.
    fn is_superfluous(&self) -> bool {
        let limit = self.live.concurrency.load(Relaxed);
        self.workers.fetch_update(Relaxed, Relaxed, |count| (count > limit).then(|| count - 1)).is_ok()
    }

    /// Runs one of the pipe's workers: takes an item, processes it and passes the result on, until there are no more
    /// items.
    async fn work(self: Arc<Self>, outlet: Outlet<U>) {
        let mut recorder = StageRecorder::new(self.live.stage.clone());
        while !self.is_superfluous()
            && let Some((number, message)) = self.take().await
        {
            self.start_workers(&outlet);
            recorder.start();
            let result = match message {
                Ok(item) => self.run(item, &mut recorder).await,
                Err(error) => Err(error),
            };
            if self.op.order == OutputOrder::Input {
                self.turnstile.wait_for(number).await;
            }
            if !self.pass_on(result, &outlet, &mut recorder).await {
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

    /// Runs the operation on an item, again after failures that are to be tried again.
    async fn run(&self, mut item: T, recorder: &mut StageRecorder) -> Result<Outcome<U>, PipelineError> {
        self.live.working.fetch_add(1, Relaxed);
        let mut attempt = 0;
        let result = loop {
            let copy = self.op.failures.copy_for_retry(&item, attempt);
            match (self.attempt(item).await, copy) {
                (Err(_), Some(copy)) => (item, attempt) = (copy, attempt + 1),
                (result, _) => break result,
            }
        };
        self.live.working.fetch_sub(1, Relaxed);
        if let Ok(Outcome::One(value)) = &result {
            recorder.done((self.op.bytes)(value));
        }
        result
    }

    async fn attempt(&self, item: T) -> Result<Outcome<U>, PipelineError> {
        match &self.op.work {
            OpWork::Asynchronous(f) => {
                let result = AssertUnwindSafe(async { f(item).await }).catch_unwind().await;
                self.named(result).map(Outcome::One)
            }
            OpWork::One(f, threads) => {
                let f = f.clone();
                self.named(self.on_thread(*threads, move || f(item)).await).map(Outcome::One)
            }
            OpWork::Many(f, threads) => {
                let f = f.clone();
                self.named(self.on_thread(*threads, move || f(item)).await).map(Outcome::Many)
            }
        }
    }

    fn named<V>(&self, result: std::thread::Result<Result<V, OpError>>) -> Result<V, PipelineError> {
        let stage = self.live.stage.name();
        match result {
            Ok(result) => result.map_err(|source| PipelineError::Failed { stage: stage.to_owned(), source }),
            Err(payload) => Err(PipelineError::panicked(stage, &*payload)),
        }
    }

    async fn on_thread<V: Send + 'static>(
        &self,
        threads: Threads,
        f: impl FnOnce() -> V + Send + 'static,
    ) -> std::thread::Result<V> {
        if threads == Threads::OwnStage {
            return spawn_blocking(|| catch_unwind(AssertUnwindSafe(f))).await.expect("panics are caught");
        }
        let (sender, receiver) = oneshot::channel();
        self.pool.spawn(move || {
            // The receiver is gone once the pipeline has stopped.
            if !sender.is_closed() {
                let _ = sender.send(catch_unwind(AssertUnwindSafe(f)));
            }
        });
        receiver.await.expect("a job whose result is awaited sends it")
    }

    /// Sends the results of an item. Returns false if the pipeline has stopped.
    async fn pass_on(
        &self,
        result: Result<Outcome<U>, PipelineError>,
        outlet: &Outlet<U>,
        recorder: &mut StageRecorder,
    ) -> bool {
        let mut results = match result {
            Ok(Outcome::One(value)) => return outlet.send(Ok(value)).await.is_ok(),
            Ok(Outcome::Many(results)) => results,
            Err(error) => return self.send_failure(error, outlet, recorder).await,
        };
        let OpWork::Many(_, threads) = self.op.work else { unreachable!("only such operations have many results") };
        loop {
            let next = move || {
                let next = results.next();
                (results, next)
            };
            let sent = match self.on_thread(threads, next).await {
                Err(payload) => {
                    let error = PipelineError::panicked(self.live.stage.name(), &*payload);
                    return self.send_failure(error, outlet, recorder).await;
                }
                Ok((_, None)) => return true,
                Ok((rest, Some(result))) => {
                    results = rest;
                    match self.named(Ok(result)) {
                        Ok(value) => {
                            recorder.done((self.op.bytes)(&value));
                            outlet.send(Ok(value)).await.is_ok()
                        }
                        Err(error) => self.send_failure(error, outlet, recorder).await,
                    }
                }
            };
            if !sent {
                return false;
            }
            recorder.handed_over();
        }
    }

    async fn send_failure(&self, error: PipelineError, outlet: &Outlet<U>, recorder: &mut StageRecorder) -> bool {
        recorder.failed();
        let stage = &self.live.stage;
        match self.op.failures.decide(error, stage.failures(), stage.name()) {
            Some(message) => outlet.send(message).await.is_ok(),
            None => true,
        }
    }
}

/// Collects items into lists of `count`. A shorter rest is kept or dropped. After an error nothing follows.
pub(crate) async fn aggregate<T>(
    live: Arc<Live>,
    count: usize,
    keeps_rest: bool,
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
    if keeps_rest && !list.is_empty() {
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
