//! Builds a pipeline: a chain of typed stages that starts when `build` is called.

use std::sync::{Arc, atomic::AtomicU64};

use futures::Stream;

use crate::{
    Pipeline,
    aggregate::Aggregate,
    assembly::{Assembly, ServedBy},
    engine::StageExecutor,
    error::BuildError,
    followed::Followed,
    link::{Link, OutputOrder},
    many::{ManyPipe, OpenItems},
    numbers::StageKind,
    op::{Op, OpWork, Threads},
    pipe::{AsyncPipe, OnePipe, Pipe},
    source::{IteratorSource, StreamSource},
    sync::Mutex,
};

/// The start of a pipeline, which needs a source.
#[derive(Debug, Default)]
pub struct PipelineBuilder {
    _private: (),
}

/// A pipeline that is being built and whose last stage returns `T`.
pub struct Stages<T> {
    pub(crate) assemble: Assemble<T>,
}

/// Adds all stages to an assembly and returns the link behind the last one.
pub(crate) type Assemble<T> = Box<dyn FnOnce(&mut Assembly) -> Arc<Link<T>> + Send>;

impl PipelineBuilder {
    /// Takes items from an iterator, which runs on its own thread and may block.
    pub fn source<I>(self, items: I) -> Stages<I::Item>
    where
        I: IntoIterator<IntoIter: Send + 'static, Item: Send + 'static>,
    {
        let items = items.into_iter();
        Stages::from_source(move |assembly, output| {
            assembly.serve_by_thread(ServedBy::Threads(1), IteratorSource::new(items, output));
        })
    }

    /// Takes items from a stream, which runs on the event loop and must not block it.
    pub fn source_stream<S>(self, items: S) -> Stages<S::Item>
    where
        S: Stream<Item: Send + 'static> + Send + 'static,
    {
        Stages::from_source(move |assembly, output| {
            let (source, abort) = StreamSource::new(items, output);
            assembly.aborts.push(abort);
            assembly.serve(ServedBy::Tasks(1), StageExecutor::Task(Arc::new(source)));
        })
    }
}

impl<T: Send + 'static> Stages<T> {
    pub(crate) fn new(assemble: impl FnOnce(&mut Assembly) -> Arc<Link<T>> + Send + 'static) -> Self {
        Self { assemble: Box::new(assemble) }
    }

    fn from_source(source: impl FnOnce(&mut Assembly, Arc<Link<T>>) + Send + 'static) -> Self {
        Self::new(move |assembly| {
            let stage = assembly.stage(&assembly.unused("source"), StageKind::Source, 1, 0, &[]);
            let output = assembly.link(stage, OutputOrder::Input);
            source(assembly, output.clone());
            output
        })
    }

    /// Adds stages.
    pub(crate) fn then<U: Send + 'static>(
        self,
        add: impl FnOnce(&mut Assembly, Arc<Link<T>>) -> Arc<Link<U>> + Send + 'static,
    ) -> Stages<U> {
        Stages::new(move |assembly| {
            let input = (self.assemble)(assembly);
            add(assembly, input)
        })
    }

    /// Applies `op` to each item, to at most `concurrency` items at a time. As many again can wait in its queue.
    #[must_use]
    pub fn pipe<U: Send + 'static>(self, name: &str, op: Op<T, U>, concurrency: usize) -> Stages<U> {
        let name = name.to_owned();
        self.then(move |assembly, input| {
            let (output, stage) = add_pipe(assembly, name, op, concurrency, input);
            assembly.stages[stage].is_pipe = true;
            output
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

    fn lists(self, count: usize, keeps_rest: bool) -> Stages<Vec<T>> {
        self.then(move |assembly, input| {
            let name = assembly.unused("aggregate");
            assembly.check(|| format!("`count` of stage `{name}`"), count);
            assembly.check_branch(&name, OutputOrder::Input);
            let stage = assembly.stage(&name, StageKind::Inline, 1, 1, &[input.id]);
            let output = assembly.link(stage, OutputOrder::Input);
            let list = Mutex::new(Vec::new());
            let aggregate = Aggregate { count, keeps_rest, input, output: output.clone(), list };
            assembly.serve_by_thread(ServedBy::Neighbours, aggregate);
            output
        })
    }

    /// Passes on all items, and `last` behind them.
    #[must_use]
    pub fn followed_by(self, name: &str, last: T) -> Self {
        let name = name.to_owned();
        self.then(move |assembly, input| {
            assembly.check_branch(&name, OutputOrder::Input);
            let stage = assembly.stage(&name, StageKind::Inline, 1, 1, &[input.id]);
            assembly.stages[stage].has_rest = true;
            let output = assembly.link(stage, OutputOrder::Input);
            let last = Mutex::new(Some(last));
            assembly.serve_by_thread(ServedBy::Neighbours, Followed { input, output: output.clone(), last });
            output
        })
    }

    /// Splits lists into their items.
    #[must_use]
    pub fn disaggregate(self) -> Stages<T::Item>
    where
        T: IntoIterator<IntoIter: Send + 'static, Item: Send + 'static>,
    {
        self.then(move |assembly, input| {
            let name = assembly.unused("disaggregate");
            let op = Op::cpu_many(|list: T| Ok::<_, std::convert::Infallible>(list.into_iter().map(Ok)));
            add_pipe(assembly, name, op, 1, input).0
        })
    }

    /// Lets at most `buffer` items be ready before the consumer takes them. When raised, more memory is used.
    #[must_use]
    pub fn sink(self, buffer: usize) -> PipelinePlan<T> {
        PipelinePlan { stages: self, buffer }
    }
}

/// Adds a stage with an operation. Returns the link behind it and its number.
pub(crate) fn add_pipe<T: Send + 'static, U: Send + 'static>(
    assembly: &mut Assembly,
    name: String,
    op: Op<T, U>,
    concurrency: usize,
    input: Arc<Link<T>>,
) -> (Arc<Link<U>>, usize) {
    let Op { work, order, failures: policy, bytes } = op;
    let kind = if matches!(work, OpWork::Many(..)) { StageKind::Many } else { StageKind::One };
    assembly.check(|| format!("`concurrency` of stage `{name}`"), concurrency);
    assembly.check_branch(&name, order);
    let stage = assembly.stage(&name, kind, concurrency, concurrency, &[input.id]);
    let output = assembly.link(stage, order);
    let pipe = Pipe { name, policy, bytes, failures: AtomicU64::new(0), input, output: output.clone() };
    let served_by = |threads| match threads {
        Threads::Pool => ServedBy::Pool,
        Threads::OwnStage => ServedBy::Threads(concurrency),
    };
    match work {
        OpWork::One(f, threads) => assembly.serve_by_thread(served_by(threads), OnePipe { pipe, f }),
        OpWork::Many(f, threads) => {
            let open = Mutex::new(OpenItems::default());
            assembly.serve_by_thread(served_by(threads), ManyPipe { pipe, f, order, open });
        }
        OpWork::Asynchronous(f, spawner) => {
            assembly.serve(ServedBy::Tasks(concurrency), StageExecutor::Task(Arc::new(AsyncPipe { pipe, f, spawner })));
        }
    }
    (output, stage)
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
    /// [`BuildError`] if a number is zero, two stages have the same name, stages do not fit the branch that they are in, or
    /// the system starts no thread.
    pub fn build(self, threads: usize) -> Result<Pipeline<T>, BuildError> {
        let mut assembly = Assembly::new();
        let output = (self.stages.assemble)(&mut assembly);
        assembly.check(|| "`buffer` of the sink".to_owned(), self.buffer);
        assembly.check(|| "`threads`".to_owned(), threads);
        assembly.stage("sink", StageKind::Sink, 1, self.buffer, &[output.id]);
        assembly.serve(ServedBy::Consumer, StageExecutor::Consumer);
        let aborts = std::mem::take(&mut assembly.aborts);
        Pipeline::start(assembly.engine(threads)?, output, aborts)
    }
}
