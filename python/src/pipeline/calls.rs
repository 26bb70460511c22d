//! How stages call Python: functions, generators, and operations that answer later, such as those of an event loop or of an
//! executor.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use futures::channel::oneshot;
use parking_lot::Mutex;
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
    types::{PyIterator, PyList},
};
use spdl_pipeline::Op;
use spdl_types::Position;

use super::{
    SourceFailure,
    item::{Held, ItemValue, PipelineItem, attached},
    marks::{Marks, Tracker},
};

/// How many failed items a stage leaves out before a failure ends the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaxFailures {
    Any,
    Count(u64),
    /// At most `failures` of each `items` items, from the first [`SHARE_FROM`] items on.
    Share {
        failures: u64,
        items: u64,
    },
}

/// Number of items before which no share of failures is too large.
const SHARE_FROM: u64 = 100;

/// The failures of a stage, and whether they end the pipeline.
#[derive(Debug)]
pub(crate) struct FailureLimit {
    max: MaxFailures,
    begun: AtomicU64,
    failures: AtomicU64,
    is_exceeded: AtomicBool,
}

impl FailureLimit {
    pub(crate) fn new(max: MaxFailures) -> Arc<Self> {
        let [begun, failures] = Default::default();
        Arc::new(Self { max, begun, failures, is_exceeded: AtomicBool::new(false) })
    }

    /// Makes an operation follow this limit.
    pub(crate) fn apply<T: Send + 'static, U: Send + 'static>(self: &Arc<Self>, op: Op<T, U>) -> Op<T, U> {
        match self.max {
            MaxFailures::Count(0) => op,
            MaxFailures::Count(max) => op.skip_failures().max_failures(max),
            MaxFailures::Any => op.skip_failures(),
            MaxFailures::Share { .. } => {
                let limit = self.clone();
                op.skip_failures_while(move || !limit.is_exceeded.load(Ordering::Relaxed))
            }
        }
    }

    /// Counts an item that the operation starts.
    pub(crate) fn begin(&self) {
        if matches!(self.max, MaxFailures::Share { .. }) {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a failed item and settles its marks. Keeps them unsettled if this failure ends the pipeline, so that the
    /// item is delivered another time.
    pub(crate) fn leave_out(&self, marks: Marks) {
        let count = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let is_within = match self.max {
            MaxFailures::Any => true,
            MaxFailures::Count(max) => count <= max,
            MaxFailures::Share { failures, items } => {
                let begun = self.begun.load(Ordering::Relaxed);
                begun < SHARE_FROM || u128::from(count) * u128::from(items) <= u128::from(failures) * u128::from(begun)
            }
        };
        if is_within {
            marks.settle();
        } else {
            self.is_exceeded.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the share of failures and the limit that it exceeds, as text.
    pub(crate) fn excess(&self) -> Option<String> {
        let MaxFailures::Share { failures, items } = self.max else { return None };
        let counts = [&self.failures, &self.begun].map(|count| count.load(Ordering::Relaxed));
        let text = || {
            format!("{} of {} items failed, more than its `max_failures` of {failures}/{items}", counts[0], counts[1])
        };
        self.is_exceeded.load(Ordering::Relaxed).then(text)
    }
}

/// A callable of Python's that a stage calls with each item.
pub(crate) struct Call {
    op: Held<PyAny>,
    limit: Arc<FailureLimit>,
}

/// Results of one item, each passed on by itself.
pub(crate) type ItemResults = Box<dyn Iterator<Item = PyResult<PipelineItem>> + Send>;

impl Call {
    pub(crate) fn new(op: Py<PyAny>, limit: Arc<FailureLimit>) -> Self {
        Self { op: Held::new(op), limit }
    }

    /// Calls a function. Its result is left out if it is `None`.
    pub(crate) fn function(&self, item: PipelineItem) -> PyResult<Option<PipelineItem>> {
        self.limit.begin();
        let PipelineItem { value, marks } = item;
        let result = attached(|py| {
            let argument = value.into_object(py)?;
            Ok(Some(self.op.get().bind(py).call1((argument,))?).filter(|result| !result.is_none()).map(Bound::unbind))
        });
        self.made(result.map(|object| object.map(ItemValue::of)), marks)
    }

    /// Calls a function that returns the number of one of `count` paths for the item.
    pub(crate) fn route(&self, item: PipelineItem, count: usize) -> PyResult<(usize, PipelineItem)> {
        self.limit.begin();
        let PipelineItem { value, marks } = item;
        let routed = attached(|py| {
            let argument = value.into_object(py)?;
            let path = self.op.get().bind(py).call1((&argument,))?;
            match path.extract::<usize>() {
                Ok(path) if path < count => Ok((path, ItemValue::of(argument.unbind()))),
                _ => {
                    let text = format!("the router returned {}, not the number of one of {count} paths", path.repr()?);
                    Err(PyValueError::new_err(text))
                }
            }
        });
        match routed {
            Ok((path, value)) => Ok((path, PipelineItem { value, marks })),
            Err(error) => {
                self.limit.leave_out(marks);
                Err(error)
            }
        }
    }

    /// Calls a generator function, or any function whose result is iterated.
    pub(crate) fn generator(&self, item: PipelineItem) -> PyResult<Generated> {
        self.limit.begin();
        let PipelineItem { value, marks } = item;
        let iterator = attached(|py| {
            let argument = value.into_object(py)?;
            Ok(self.op.get().bind(py).call1((argument,))?.try_iter()?.unbind())
        });
        match iterator {
            Ok(iterator) => {
                Ok(Generated { iterator: Held::new(iterator), marks: Some(marks), limit: self.limit.clone() })
            }
            Err(error) => {
                self.limit.leave_out(marks);
                Err(error)
            }
        }
    }

    /// Calls an operation that answers later, through the `Reply` that it gets as an argument.
    pub(crate) async fn deferred(self: Arc<Self>, item: PipelineItem) -> PyResult<Vec<PipelineItem>> {
        self.limit.begin();
        let PipelineItem { value, marks } = item;
        let (sender, receiver) = oneshot::channel();
        let asked = attached(|py| {
            let argument = value.into_object(py)?;
            self.op.get().bind(py).call1((argument, Reply(Mutex::new(Some(sender))))).map(drop)
        });
        let answer = match asked {
            Ok(()) => receiver.await.unwrap_or_else(|_| Err(PyRuntimeError::new_err("the operation was cancelled"))),
            Err(error) => Err(error),
        };
        match answer {
            Ok(objects) => {
                let items = objects
                    .into_iter()
                    .map(|object| PipelineItem { value: ItemValue::of(object), marks: marks.share() });
                let items = items.collect();
                marks.settle();
                Ok(items)
            }
            Err(error) => {
                self.limit.leave_out(marks);
                Err(error)
            }
        }
    }

    /// Calls an operation that answers later with one result, or `None`.
    pub(crate) async fn deferred_one(self: Arc<Self>, item: PipelineItem) -> PyResult<Option<PipelineItem>> {
        Ok(self.deferred(item).await?.pop())
    }

    fn made(&self, value: PyResult<Option<ItemValue>>, marks: Marks) -> PyResult<Option<PipelineItem>> {
        match value {
            Ok(Some(value)) => Ok(Some(PipelineItem { value, marks })),
            Ok(None) => {
                marks.settle();
                Ok(None)
            }
            Err(error) => {
                self.limit.leave_out(marks);
                Err(error)
            }
        }
    }
}

/// An aggregator of Python's: a callable that is called with each item, and at the end without an item.
pub(crate) struct Aggregator {
    call: Call,
    /// The marks of the items that are in no result yet.
    kept: Mutex<Vec<Marks>>,
}

impl Aggregator {
    pub(crate) fn new(op: Py<PyAny>, limit: Arc<FailureLimit>) -> Self {
        Self { call: Call::new(op, limit), kept: Mutex::default() }
    }

    /// Calls the aggregator with an item, or without one at the end. A result gets the marks of the items before this
    /// one, because the aggregator may have kept this item for the next result.
    pub(crate) fn accumulate(
        &self,
        PipelineItem { value, marks }: PipelineItem,
    ) -> PyResult<std::option::IntoIter<PyResult<PipelineItem>>> {
        self.call.limit.begin();
        let is_end = matches!(value, ItemValue::End);
        let result = attached(|py| {
            let op = self.call.op.get().bind(py);
            let result = if is_end { op.call0() } else { op.call1((value.into_object(py)?,)) }?;
            Ok(Some(result).filter(|result| !result.is_none()).map(|result| ItemValue::of(result.unbind())))
        });
        let mut kept = self.kept.lock();
        let made = match result {
            Ok(made) => made,
            Err(error) => {
                self.call.limit.leave_out(marks);
                return Err(error);
            }
        };
        let covered = if made.is_some() || is_end { std::mem::take(&mut *kept) } else { Vec::new() };
        kept.push(marks);
        drop(kept);
        let covered = Marks::of(covered.into_iter());
        match made {
            Some(value) => Ok(Some(Ok(PipelineItem { value, marks: covered })).into_iter()),
            None => {
                covered.settle();
                Ok(None.into_iter())
            }
        }
    }
}

/// Splits a list, or iterates over any other object, into its items.
pub(crate) fn disaggregate(item: PipelineItem) -> PyResult<ItemResults> {
    match item {
        PipelineItem { value: ItemValue::List(values), marks } => {
            let items: Vec<_> =
                values.into_iter().map(|value| Ok(PipelineItem { value, marks: marks.share() })).collect();
            marks.settle();
            Ok(Box::new(items.into_iter()))
        }
        PipelineItem { value, marks } => {
            let iterator = attached(|py| Ok(value.into_object(py)?.try_iter()?.unbind()))?;
            let limit = FailureLimit::new(MaxFailures::Count(0));
            Ok(Box::new(Generated { iterator: Held::new(iterator), marks: Some(marks), limit }))
        }
    }
}

/// Passes on the results of an operation that answered.
pub(crate) fn results(items: Vec<PipelineItem>) -> PyResult<impl Iterator<Item = PyResult<PipelineItem>> + Send> {
    Ok(items.into_iter().map(Ok))
}

/// The results of an iterator of Python's for one item.
pub(crate) struct Generated {
    iterator: Held<PyIterator>,
    /// `None` when the iterator has ended.
    marks: Option<Marks>,
    limit: Arc<FailureLimit>,
}

impl Iterator for Generated {
    type Item = PyResult<PipelineItem>;

    fn next(&mut self) -> Option<Self::Item> {
        let marks = self.marks.take()?;
        match attached(|py| next_object(self.iterator.get(), py)) {
            Ok(Some(object)) => {
                let item = PipelineItem { value: ItemValue::of(object), marks: marks.share() };
                self.marks = Some(marks);
                Some(Ok(item))
            }
            Ok(None) => {
                marks.settle();
                None
            }
            Err(error) => {
                self.limit.leave_out(marks);
                Some(Err(error))
            }
        }
    }
}

/// Returns the next object of an iterator that is not `None`.
fn next_object(iterator: &Py<PyIterator>, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
    let mut objects = iterator.bind(py).clone();
    let found = objects.find(|object| !object.as_ref().is_ok_and(Bound::is_none));
    found.transpose().map(|object| object.map(Bound::unbind))
}

/// The results of an operation that answers later.
type DeferredResults = PyResult<Vec<Py<PyAny>>>;

/// Where an operation that answers later puts its result. Only the first answer counts.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct Reply(Mutex<Option<oneshot::Sender<DeferredResults>>>);

impl Reply {
    fn answer(&self, answer: DeferredResults) {
        if let Some(sender) = self.0.lock().take() {
            // The receiver is gone once the pipeline has stopped.
            let _ = sender.send(answer);
        }
    }
}

#[pymethods]
impl Reply {
    /// Answers with one result; `None` is left out.
    fn done(&self, result: Option<Py<PyAny>>) {
        self.answer(Ok(result.into_iter().collect()));
    }

    /// Answers with a list of results, each passed on by itself.
    fn done_many(&self, results: &Bound<'_, PyList>) {
        self.answer(Ok(results.iter().filter(|result| !result.is_none()).map(Bound::unbind).collect()));
    }

    /// Answers with a failure.
    fn failed(&self, exception: &Bound<'_, PyAny>) {
        self.answer(Err(PyErr::from_value(exception.clone())));
    }
}

/// Iterates over an object of Python's as the source of a pipeline.
pub(crate) struct PythonSource {
    pub(crate) iterator: Held<PyIterator>,
    /// Counts the batches of a loader; `None` for other sources.
    pub(crate) tracker: Option<Arc<Tracker>>,
    /// The exception that ended the source.
    pub(crate) failure: SourceFailure,
}

impl Iterator for PythonSource {
    type Item = PipelineItem;

    fn next(&mut self) -> Option<PipelineItem> {
        let next = attached(|py| {
            let Some(object) = self.iterator.get().bind(py).clone().next().transpose()? else { return Ok(None) };
            let marks = match &self.tracker {
                Some(tracker) => {
                    let (epoch, offset) = object.getattr("next_position")?.extract()?;
                    tracker.mark(Position { epoch, offset })
                }
                None => Marks::None,
            };
            Ok(Some(PipelineItem { value: ItemValue::of(object.unbind()), marks }))
        });
        next.unwrap_or_else(|error| {
            *self.failure.lock() = Some(error);
            None
        })
    }
}
