//! A pipeline of stages in one process: a source, operations with their own concurrency, bounded queues between them,
//! and a sink that the caller iterates. The design follows Meta's SPDL, with types, and with failures that are never
//! dropped silently.
//!
//! - [`Op`] is what a stage does to an item: it waits ([`Op::asynchronous`]), computes on the pipeline's threads
//!   ([`Op::cpu`]), blocks on threads of its own ([`Op::blocking`]), or makes many items of one ([`Op::cpu_many`],
//!   [`Op::blocking_many`]). It has an order of results, and a policy for failures: fail, skip, a bound.
//! - [`Stages`] chains them: [`pipe`](Stages::pipe), [`aggregate`](Stages::aggregate),
//!   [`disaggregate`](Stages::disaggregate), [`followed_by`](Stages::followed_by), [`sink`](Stages::sink). It branches, too:
//!   [`route`](Stages::route) sends each item to one of several [`Branches`], and [`merge`](PipelineBuilder::merge) takes items
//!   from several sources.
//! - [`Pipeline`] runs: [`iter`](Pipeline::iter) gives the items, [`stats`](Pipeline::stats) shows where the time goes,
//!   [`set_concurrency`](Pipeline::set_concurrency) changes it, [`drain`](Pipeline::drain) and [`stop`](Pipeline::stop) end it.
//!
//! Every queue is bounded, so a slow stage blocks the stages before it and memory stays bounded. Dropping a pipeline
//! stops it. A panic of an operation is a failure of its item.
//!
//! How it runs: one lock guards all numbers (`pipeline_state.rs`, `numbers.rs`) and queues (`link.rs`). A thread
//! takes a step of the stage nearest to the sink that has an item and room for the result, runs the operation without
//! the lock, and places the result (`engine.rs`). So no item needs a task, a channel or an allocation.
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

mod aggregate;
mod assembly;
mod branch;
mod builder;
mod engine;
mod error;
mod followed;
mod link;
mod many;
mod numbers;
mod op;
mod pipe;
mod pipeline_state;
mod source;
mod sync;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures::stream::AbortHandle;
use spdl_types::StageStats;
use tokio::runtime::Runtime;

pub use branch::Branches;
pub use builder::{PipelineBuilder, PipelinePlan, Stages};
pub use error::{BuildError, ConcurrencyError, OpError, PipelineError};
pub use link::OutputOrder;
pub use op::Op;

use engine::{Engine, deadline_in};
use link::{Link, NoItem};
use numbers::StageKind;
use pipeline_state::{Count, PipelineState};
use sync::{Mutex, lock, thread};

/// A running pipeline. Dropping it stops it: running operations finish on their threads, no new ones start, and the
/// threads end by themselves; [`stop`](Self::stop) waits for them.
pub struct Pipeline<T: Send + 'static> {
    engine: Arc<Engine>,
    output: Arc<Link<T>>,
    /// The crew of the consumers.
    consumers: usize,
    aborts: Vec<AbortHandle>,
    /// The event loop; `None` if no stage needs one, or once the pipeline has stopped.
    runtime: Option<Runtime>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Pipeline<()> {
    /// Returns a builder of a pipeline, whose item type follows from its stages.
    #[must_use]
    pub fn builder() -> PipelineBuilder {
        PipelineBuilder::default()
    }
}

impl<T: Send + 'static> Pipeline<T> {
    /// Starts the threads and tasks of an engine whose last link is `output`.
    fn start(engine: Arc<Engine>, output: Arc<Link<T>>, aborts: Vec<AbortHandle>) -> Result<Self, BuildError> {
        let state = engine.lock();
        let sizes: Vec<(usize, usize)> = state.crews.iter().map(|crew| (crew.stages[0], crew.size)).collect();
        drop(state);
        let needs_runtime = |stage: usize| engine.task(stage).is_some_and(|task| task.spawner().is_none());
        let no_threads = |source| BuildError::Threads { source };
        let runtime = if sizes.iter().any(|(stage, _)| needs_runtime(*stage)) {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let builder = builder.worker_threads(1).thread_name("spdl-engine").enable_all();
            Some(builder.build().map_err(no_threads)?)
        } else {
            None
        };
        let sink = engine.stage_count() - 1;
        let consumers = sizes.iter().position(|(stage, _)| *stage == sink).expect("the consumer is a crew");
        let pipeline = Self { engine, output, consumers, aborts, runtime, threads: Mutex::default() };
        for (crew, (_, size)) in sizes.into_iter().enumerate() {
            // An early return drops the pipeline, which ends all threads and tasks.
            pipeline.add_workers(crew, 0..size).map_err(no_threads)?;
        }
        Ok(pipeline)
    }

    /// Starts threads or tasks of a crew.
    fn add_workers(&self, crew: usize, numbers: std::ops::Range<usize>) -> std::io::Result<()> {
        let (stage, name) = {
            let state = self.engine.lock();
            let stage = state.crews[crew].stages[0];
            let is_pool = state.crews[crew].is_pool;
            (stage, if is_pool { "spdl-cpu".to_owned() } else { format!("spdl-{}", state.stages[stage].name) })
        };
        for number in numbers {
            if let Some(task) = self.engine.task(stage) {
                let future = task.clone().task(self.engine.clone(), stage, number);
                if let Some(spawner) = task.spawner() {
                    spawner.spawn_obj(future.into()).map_err(std::io::Error::other)?;
                } else if let Some(runtime) = &self.runtime {
                    runtime.spawn(future);
                }
                continue;
            }
            let engine = self.engine.clone();
            let thread = thread::Builder::new().name(format!("{name}-{number}"));
            lock(&self.threads).push(thread.spawn(move || engine.work(crew))?);
        }
        Ok(())
    }

    /// Iterates over the items and waits at most `timeout` for each. Blocks the calling thread. After a
    /// [`Timeout`](PipelineError::Timeout) the iterator can be used again; after any other error it ends.
    pub fn iter(&self, timeout: Duration) -> Items<'_, T> {
        Items { pipeline: self, timeout }
    }

    /// Returns the statistics of every stage from source to sink.
    #[must_use]
    pub fn stats(&self) -> Vec<StageStats> {
        let mut state = self.engine.lock();
        state.account_all();
        state.stats()
    }

    /// Sets the number of items that the pipe `stage` works on at once. When lowered, running operations finish; when
    /// raised, operations that compute still share the threads of the pool.
    ///
    /// # Errors
    /// [`ConcurrencyError`] if the pipeline has no such pipe, `concurrency` is zero, or the system starts no thread.
    pub fn set_concurrency(&self, stage: &str, concurrency: usize) -> Result<(), ConcurrencyError> {
        let mut state = self.engine.lock();
        let pipes = || state.stages.iter().enumerate().filter(|(_, stage)| stage.is_pipe);
        let Some((at, _)) = pipes().find(|(_, pipe)| pipe.name == stage) else {
            let names: Vec<String> = pipes().map(|(_, pipe)| format!("`{}`", pipe.name)).collect();
            let pipes = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(ConcurrencyError::NoPipe { stage: stage.to_owned(), pipes });
        };
        if concurrency == 0 {
            return Err(ConcurrencyError::Zero { stage: stage.to_owned() });
        }
        state.set_concurrency(at, concurrency);
        let crew = state.crews.iter().position(|crew| crew.stages.contains(&at)).expect("a pipe has a crew");
        let size = state.crews[crew].size;
        let more = if state.crews[crew].is_pool { size..size } else { size..concurrency.max(size) };
        state.crews[crew].size = more.end;
        self.engine.release(state);
        self.add_workers(crew, more).map_err(|source| ConcurrencyError::Threads { stage: stage.to_owned(), source })
    }

    /// Takes no more items from the source. Items that it has given still come out; then the pipeline ends. An iterator
    /// that is asked for its next item at this moment still gives it.
    pub fn drain(&self) {
        self.engine.drain();
        self.aborts.iter().for_each(AbortHandle::abort);
    }

    /// Stops the pipeline and waits until every thread has ended, that is, until running operations and the source
    /// return. It does not wait for tasks that run [elsewhere](Op::spawn_on).
    ///
    /// # Panics
    /// If it is called on an event loop of tokio, which must not be blocked.
    pub fn stop(mut self) {
        self.engine.stop();
        drop(self.runtime.take());
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // Panics of operations and of the source are caught where they are called.
            thread.join().expect("a thread of the engine does not panic");
        }
    }
}

/// Returns a timeout error that names the stage nearest to the sink that is working, as all later stages wait for it.
fn timed_out(state: &PipelineState, waited: Duration) -> PipelineError {
    let source = &state.stages[0];
    let stuck = state.stages.iter().rev().find(|stage| stage.running > 0).unwrap_or(source);
    let doing = match (stuck.kind, stuck.running) {
        (StageKind::Source, _) => "has no next item yet".to_owned(),
        (_, 1) => "is working on 1 item".to_owned(),
        (_, count) => format!("is working on {count} items"),
    };
    PipelineError::Timeout { stage: stuck.name.clone(), doing, waited }
}

impl<T: Send + 'static> Drop for Pipeline<T> {
    fn drop(&mut self) {
        self.engine.stop();
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
        let Pipeline { engine, output, consumers, .. } = self.pipeline;
        let deadline = deadline_in(self.timeout);
        let mut state = engine.lock();
        loop {
            if state.has_ended {
                return None;
            }
            if state.links[output.id].ready > 0 {
                let message = output.take(&mut state).message;
                match message {
                    Ok(_) => state.count(engine.stage_count() - 1, Count::Item(0), Duration::ZERO),
                    Err(_) => state.end(),
                }
                engine.release(engine.settle(state));
                return Some(message.map_err(|none| match none {
                    NoItem::Failed(error) => *error,
                    NoItem::LeftOut => unreachable!("what is left out of a branch goes no further than its end"),
                }));
            }
            let (locked, has_timed_out) = engine.wait(*consumers, state, deadline);
            state = locked;
            if has_timed_out && !state.has_ended && state.links[output.id].ready == 0 {
                return Some(Err(timed_out(&state, self.timeout)));
            }
        }
    }
}
