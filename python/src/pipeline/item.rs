//! What flows between the stages of a pipeline: Python objects and lists of items, with the marks of their batches.

use pyo3::{exceptions::PyRuntimeError, prelude::*, types::PyList};

use super::marks::Marks;

/// An item between two stages.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) value: Value,
    pub(crate) marks: Marks,
}

/// The value of an item.
#[derive(Debug)]
pub(crate) enum Value {
    /// An object of Python.
    Object(Py<PyAny>),
    /// A list that a stage `aggregate` made.
    List(Vec<Value>),
}

impl Value {
    /// Returns the value as Python sees it.
    pub(crate) fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Object(object) => Ok(object.into_bound(py)),
            Self::List(values) => {
                let list = PyList::empty(py);
                for value in values {
                    list.append(value.into_object(py)?)?;
                }
                Ok(list.into_any())
            }
        }
    }
}

impl From<Vec<Self>> for Item {
    fn from(items: Vec<Self>) -> Self {
        let (values, marks): (_, Vec<_>) = items.into_iter().map(|item| (item.value, item.marks)).unzip();
        Self { value: Value::List(values), marks: Marks::of(marks.into_iter()) }
    }
}

/// Calls `f` attached to Python. Fails where the interpreter is going down, which lends no thread to anyone.
pub(crate) fn attached<T>(f: impl FnOnce(Python<'_>) -> PyResult<T>) -> PyResult<T> {
    Python::try_attach(f).unwrap_or_else(|| Err(PyRuntimeError::new_err("the interpreter is shutting down")))
}
