//! How stages call Python: functions, generators, and operations that answer later, such as those of an event loop or of an
//! executor.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use pyo3::{
    exceptions::PyRuntimeError,
    prelude::*,
    types::{PyIterator, PyList},
};
use spdl_core::Position;
use spdl_pipeline::Op;
use tokio::sync::oneshot;

use super::{
    item::{Held, Item, Value, attached},
    marks::{Marks, Tracker},
};

/// Number of failed items that a stage leaves out before a failure ends the pipeline.
#[derive(Debug)]
pub(crate) struct FailureLimit {
    /// `None` if there is no limit.
    pub(crate) max: Option<u64>,
    count: AtomicU64,
}

impl FailureLimit {
    pub(crate) fn new(max: Option<u64>) -> Self {
        Self { max, count: AtomicU64::new(0) }
    }

    /// Sets the policy of an operation.
    pub(crate) fn apply<T: Send + 'static, U: Send + 'static>(&self, op: Op<T, U>) -> Op<T, U> {
        match self.max {
            Some(0) => op,
            Some(max) => op.skip_failures().max_failures(max),
            None => op.skip_failures(),
        }
    }

    /// Counts a failed item and settles its marks, unless the pipeline fails with it and delivers it another time.
    pub(crate) fn leave_out(&self, marks: Marks) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if self.max.is_none_or(|max| count <= max) {
            marks.settle();
        }
    }
}

/// A callable of Python's that a stage calls with each item.
pub(crate) struct Call {
    op: Held<PyAny>,
    limit: Arc<FailureLimit>,
}

/// Results of one item, each passed on by itself.
pub(crate) type Results = Box<dyn Iterator<Item = PyResult<Item>> + Send>;

impl Call {
    pub(crate) fn new(op: Py<PyAny>, limit: Arc<FailureLimit>) -> Self {
        Self { op: Held::new(op), limit }
    }

    /// Calls a function. Its result is left out if it is `None`.
    pub(crate) fn function(&self, item: Item) -> PyResult<std::option::IntoIter<PyResult<Item>>> {
        let Item { value, marks } = item;
        let result = attached(|py| {
            let argument = value.into_object(py)?;
            Ok(Some(self.op.get().bind(py).call1((argument,))?).filter(|result| !result.is_none()).map(Bound::unbind))
        });
        let item = self.made(result.map(|object| object.map(Value::of)), marks)?;
        Ok(item.map(Ok).into_iter())
    }

    /// Calls a generator function, or any function whose result is iterated.
    pub(crate) fn generator(&self, item: Item) -> PyResult<Generated> {
        let Item { value, marks } = item;
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

    /// Calls an operation that answers later, to the `Reply` that it is called with.
    pub(crate) async fn deferred(self: Arc<Self>, item: Item) -> PyResult<Vec<Item>> {
        let Item { value, marks } = item;
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
                let items = objects.into_iter().map(|object| Item { value: Value::of(object), marks: marks.share() });
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

    fn made(&self, value: PyResult<Option<Value>>, marks: Marks) -> PyResult<Option<Item>> {
        match value {
            Ok(Some(value)) => Ok(Some(Item { value, marks })),
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

/// Splits a list, or iterates over any other object, into its items.
pub(crate) fn disaggregate(item: Item) -> PyResult<Results> {
    match item {
        Item { value: Value::List(values), marks } => {
            let items: Vec<_> = values.into_iter().map(|value| Ok(Item { value, marks: marks.share() })).collect();
            marks.settle();
            Ok(Box::new(items.into_iter()))
        }
        Item { value, marks } => {
            let iterator = attached(|py| Ok(value.into_object(py)?.try_iter()?.unbind()))?;
            let limit = Arc::new(FailureLimit::new(Some(0)));
            Ok(Box::new(Generated { iterator: Held::new(iterator), marks: Some(marks), limit }))
        }
    }
}

/// Passes on the results of an operation that answered.
pub(crate) fn results(items: Vec<Item>) -> PyResult<impl Iterator<Item = PyResult<Item>> + Send> {
    Ok(items.into_iter().map(Ok))
}

/// The items that an iterator of Python's makes of one item.
pub(crate) struct Generated {
    iterator: Held<PyIterator>,
    /// `None` when the iterator has ended.
    marks: Option<Marks>,
    limit: Arc<FailureLimit>,
}

impl Iterator for Generated {
    type Item = PyResult<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        let marks = self.marks.take()?;
        match attached(|py| next_object(self.iterator.get(), py)) {
            Ok(Some(object)) => {
                let item = Item { value: Value::of(object), marks: marks.share() };
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
type Answer = PyResult<Vec<Py<PyAny>>>;

/// Where an operation that answers later puts its result. Only the first answer counts.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct Reply(Mutex<Option<oneshot::Sender<Answer>>>);

impl Reply {
    fn answer(&self, answer: Answer) {
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
pub(crate) struct Source {
    pub(crate) iterator: Held<PyIterator>,
    /// Counts the batches of a loader; `None` for other sources.
    pub(crate) tracker: Option<Arc<Tracker>>,
    /// The exception that ended the source.
    pub(crate) failure: Arc<Mutex<Option<PyErr>>>,
}

impl Iterator for Source {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let next = attached(|py| {
            let Some(object) = self.iterator.get().bind(py).clone().next().transpose()? else { return Ok(None) };
            let marks = match &self.tracker {
                Some(tracker) => {
                    let (epoch, offset) = object.getattr("next_position")?.extract()?;
                    tracker.mark(Position { epoch, offset })
                }
                None => Marks::None,
            };
            Ok(Some(Item { value: Value::of(object.unbind()), marks }))
        });
        next.unwrap_or_else(|error| {
            *self.failure.lock() = Some(error);
            None
        })
    }
}
