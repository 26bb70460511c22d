//! A pipeline of stages in one process: a source, operations with their own concurrency, bounded queues between them,
//! and a sink that the caller iterates. The design follows Meta's SPDL, with types, and with failures that are never
//! dropped silently.
//!
//! Every queue is bounded, so a slow stage blocks the stages before it and memory stays bounded. Dropping a pipeline
//! stops it.
//!
//! ```
//! use std::{io, time::Duration};
//! use spdl_pipeline::{Op, Pipeline};
//!
//! let pipeline = Pipeline::builder()
//!     .source(["a", "bb", "ccc", "dddd", "eeeee"])
//!     .pipe("fetch", Op::asynchronous(async |name: &str| Ok::<_, io::Error>(name.repeat(100))), 4)
//!     .pipe("decode", Op::cpu(|text: String| Ok::<_, io::Error>(text.len())).skip_failures(), 2)
//!     .aggregate(2)
//!     .sink(3)
//!     .build(2)?;
//! let batches = pipeline.iter(Duration::from_secs(10)).collect::<Result<Vec<_>, _>>()?;
//! assert_eq!(batches, [vec![100, 200], vec![300, 400], vec![500]]);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod error;
mod op;
mod queue;
mod stages;
pub mod stats;
mod tasks;

#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed, mpsc as blocking},
    thread::JoinHandle,
    time::Duration,
};

use spdl_core::messages::StageStats;
use tokio::runtime::Runtime;

pub use builder::{PipelineBuilder, PipelinePlan, Stages};
pub use error::{BuildError, ConcurrencyError, OpError, PipelineError};
pub use op::{Op, OutputOrder};

use queue::{Drain, Live};
use stats::StageWaits;
use tasks::{DeliveredItem, Tasks};

/// A running pipeline. Dropping it stops it: running operations finish on their threads, no new ones start, and the
/// threads end by themselves; [`stop`](Self::stop) waits for them.
pub struct Pipeline<T: Send + 'static> {
    deliveries: blocking::Receiver<DeliveredItem<T>>,
    tasks: Tasks<T>,
    drain: Arc<Drain>,
    live: Vec<Arc<Live>>,
    /// `None` once the pipeline has stopped.
    runtime: Option<Runtime>,
    threads: Vec<JoinHandle<()>>,
}

impl Pipeline<()> {
    /// Returns a builder of a pipeline, whose item type follows from its stages.
    #[must_use]
    pub fn builder() -> PipelineBuilder {
        PipelineBuilder::default()
    }
}

impl<T: Send + 'static> Pipeline<T> {
    /// Iterates over the items and waits at most `timeout` for each. Blocks the calling thread. After a
    /// [`Timeout`](PipelineError::Timeout) the iterator can be used again; after any other error it ends.
    pub fn iter(&self, timeout: Duration) -> Items<'_, T> {
        Items { pipeline: self, timeout }
    }

    /// Returns the statistics of every stage from source to sink. Time in which an operation waits for a thread of the
    /// pool counts as busy.
    #[must_use]
    pub fn stats(&self) -> Vec<StageStats> {
        self.live.iter().map(|live| live.stage.stats()).collect()
    }

    /// Returns the waiting times of every stage, in the same order as [`stats`](Self::stats).
    #[must_use]
    pub fn waits(&self) -> Vec<StageWaits> {
        self.live.iter().map(|live| live.stage.waits()).collect()
    }

    /// Sets the number of items that the pipe `stage` works on at once. When lowered, running operations finish; when
    /// raised, operations that compute still share the threads of the pool.
    ///
    /// # Errors
    /// [`ConcurrencyError`] if the pipeline has no such pipe or `concurrency` is zero.
    pub fn set_concurrency(&self, stage: &str, concurrency: usize) -> Result<(), ConcurrencyError> {
        let pipes = || self.live.iter().filter(|live| live.concurrency.load(Relaxed) > 0);
        let Some(pipe) = pipes().find(|live| live.stage.name() == stage) else {
            let names: Vec<String> = pipes().map(|live| format!("`{}`", live.stage.name())).collect();
            let pipes = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(ConcurrencyError::NoPipe { stage: stage.to_owned(), pipes });
        };
        if concurrency == 0 {
            return Err(ConcurrencyError::Zero { stage: stage.to_owned() });
        }
        pipe.concurrency.store(concurrency, Relaxed);
        Ok(())
    }

    /// Takes no more items from the source. Items that it has given still come out; then the pipeline ends. An iterator
    /// that is asked for its next item at this moment still gives it.
    pub fn drain(&self) {
        self.drain.ask();
    }

    /// Stops the pipeline and waits until every thread has ended, that is, until running operations and the source
    /// return.
    ///
    /// # Panics
    /// If it is called on an event loop of tokio, which must not be blocked.
    pub fn stop(mut self) {
        self.tasks.stop();
        drop(self.runtime.take());
        for thread in self.threads.drain(..) {
            // Panics of operations and of the source are caught where they are called.
            thread.join().expect("a thread of the engine does not panic");
        }
    }

    /// Returns a timeout error that names the stage nearest to the sink that is working, as all later stages wait for
    /// it.
    fn timed_out(&self, waited: Duration) -> PipelineError {
        let source = &self.live[0];
        let working = |live: &&Arc<Live>| live.working.load(Relaxed) > 0;
        let stuck = self.live.iter().rev().find(working).unwrap_or(source);
        let doing = if Arc::ptr_eq(stuck, source) {
            "has no next item yet".to_owned()
        } else {
            let items = stuck.working.load(Relaxed);
            format!("is working on {items} {}", if items == 1 { "item" } else { "items" })
        };
        PipelineError::Timeout { stage: stuck.stage.name().to_owned(), doing, waited }
    }
}

impl<T: Send + 'static> Drop for Pipeline<T> {
    fn drop(&mut self) {
        self.tasks.stop();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// An iterator over the items of a pipeline.
pub struct Items<'p, T: Send + 'static> {
    pipeline: &'p Pipeline<T>,
    timeout: Duration,
}

impl<T: Send + 'static> Iterator for Items<'_, T> {
    type Item = Result<T, PipelineError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.pipeline.deliveries.recv_timeout(self.timeout) {
            Ok((message, _place)) => Some(message),
            Err(blocking::RecvTimeoutError::Disconnected) => None,
            Err(blocking::RecvTimeoutError::Timeout) => Some(Err(self.pipeline.timed_out(self.timeout))),
        }
    }
}
