//! Runs the pipelines of this module: from async callers, within a bound on memory, with the errors of a dataset.

use std::{
    num::NonZero,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use futures::{Stream, stream};
use spdl_pipeline::{Op, Pipeline, PipelineError, PipelinePlan};
use spdl_types::StageStats;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinHandle,
};

use super::DatasetError;

/// Time between two reports of the statistics, and between two checks whether the caller has gone.
const STATS_INTERVAL: Duration = Duration::from_millis(100);
/// Upper limit of the KiB of content in a pipeline, unless one item alone has more.
const MEMORY_KIB: u32 = 48 << 10;

/// Returns the number of threads for work that computes: one for each core that this process may use.
pub(super) fn cpu_threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Returns an operation that waits for a store. It runs on the caller's runtime and not on the pipeline's: a client's
/// connections end with the runtime that they were made on.
pub(super) fn on_runtime<T, U, F, R>(work: F) -> Op<T, U>
where
    T: Send + 'static,
    U: Send + 'static,
    F: Fn(T) -> R + Send + Sync + 'static,
    R: Future<Output = Result<U, DatasetError>> + Send + 'static,
{
    let runtime = Handle::current();
    Op::asynchronous(move |item| {
        let working = runtime.spawn(work(item));
        async move { working.await.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic())) }
    })
}

/// Bounds the memory that the items of a pipeline take.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBound(Arc<Semaphore>);

/// The memory of an item, which is free again when this is dropped.
pub(crate) type Memory = OwnedSemaphorePermit;

impl MemoryBound {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MEMORY_KIB as usize)))
    }

    /// Waits until there is memory for `bytes`. An item that is larger than the bound gets all of it. Items must ask in
    /// the order in which they leave the pipeline: then those that wait never hold up those that have their memory.
    pub(crate) async fn take(&self, bytes: u64) -> Memory {
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX).clamp(1, MEMORY_KIB);
        Arc::clone(&self.0).acquire_many_owned(kib).await.expect("it is never closed")
    }
}

/// A running pipeline, whose items an async function takes. When this is dropped, the pipeline stops.
pub(crate) struct RunningStages<T> {
    messages: mpsc::Receiver<StageMessage<T>>,
    driver: JoinHandle<()>,
}

enum StageMessage<T> {
    Item(Result<T, PipelineError>),
    Stats(Vec<StageStats>),
}

impl<T: Send + 'static> RunningStages<T> {
    /// Starts a pipeline.
    pub(crate) fn start(plan: PipelinePlan<T>) -> Result<Self, DatasetError> {
        let pipeline = plan.build(cpu_threads())?;
        let (sender, messages) = mpsc::channel(1);
        let driver = tokio::task::spawn_blocking(move || drive(pipeline, &sender));
        Ok(Self { messages, driver })
    }

    /// Returns the next item; `None` after the last one. Calls `on_stats` with the statistics of the stages while it
    /// waits, and when the pipeline has ended. It may be cancelled; then no item is lost.
    pub(super) async fn next(&mut self, mut on_stats: impl FnMut(&[StageStats])) -> Result<Option<T>, DatasetError> {
        while let Some(message) = self.messages.recv().await {
            match message {
                StageMessage::Item(item) => return item.map(Some).map_err(error_of),
                StageMessage::Stats(stats) => on_stats(&stats),
            }
        }
        Ok(None)
    }

    /// Returns the items as a stream, which ends with the first error. See [`next`](Self::next) for `on_stats`.
    pub(crate) fn into_stream<'s>(
        self,
        on_stats: impl FnMut(&[StageStats]) + Send + 's,
    ) -> impl Stream<Item = Result<T, DatasetError>> + Send + 's
    where
        T: 's,
    {
        stream::try_unfold((self, on_stats), |(mut stages, mut on_stats)| async move {
            let item = stages.next(&mut on_stats).await?;
            Ok(item.map(|item| (item, (stages, on_stats))))
        })
    }

    /// Stops the pipeline and waits until no thread of it works any more.
    pub(super) async fn stop(self) {
        drop(self.messages);
        self.driver.await.expect("the driver does not panic");
    }
}

/// Passes on the items of a pipeline and its statistics until the caller has gone.
fn drive<T: Send + 'static>(pipeline: Pipeline<T>, messages: &mpsc::Sender<StageMessage<T>>) {
    let mut shown = Instant::now();
    loop {
        let message = match pipeline.iter(STATS_INTERVAL).next() {
            Some(Err(error)) if error.is_retryable() => StageMessage::Stats(pipeline.stats()),
            Some(item) => StageMessage::Item(item),
            None => break,
        };
        if messages.blocking_send(message).is_err() {
            break;
        }
        if shown.elapsed() >= STATS_INTERVAL {
            shown = Instant::now();
            let _ = messages.blocking_send(StageMessage::Stats(pipeline.stats()));
        }
    }
    let _ = messages.blocking_send(StageMessage::Stats(pipeline.stats()));
    pipeline.stop();
}

/// Returns the error of an operation of this module.
fn error_of(error: PipelineError) -> DatasetError {
    match error {
        PipelineError::Failed { source, .. } => match source.downcast::<DatasetError>() {
            Ok(error) => *error,
            Err(other) => unreachable!("an operation failed with another error: {other}"),
        },
        error => panic!("{error}"),
    }
}
