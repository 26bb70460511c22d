//! Builds a pipeline: a chain of typed stages that starts when `build` is called.

use std::{
    collections::HashSet,
    sync::{Arc, mpsc as blocking},
    thread::JoinHandle,
};

use futures::{FutureExt, Stream};
use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::sync::mpsc::Receiver;

use crate::{
    Pipeline,
    error::BuildError,
    op::Op,
    queue::{Drain, Live, Outlet, StageMessage},
    stages::{self, Pipe, Spawn},
    tasks::Tasks,
};

/// The start of a pipeline, which needs a source.
#[derive(Debug, Default)]
pub struct PipelineBuilder {
    _private: (),
}

/// A pipeline that is being built and whose last stage returns `T`.
pub struct Stages<T> {
    names: Vec<String>,
    /// Numbers that must not be zero, with their names.
    counts: Vec<(String, usize)>,
    start: Starter<T>,
}

/// Starts all stages, given the stage after the last one and the capacity of the queue between them.
type Starter<T> = Box<dyn FnOnce(&mut PipelineStart, Arc<Live>, usize) -> Receiver<StageMessage<T>> + Send>;

/// The context in which stages start.
struct PipelineStart {
    spawn: Spawn,
    drain: Arc<Drain>,
    pool: Arc<ThreadPool>,
    live: Vec<Arc<Live>>,
    source: Option<std::io::Result<JoinHandle<()>>>,
}

impl PipelineBuilder {
    /// Takes items from an iterator, which runs on its own thread and may block.
    pub fn source<I>(self, items: I) -> Stages<I::Item>
    where
        I: IntoIterator<IntoIter: Send + 'static, Item: Send + 'static>,
    {
        let items = items.into_iter();
        Stages::from_source(move |start, live, outlet| {
            let thread = std::thread::Builder::new().name("spdl-source".to_owned());
            start.source = Some(thread.spawn({
                let drain = start.drain.clone();
                move || stages::iterate(items, &live, &outlet, &drain)
            }));
        })
    }

    /// Takes items from a stream, which runs on the event loop and must not block it.
    pub fn source_stream<S>(self, items: S) -> Stages<S::Item>
    where
        S: Stream<Item: Send + 'static> + Send + 'static,
    {
        Stages::from_source(move |start, live, outlet| {
            (start.spawn)(&live.clone(), stages::flow(items, live, outlet, start.drain.clone()).boxed());
        })
    }
}

impl<T: Send + 'static> Stages<T> {
    fn from_source(source: impl FnOnce(&mut PipelineStart, Arc<Live>, Outlet<T>) + Send + 'static) -> Self {
        const NAME: &str = "source";
        let start = move |context: &mut PipelineStart, next: Arc<Live>, capacity: usize| {
            let live = Live::new(NAME, 0);
            context.live.push(live.clone());
            let (outlet, receiver) = Outlet::new(next, capacity);
            source(context, live, outlet);
            receiver
        };
        Self { names: vec![NAME.to_owned()], counts: Vec::new(), start: Box::new(start) }
    }

    /// Adds a stage that takes its items from a queue of capacity `queue`.
    fn then<U: Send + 'static>(
        self,
        name: &str,
        concurrency: usize,
        queue: usize,
        stage: impl FnOnce(&mut PipelineStart, Receiver<StageMessage<T>>, Arc<Live>, Outlet<U>) + Send + 'static,
    ) -> Stages<U> {
        let live = Live::new(name, concurrency);
        let Self { mut names, counts, start: before } = self;
        names.push(name.to_owned());
        let start = move |context: &mut PipelineStart, next: Arc<Live>, capacity: usize| {
            let receiver = before(context, live.clone(), queue);
            context.live.push(live.clone());
            let (outlet, result) = Outlet::new(next, capacity);
            stage(context, receiver, live, outlet);
            result
        };
        Stages { names, counts, start: Box::new(start) }
    }

    /// Applies `op` to each item, to at most `concurrency` items at a time. As many again can wait in its queue.
    #[must_use]
    pub fn pipe<U: Send + 'static>(mut self, name: &str, op: Op<T, U>, concurrency: usize) -> Stages<U> {
        self.counts.push((format!("`concurrency` of stage `{name}`"), concurrency));
        self.then(name, concurrency, concurrency, move |start, receiver, live, outlet| {
            Pipe::new(live, op, start.pool.clone(), start.spawn.clone(), receiver).start_workers(&outlet);
        })
    }

    /// Collects items into lists of `count`; the last may be shorter.
    #[must_use]
    pub fn aggregate(self, count: usize) -> Stages<Vec<T>> {
        self.lists(count, true)
    }

    /// Collects items into lists of `count`. The rest at the end is dropped if it is shorter.
    #[must_use]
    pub fn aggregate_full(self, count: usize) -> Stages<Vec<T>> {
        self.lists(count, false)
    }

    fn lists(mut self, count: usize, keeps_rest: bool) -> Stages<Vec<T>> {
        let name = self.unused("aggregate");
        self.counts.push((format!("`count` of stage `{name}`"), count));
        self.then(&name, 0, 1, move |start, receiver, live, outlet| {
            (start.spawn)(&live.clone(), stages::aggregate(live, count, keeps_rest, receiver, outlet).boxed());
        })
    }

    /// Splits lists into their items.
    #[must_use]
    pub fn disaggregate(self) -> Stages<T::Item>
    where
        T: IntoIterator<IntoIter: Send, Item: Send + 'static>,
    {
        let name = self.unused("disaggregate");
        self.then(&name, 0, 1, move |start, receiver, live, outlet| {
            (start.spawn)(&live.clone(), stages::disaggregate(live, receiver, outlet).boxed());
        })
    }

    /// Lets at most `buffer` items be ready before the consumer takes them. When raised, more memory is used.
    #[must_use]
    pub fn sink(self, buffer: usize) -> PipelinePlan<T> {
        PipelinePlan { stages: self, buffer }
    }

    /// Returns `name`, with a number if the name is already taken.
    fn unused(&self, name: &str) -> String {
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        names.find(|name| !self.names.contains(name)).expect("there are more numbers than stages")
    }
}

/// A complete pipeline that is not started.
pub struct PipelinePlan<T> {
    stages: Stages<T>,
    buffer: usize,
}

impl<T: Send + 'static> PipelinePlan<T> {
    /// Starts the pipeline, with `threads` threads for CPU-bound operations.
    ///
    /// # Errors
    /// [`BuildError`] if a number is zero, two stages have the same name, or the system starts no thread.
    pub fn build(self, threads: usize) -> Result<Pipeline<T>, BuildError> {
        let Stages { names, mut counts, start } = self.stages;
        counts.extend([("`buffer` of the sink".to_owned(), self.buffer), ("`threads`".to_owned(), threads)]);
        if let Some((what, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(BuildError::Zero { what });
        }
        let mut seen = HashSet::from(["sink".to_owned()]);
        if let Some(stage) = names.into_iter().find(|name| !seen.insert(name.clone())) {
            return Err(BuildError::NameTwice { stage });
        }

        let no_threads = |source| BuildError::Threads { source };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("spdl-engine")
            .enable_all()
            .build()
            .map_err(no_threads)?;
        let (pool, cpu_threads) = cpu_pool(threads).map_err(no_threads)?;
        let (sender, deliveries) = blocking::channel();
        let tasks = Tasks::new(runtime.handle().clone(), sender);
        let spawner = tasks.clone();
        let mut context = PipelineStart {
            spawn: Arc::new(move |live, task| spawner.spawn(&live.stage, task)),
            drain: Arc::default(),
            pool: Arc::new(pool),
            live: Vec::new(),
            source: None,
        };
        let sink = Live::new("sink", 0);
        let receiver = start(&mut context, sink.clone(), 1);
        context.live.push(sink.clone());
        tasks.spawn(&sink.stage.clone(), stages::sink(sink, self.buffer, receiver, tasks.clone()));
        // An early return drops the runtime, which ends all tasks.
        let source = context.source.transpose().map_err(no_threads)?;
        let threads = cpu_threads.into_iter().chain(source).collect();
        Ok(Pipeline { deliveries, tasks, drain: context.drain, live: context.live, runtime: Some(runtime), threads })
    }
}

fn cpu_pool(threads: usize) -> std::io::Result<(ThreadPool, Vec<JoinHandle<()>>)> {
    let handles = Mutex::new(Vec::with_capacity(threads));
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads)
        .spawn_handler(|thread| {
            let builder = std::thread::Builder::new().name(format!("spdl-cpu-{}", thread.index()));
            handles.lock().push(builder.spawn(|| thread.run())?);
            Ok(())
        })
        .build()
        .map_err(std::io::Error::other)?;
    Ok((pool, handles.into_inner()))
}
