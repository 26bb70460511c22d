//! Items that flow between the stages of a pipeline: Python objects, lists, and results of native operations, with the
//! marks of their batches.

use bytes::Bytes;
use pyo3::{
    exceptions::PyRuntimeError,
    prelude::*,
    types::{PyBytes, PyList, PyString},
};

use super::{array::OwnedArray, marks::Marks};

/// An item between two stages.
pub(crate) struct PipelineItem {
    pub(crate) value: ItemValue,
    pub(crate) marks: Marks,
}

/// The value of an item.
pub(crate) enum ItemValue {
    /// An object of Python.
    Object(Held<PyAny>),
    /// A list that a stage `aggregate` made.
    List(Vec<ItemValue>),
    /// Text that a native operation reads.
    Text(String),
    /// An object that was downloaded.
    Bytes(Bytes),
    /// An array that a native operation made.
    Array(OwnedArray),
    /// The end of the items, for a stage that has to know it.
    End,
}

impl ItemValue {
    /// Makes the value of an object.
    pub(crate) fn of(object: Py<PyAny>) -> Self {
        Self::Object(Held::new(object))
    }

    /// Returns the value as Python sees it.
    pub(crate) fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Object(object) => Ok(object.take().into_bound(py)),
            Self::List(values) => {
                let list = PyList::empty(py);
                for value in values {
                    list.append(value.into_object(py)?)?;
                }
                Ok(list.into_any())
            }
            Self::Text(text) => Ok(PyString::new(py, &text).into_any()),
            Self::Bytes(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
            Self::Array(array) => array.into_object(py),
            Self::End => unreachable!("the stage behind it takes it out"),
        }
    }
}

/// An object that a thread of the engine may drop. It is freed at once, whereas a plain `Py` is freed when a thread
/// next calls into this module.
pub(crate) struct Held<T>(Option<Py<T>>);

impl<T> Held<T> {
    pub(crate) fn new(object: Py<T>) -> Self {
        Self(Some(object))
    }

    /// Returns the object.
    pub(crate) fn get(&self) -> &Py<T> {
        self.0.as_ref().expect("it is there until it is taken")
    }

    /// Takes the object out.
    pub(crate) fn take(mut self) -> Py<T> {
        self.0.take().expect("it is taken once")
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            let _ = Python::try_attach(|_| drop(object));
        }
    }
}

impl From<Vec<Self>> for PipelineItem {
    fn from(items: Vec<Self>) -> Self {
        let (values, marks): (_, Vec<_>) = items.into_iter().map(|item| (item.value, item.marks)).unzip();
        Self { value: ItemValue::List(values), marks: Marks::of(marks.into_iter()) }
    }
}

/// Calls `f` attached to Python. Returns an error while the interpreter shuts down, because no thread can attach then.
pub(crate) fn attached<T>(f: impl FnOnce(Python<'_>) -> PyResult<T>) -> PyResult<T> {
    Python::try_attach(f).unwrap_or_else(|| Err(PyRuntimeError::new_err("the interpreter is shutting down")))
}
