//! Pipelines of Python operations on the engine of the crate `spdl-pipeline`: builds the stages, waits for items, and checks
//! for signals meanwhile.

mod array;
mod calls;
mod download;
mod item;
mod marks;
mod native;
mod paths;
mod pictures;
mod tasks;
mod transform;

use std::{
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use pyo3::{exceptions::PyEOFError, prelude::*, types::PyAnyMethods};
use spdl_pipeline::{BuildError, ConcurrencyError, Op, OutputOrder, Pipeline, PipelineError, Stages};

pub(crate) use array::NativeArray;
pub(crate) use calls::Reply;
pub(crate) use native::NativeOp;
pub(crate) use tasks::LoopTasks;
pub(crate) use transform::ArrayTransform;

use crate::{
    errors::ErrorKind,
    values::{PipelineStageStats, StreamPosition},
};
use calls::{Call, FailureLimit, MaxFailures};
use item::{ItemValue, PipelineItem};
use marks::{Marks, Tracker};

/// Longest wait without a check of signals.
const SLICE: Duration = Duration::from_millis(50);
/// End of the names of stages that pass on what another stage takes or makes.
const PASS_ON: &str = ", items";
/// End of the names of stages that pass on the lists at the end of a path or of a merged pipeline.
const LISTS: &str = ", lists";
/// End of the names of stages that report the end of the items to another stage.
const END: &str = ", end";
/// Ends of the names of the engine's stages around branches.
const DEAL: &str = "-deal";
const MERGE: &str = "-merge";
/// Ends of the names of stages that are parts of the stage with the name before it.
const HIDDEN: [&str; 5] = [PASS_ON, LISTS, END, DEAL, MERGE];
/// Name of the stage that iterates over the source.
const SOURCE: &str = "source";

/// A stage as `spdl_cluster.pipeline` describes it.
#[derive(FromPyObject)]
pub(crate) struct StageFields {
    kind: String,
    name: String,
    op: Option<Py<PyAny>>,
    native: Option<Py<NativeOp>>,
    /// What runs the stage's tasks, if its operation answers on an event loop of Python's.
    tasks: Option<Py<LoopTasks>>,
    /// Items at a time; for `aggregate`, items of a list.
    count: usize,
    is_ordered: bool,
    max_failures: MaxFailuresField,
    drop_last: bool,
    /// For `paths`, the stages of each.
    paths: Vec<Vec<StageFields>>,
}

/// Failures that are left out.
#[derive(Clone, Copy, FromPyObject)]
enum MaxFailuresField {
    /// A number; below 0 any.
    Count(i64),
    /// A share: its numerator and denominator.
    Share(u64, u64),
}

impl MaxFailuresField {
    fn limit(self) -> Arc<FailureLimit> {
        FailureLimit::new(match self {
            Self::Count(count) => u64::try_from(count).map_or(MaxFailures::Any, MaxFailures::Count),
            Self::Share(failures, items) => MaxFailures::Share { failures, items },
        })
    }
}

/// The failure limits that can end a pipeline, by the name of the stage.
type FailureLimits = Arc<[(String, Arc<FailureLimit>)]>;

/// The exception that ended a source.
type SourceFailure = Arc<Mutex<Option<PyErr>>>;

/// The stages so far: the last one returns items or lists.
enum Chain {
    Items(Stages<PipelineItem>),
    Lists(Stages<Vec<PipelineItem>>),
}

impl Chain {
    fn then(self, stage: StageFields, limits: &FailureLimits) -> Self {
        let limit = limits.iter().find(|(name, _)| *name == stage.name).expect("each stage has a limit").1.clone();
        match (self, stage.kind.as_str()) {
            (Self::Items(stages), "aggregate") => Self::Lists(aggregate(stages, &stage)),
            (Self::Items(stages), "aggregator") => Self::Items(aggregator(stages, stage, limit)),
            (Self::Items(stages), "paths") => Self::Items(paths::route(stages, stage, &limit, limits)),
            (Self::Items(stages), _) => Self::Items(pipe(stages, stage, limit)),
            (lists, "aggregate" | "aggregator" | "paths") => {
                Self::Items(lists.into_items(&pass_on(&stage.name))).then(stage, limits)
            }
            (Self::Lists(stages), _) => Self::Items(pipe(stages, stage, limit)),
        }
    }

    /// Returns the stages; if they end with lists, a stage `name` makes items of these.
    fn into_items(self, name: &str) -> Stages<PipelineItem> {
        match self {
            Self::Items(stages) => stages,
            Self::Lists(stages) => {
                let items = Op::cpu(|list: Vec<PipelineItem>| Ok::<PipelineItem, PyErr>(list.into()));
                stages.pipe(name, items, 1)
            }
        }
    }

    fn start(self, buffer: usize, threads: usize) -> Result<Box<dyn RunningPipeline>, BuildError> {
        Ok(match self {
            Self::Items(stages) => Box::new(stages.sink(buffer).build(threads)?),
            Self::Lists(stages) => Box::new(stages.sink(buffer).build(threads)?),
        })
    }
}

/// Returns the name of the engine's stage that passes on what the user's stage `name` takes or makes.
fn pass_on(name: &str) -> String {
    format!("{name}{PASS_ON}")
}

/// Adds a stage that collects items with an aggregator of Python's.
fn aggregator(stages: Stages<PipelineItem>, stage: StageFields, limit: Arc<FailureLimit>) -> Stages<PipelineItem> {
    let StageFields { name, op, .. } = stage;
    let call = calls::Aggregator::new(op.expect("a stage that calls has an operation"), limit.clone());
    let op = Op::cpu_many(move |item: PipelineItem| call.accumulate(item));
    let end = PipelineItem { value: ItemValue::End, marks: Marks::None };
    stages.followed_by(&format!("{name}{END}"), end).pipe(&name, limit.apply(op), 1)
}

fn aggregate(stages: Stages<PipelineItem>, stage: &StageFields) -> Stages<Vec<PipelineItem>> {
    if stage.drop_last { stages.aggregate_full(stage.count) } else { stages.aggregate(stage.count) }
}

/// Adds a stage that works on items one by one.
fn pipe<T: Into<PipelineItem> + Send + 'static>(
    stages: Stages<T>,
    stage: StageFields,
    limit: Arc<FailureLimit>,
) -> Stages<PipelineItem> {
    let StageFields { kind, name, op, native, tasks, count, is_ordered, .. } = stage;
    let order = if is_ordered { OutputOrder::Input } else { OutputOrder::Completion };
    let call = || Arc::new(Call::new(op.expect("a stage that calls has an operation"), limit.clone()));
    let op = match kind.as_str() {
        "disaggregate" => Op::cpu_many(|item: T| calls::disaggregate(item.into())),
        "function" => {
            let call = call();
            Op::cpu_filter_map(move |item: T| call.function(item.into()))
        }
        "generator" => {
            let call = call();
            Op::cpu_many(move |item: T| call.generator(item.into()))
        }
        "blocking generator" => {
            let call = call();
            Op::blocking_many(move |item: T| call.generator(item.into()))
        }
        "deferred" => {
            let call = call();
            let op = Op::asynchronous_filter_map(move |item: T| call.clone().deferred_one(item.into()));
            match tasks {
                Some(tasks) => op.spawn_on(tasks.get().spawner()),
                None => op,
            }
        }
        "deferred generator" => {
            let call = call();
            let op = Op::asynchronous(move |item: T| call.clone().deferred(item.into()));
            let lists = stages.pipe(&name, limit.apply(op).order(order), count);
            return lists.pipe(&pass_on(&name), Op::cpu_many(calls::results), 1);
        }
        "native" => {
            let (work, limit) = (native.expect("a native stage has an operation").get().0.clone(), limit.clone());
            let begun = limit.clone();
            let made = move |result: Result<ItemValue, String>, marks: Marks| match result {
                Ok(value) => Ok(PipelineItem { value, marks }),
                Err(problem) => {
                    limit.leave_out(marks);
                    Err(problem)
                }
            };
            if work.is_asynchronous() {
                Op::asynchronous(move |item: T| {
                    begun.begin();
                    let (work, made, PipelineItem { value, marks }) = (work.clone(), made.clone(), item.into());
                    async move { made(work.run_later(value).await, marks) }
                })
            } else {
                Op::cpu(move |item: T| {
                    begun.begin();
                    let PipelineItem { value, marks } = item.into();
                    made(work.run(value), marks)
                })
            }
        }
        kind => unreachable!("`spdl_cluster.pipeline` makes no stage of kind `{kind}`"),
    };
    stages.pipe(&name, limit.apply(op).order(order), count)
}

/// A pipeline of the engine whose last stage returns items or lists.
trait RunningPipeline: Send {
    fn next(&self, timeout: Duration) -> Option<Result<PipelineItem, PipelineError>>;
    fn stats(&self) -> Vec<PipelineStageStats>;
    fn set_concurrency(&self, stage: &str, concurrency: usize) -> Result<(), ConcurrencyError>;
    fn drain(&self);
    fn stop(self: Box<Self>);
}

impl<T: Into<PipelineItem> + Send + 'static> RunningPipeline for Pipeline<T> {
    fn next(&self, timeout: Duration) -> Option<Result<PipelineItem, PipelineError>> {
        self.iter(timeout).next().map(|item| item.map(Into::into))
    }

    fn stats(&self) -> Vec<PipelineStageStats> {
        self.stats().iter().map(PipelineStageStats::new).collect()
    }

    fn set_concurrency(&self, stage: &str, concurrency: usize) -> Result<(), ConcurrencyError> {
        self.set_concurrency(stage, concurrency)
    }

    fn drain(&self) {
        self.drain();
    }

    fn stop(self: Box<Self>) {
        Self::stop(*self);
    }
}

/// A running pipeline. Dropping it stops it and waits for nothing.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct NativePipeline {
    /// `None` once it has stopped. Lock it only while detached from Python.
    running: Mutex<Option<Box<dyn RunningPipeline>>>,
    /// The thread that stops the pipeline, and what it sends when it has. Lock it only while detached from Python.
    stopping: Mutex<Option<(mpsc::Receiver<()>, JoinHandle<()>)>>,
    tracker: Option<Arc<Tracker>>,
    source_failure: SourceFailure,
    /// Names of the stages that only pass on what other stages take or make.
    hidden: Vec<String>,
    limits: FailureLimits,
    process: u32,
}

impl Drop for NativePipeline {
    fn drop(&mut self) {
        let running = self.running.get_mut().take();
        if self.process == std::process::id() {
            Python::attach(|py| py.detach(|| drop(running)));
        } else {
            // Its threads exist only in the parent.
            std::mem::forget(running);
        }
    }
}

#[pymethods]
impl NativePipeline {
    /// Starts a pipeline. If the source is a loader, the pipeline knows the position after what was taken.
    #[staticmethod]
    fn start(
        py: Python<'_>,
        source: paths::SourceFields,
        stages: Vec<StageFields>,
        buffer: usize,
        threads: usize,
    ) -> PyResult<Self> {
        let (tracker, failure) = (source.is_loader.then(Arc::<Tracker>::default), SourceFailure::default());
        let mut limits = Vec::new();
        paths::add_limits(&stages, &mut limits);
        source.add_limits(&mut limits);
        let limits = FailureLimits::from(limits);
        let mut names: Vec<String> = limits.iter().map(|(name, _)| name.clone()).collect();
        source.add_names(paths::SOURCES, &mut names);
        let hidden = names.iter().flat_map(|name| HIDDEN.map(|end| format!("{name}{end}"))).collect();
        let source = source.stages(py, paths::SOURCES, tracker.as_ref(), &failure, &limits)?;
        let chain = stages.into_iter().fold(source, |chain, stage| chain.then(stage, &limits));
        let running = py.detach(|| chain.start(buffer, threads));
        let running = running.map_err(|error| match error {
            BuildError::Threads { .. } => ErrorKind::System.error(py, &error.to_string(), None),
            error => ErrorKind::Setting.error(py, &error.to_string(), None),
        })?;
        let process = std::process::id();
        let (running, stopping) = (Mutex::new(Some(running)), Mutex::default());
        Ok(Self { running, stopping, tracker, source_failure: failure, hidden, limits, process })
    }

    /// Returns the next item and waits for it up to `timeout` seconds. Raises `EOFError` at the end.
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.check_process(py)?;
        let wait = SlicedWait::new(timeout);
        loop {
            match py.detach(|| self.running.lock().as_ref().map(|running| running.next(wait.slice()))) {
                None => return Err(ErrorKind::Closed.error(py, "the pipeline has stopped", None)),
                Some(None) => return Err(self.end(py)),
                Some(Some(Ok(PipelineItem { value, marks }))) => {
                    let object = value.into_object(py)?;
                    marks.settle();
                    return Ok(object.unbind());
                }
                Some(Some(Err(PipelineError::Timeout { stage, doing, .. }))) => {
                    py.check_signals()?;
                    if wait.is_over() {
                        let waited = timeout.unwrap_or_default();
                        let text = format!("no item within {waited} s: stage `{}` {doing}", self.shown(&stage));
                        return Err(ErrorKind::PipelineTimeout.error(py, &text, None));
                    }
                }
                Some(Some(Err(error))) => return Err(self.failure(py, error)),
            }
        }
    }

    /// Returns the position in the loader's stream after what the consumer took; `None` before that.
    fn position(&self) -> Option<StreamPosition> {
        self.tracker.as_ref().and_then(|tracker| tracker.position()).map(Into::into)
    }

    /// Returns the statistics of each stage, from source to sink; nothing once the pipeline has stopped.
    fn stats(&self, py: Python<'_>) -> Vec<PipelineStageStats> {
        let stats = py.detach(|| self.running.lock().as_ref().map(|running| running.stats()).unwrap_or_default());
        stats.into_iter().filter(|stage| !self.hidden.contains(&stage.name)).collect()
    }

    /// Sets the number of items that a stage works on at a time.
    fn set_concurrency(&self, py: Python<'_>, stage: &str, concurrency: usize) -> PyResult<()> {
        self.check_process(py)?;
        let running = || self.running.lock();
        match py.detach(|| running().as_ref().map(|running| running.set_concurrency(stage, concurrency))) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(error @ ConcurrencyError::Threads { .. })) => {
                Err(ErrorKind::System.error(py, &error.to_string(), None))
            }
            Some(Err(error)) => Err(ErrorKind::Setting.error(py, &error.to_string(), None)),
        }
    }

    /// Takes no more items from the source.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process(py)?;
        py.detach(|| self.running.lock().as_ref().map(|running| running.drain()));
        Ok(())
    }

    /// Stops the pipeline and returns at once.
    fn begin_stop(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process(py)?;
        let Some(running) = py.detach(|| self.running.lock().take()) else { return Ok(()) };
        let (done, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("spdl-stop".to_owned()).spawn(move || {
            running.stop();
            let _ = done.send(());
        })?;
        py.detach(|| *self.stopping.lock() = Some((stopped, thread)));
        Ok(())
    }

    /// Waits up to `timeout` seconds until the operations and the source of a pipeline that stops have returned.
    fn wait_stopped(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.check_process(py)?;
        let wait = SlicedWait::new(timeout);
        let has_stopped = py.detach(|| {
            let mut stopping = self.stopping.lock();
            let Some((stopped, _)) = &*stopping else { return Ok(true) };
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(wait.slice()) {
                if wait.is_over() {
                    return Ok(false);
                }
                Python::attach(|py| py.check_signals())?;
            }
            if let Some((_, thread)) = stopping.take() {
                thread.join().expect("stopping a pipeline does not panic");
            }
            Ok::<_, PyErr>(true)
        })?;
        if has_stopped {
            return Ok(());
        }
        let waited = timeout.unwrap_or_default();
        let text =
            format!("the pipeline has not stopped within {waited} s: an operation or the source has not returned");
        Err(ErrorKind::PipelineTimeout.error(py, &text, None))
    }
}

/// A wait of the caller, in slices between which signals are handled.
#[derive(Clone, Copy)]
struct SlicedWait {
    since: Instant,
    limit: Option<Duration>,
}

impl SlicedWait {
    /// Starts a wait of up to `timeout` seconds, or an endless one if that is infinite or more than a duration can
    /// hold.
    fn new(timeout: Option<f64>) -> Self {
        let limit = timeout.and_then(|timeout| match Duration::try_from_secs_f64(timeout) {
            Ok(limit) => Some(limit),
            Err(_) if timeout > 0.0 => None,
            Err(_) => Some(Duration::ZERO),
        });
        Self { since: Instant::now(), limit }
    }

    fn slice(self) -> Duration {
        self.limit.map_or(SLICE, |limit| limit.saturating_sub(self.since.elapsed()).min(SLICE))
    }

    fn is_over(self) -> bool {
        self.limit.is_some_and(|limit| self.since.elapsed() >= limit)
    }
}

impl NativePipeline {
    /// Fails in a forked child, whose copy of the pipeline has no threads.
    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let problem = format!(
            "this pipeline belongs to process {}; process {} was forked from it and cannot use it",
            self.process,
            std::process::id()
        );
        Err(ErrorKind::Forked.error(
            py,
            &problem,
            Some("start the pipeline in the process that uses it, after the fork"),
        ))
    }

    /// Returns the name of the user's stage for one of the engine's.
    fn shown<'n>(&self, stage: &'n str) -> &'n str {
        let is_hidden = self.hidden.iter().any(|hidden| hidden == stage);
        HIDDEN.iter().find_map(|end| stage.strip_suffix(end)).filter(|_| is_hidden).unwrap_or(stage)
    }

    /// Returns the exception at the end of the items: the source's, or `EOFError`.
    fn end(&self, py: Python<'_>) -> PyErr {
        match self.source_failure.lock().take() {
            Some(cause) => failure(py, SOURCE, &format!("stage `{SOURCE}` failed: {cause}"), Some(cause)),
            None => PyEOFError::new_err("the pipeline has no more items"),
        }
    }

    /// Converts the error that ended the pipeline.
    fn failure(&self, py: Python<'_>, error: PipelineError) -> PyErr {
        let text = error.to_string();
        let (mut error, mut stage) = (error, None);
        loop {
            match error {
                PipelineError::Failed { stage, source } => {
                    let limit = self.limits.iter().find(|(name, _)| *name == stage);
                    let excess = limit.and_then(|(_, limit)| limit.excess());
                    let text = excess.map_or(text.clone(), |excess| format!("{excess}; the last: {text}"));
                    let cause = source.downcast::<PyErr>().ok().map(|cause| *cause);
                    return failure(py, self.shown(&stage), &text, cause);
                }
                PipelineError::TooManyFailures { stage: name, last, .. } => (error, stage) = (*last, Some(name)),
                PipelineError::Panicked { stage, .. } => return failure(py, self.shown(&stage), &text, None),
                _ => return failure(py, stage.as_deref().unwrap_or_default(), &text, None),
            }
        }
    }
}

/// Makes the exception of a failed stage.
fn failure(py: Python<'_>, stage: &str, text: &str, cause: Option<PyErr>) -> PyErr {
    let error = ErrorKind::PipelineFailure.error(py, text, None);
    // The class of the exception has room for attributes, so this cannot fail.
    let _ = error.value(py).setattr("stage", stage);
    error.set_cause(py, cause);
    error
}
