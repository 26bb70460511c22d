//! Builds a pipeline: a chain of typed stages that starts when `build` is called.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::AtomicU64},
    time::Instant,
};

use futures::{Stream, stream::AbortHandle};

use crate::{
    Pipeline,
    aggregate::Aggregate,
    engine::{Engine, Step, Worker},
    error::BuildError,
    link::Link,
    op::{Op, OpWork, OutputOrder, Threads},
    pipe::{AsyncPipe, ManyPipe, OnePipe, OpenItems, Pipe},
    source::{IteratorSource, StreamSource},
    state::{Crew, Kind, LinkState, StageState, State},
    sync::Mutex,
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
    assemble: Assemble<T>,
}

/// Adds all stages to an assembly and returns the link behind the last one.
type Assemble<T> = Box<dyn FnOnce(&mut Assembly) -> Arc<Link<T>> + Send>;

/// The parts of a pipeline before it starts.
struct Assembly {
    now: Instant,
    stages: Vec<StageState>,
    links: Vec<LinkState>,
    workers: Vec<Worker>,
    /// For each stage, who takes its steps.
    served_by: Vec<ServedBy>,
    /// What ends streams that are waited for.
    aborts: Vec<AbortHandle>,
}

/// Who takes the steps of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServedBy {
    /// The threads of the pool.
    Pool,
    /// Threads of its own.
    Threads(usize),
    /// Tasks of its own on the event loop.
    Tasks(usize),
    /// The threads of the stages before and behind it.
    Neighbours,
    /// The consumer.
    Consumer,
}

impl Assembly {
    /// Adds a stage behind the links `inputs` and returns its number.
    fn stage(&mut self, name: &str, kind: Kind, limit: usize, depth: usize, inputs: &[usize]) -> usize {
        let number = self.stages.len();
        let mut stage = StageState::new(name.to_owned(), kind, limit, depth, self.now);
        stage.inputs = inputs.to_vec();
        for link in inputs {
            self.links[*link].consumer = number;
        }
        self.stages.push(stage);
        number
    }

    /// Adds the link behind a stage.
    fn link<T>(&mut self, producer: usize, order: OutputOrder) -> Arc<Link<T>> {
        let number = self.links.len();
        self.links.push(LinkState::new(producer));
        self.stages[producer].output = Some(number);
        Arc::new(Link::new(number, order))
    }

    fn serve(&mut self, by: ServedBy, worker: Worker) {
        self.served_by.push(by);
        self.workers.push(worker);
    }

    fn serve_by_thread(&mut self, by: ServedBy, step: impl Step + 'static) {
        self.serve(by, Worker::Thread(Box::new(step)));
    }

    /// Returns the engine, whose crews have the given sizes. The sink is the last stage.
    fn engine(self, threads: usize) -> Arc<Engine> {
        let mut state = State::new(self.stages, self.links, self.now);
        let mut pool = Crew { size: threads, is_pool: true, ..Crew::default() };
        for (stage, by) in self.served_by.into_iter().enumerate().rev() {
            let crew = |size| Crew { stages: vec![stage], size, ..Crew::default() };
            match by {
                ServedBy::Pool => pool.stages.push(stage),
                ServedBy::Neighbours => state.inline.push(stage),
                ServedBy::Threads(size) | ServedBy::Tasks(size) => state.crews.push(crew(size)),
                ServedBy::Consumer => state.crews.push(crew(0)),
            }
        }
        if !pool.stages.is_empty() {
            state.crews.push(pool);
        }
        Engine::new(state, self.workers)
    }
}

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
            assembly.serve(ServedBy::Tasks(1), Worker::Task(Arc::new(source)));
        })
    }
}

impl<T: Send + 'static> Stages<T> {
    fn from_source(source: impl FnOnce(&mut Assembly, Arc<Link<T>>) + Send + 'static) -> Self {
        const NAME: &str = "source";
        let assemble = move |assembly: &mut Assembly| {
            let stage = assembly.stage(NAME, Kind::Source, 1, 0, &[]);
            let output = assembly.link(stage, OutputOrder::Input);
            source(assembly, output.clone());
            output
        };
        Self { names: vec![NAME.to_owned()], counts: Vec::new(), assemble: Box::new(assemble) }
    }

    /// Adds a stage.
    fn then<U: Send + 'static>(
        self,
        name: &str,
        stage: impl FnOnce(&mut Assembly, Arc<Link<T>>) -> Arc<Link<U>> + Send + 'static,
    ) -> Stages<U> {
        let Self { mut names, counts, assemble: before } = self;
        names.push(name.to_owned());
        let assemble = move |assembly: &mut Assembly| {
            let input = before(assembly);
            stage(assembly, input)
        };
        Stages { names, counts, assemble: Box::new(assemble) }
    }

    /// Applies `op` to each item, to at most `concurrency` items at a time. As many again can wait in its queue.
    #[must_use]
    pub fn pipe<U: Send + 'static>(mut self, name: &str, op: Op<T, U>, concurrency: usize) -> Stages<U> {
        self.counts.push((format!("`concurrency` of stage `{name}`"), concurrency));
        let stage_name = name.to_owned();
        self.then(name, move |assembly, input| {
            let (output, stage) = add_pipe(assembly, stage_name, op, concurrency, input);
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

    fn lists(mut self, count: usize, keeps_rest: bool) -> Stages<Vec<T>> {
        let name = self.unused("aggregate");
        self.counts.push((format!("`count` of stage `{name}`"), count));
        let stage_name = name.clone();
        self.then(&name, move |assembly, input| {
            let stage = assembly.stage(&stage_name, Kind::Inline, 1, 1, &[input.id]);
            let output = assembly.link(stage, OutputOrder::Input);
            let list = Mutex::new(Vec::new());
            let aggregate = Aggregate { count, keeps_rest, input, output: output.clone(), list };
            assembly.serve_by_thread(ServedBy::Neighbours, aggregate);
            output
        })
    }

    /// Splits lists into their items.
    #[must_use]
    pub fn disaggregate(self) -> Stages<T::Item>
    where
        T: IntoIterator<IntoIter: Send + 'static, Item: Send + 'static>,
    {
        let name = self.unused("disaggregate");
        let stage_name = name.clone();
        self.then(&name, move |assembly, input| {
            let op = Op::cpu_many(|list: T| Ok::<_, std::convert::Infallible>(list.into_iter().map(Ok)));
            add_pipe(assembly, stage_name, op, 1, input).0
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

/// Adds a stage with an operation. Returns the link behind it and its number.
fn add_pipe<T: Send + 'static, U: Send + 'static>(
    assembly: &mut Assembly,
    name: String,
    op: Op<T, U>,
    concurrency: usize,
    input: Arc<Link<T>>,
) -> (Arc<Link<U>>, usize) {
    let Op { work, order, failures: policy, bytes } = op;
    let kind = if matches!(work, OpWork::Many(..)) { Kind::Many } else { Kind::One };
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
        OpWork::Asynchronous(f) => {
            assembly.serve(ServedBy::Tasks(concurrency), Worker::Task(Arc::new(AsyncPipe { pipe, f })));
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
    /// [`BuildError`] if a number is zero, two stages have the same name, or the system starts no thread.
    pub fn build(self, threads: usize) -> Result<Pipeline<T>, BuildError> {
        let Stages { names, mut counts, assemble } = self.stages;
        counts.extend([("`buffer` of the sink".to_owned(), self.buffer), ("`threads`".to_owned(), threads)]);
        if let Some((what, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(BuildError::Zero { what });
        }
        let mut seen = HashSet::from(["sink".to_owned()]);
        if let Some(stage) = names.into_iter().find(|name| !seen.insert(name.clone())) {
            return Err(BuildError::NameTwice { stage });
        }

        let mut assembly = Assembly {
            now: Instant::now(),
            stages: Vec::new(),
            links: Vec::new(),
            workers: Vec::new(),
            served_by: Vec::new(),
            aborts: Vec::new(),
        };
        let output = assemble(&mut assembly);
        assembly.stage("sink", Kind::Sink, 1, self.buffer, &[output.id]);
        assembly.serve(ServedBy::Consumer, Worker::Consumer);
        let aborts = std::mem::take(&mut assembly.aborts);
        Pipeline::start(assembly.engine(threads), output, aborts)
    }
}
