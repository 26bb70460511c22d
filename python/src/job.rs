//! A job as Python gives it: the path of a job file, or a dict with the same keys. A relative `dataset` is relative to
//! the job file, or for a dict to the current folder.

use spdl_shard::{read_job_file, resolve_dataset};
use std::path::{Path, PathBuf};

use pyo3::{
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple},
};
use spdl_job::JobFile;

use crate::errors::ErrorKind;

/// Reads a job. A dict is converted to a TOML table first, so that both forms take the same path.
pub(crate) fn read(job: &Bound<'_, PyAny>) -> PyResult<JobFile> {
    let py = job.py();
    let wrong = |problem: String| ErrorKind::Setting.error(py, &problem, None);
    let file = if let Ok(dict) = job.cast::<PyDict>() {
        JobFile::from_table(&table(dict, "job")?, "job")
    } else {
        let path: PathBuf = job
            .extract()
            .map_err(|_| wrong(format!("job is {}, neither a dict nor the path of a job file", kind(job))))?;
        read_job_file(&path)
    };
    file.map_err(|error| wrong(error.to_string()))
}

/// Returns a job, under another name if one is given, as the text of a job file that means the same in every folder. Checks its keys
/// and their types only.
#[pyfunction]
#[pyo3(signature = (job, name=None))]
pub(crate) fn job_text(job: &Bound<'_, PyAny>, name: Option<String>) -> PyResult<String> {
    let mut file = resolve_dataset(read(job)?, Path::new("job"));
    if let Some(name) = name {
        file.name = name;
    }
    toml::to_string(&file).map_err(|error| ErrorKind::Setting.error(job.py(), &error.to_string(), None))
}

/// The deepest nesting: deeper than any job, and shallow enough for the stack.
const MAX_DEPTH: usize = 16;

fn table(dict: &Bound<'_, PyDict>, at: &str) -> PyResult<toml::Table> {
    if at.split('.').count() > MAX_DEPTH {
        return Err(ErrorKind::Setting.error(dict.py(), &format!("{at} is nested too deep for a job"), None));
    }
    let mut table = toml::Table::new();
    for (key, value) in dict {
        let key = key
            .extract::<String>()
            .map_err(|_| ErrorKind::Setting.error(dict.py(), &format!("{at} has a key that is not a string"), None))?;
        let at = format!("{at}.{key}");
        // `None` means that the key is absent, as in TOML.
        if !value.is_none() {
            table.insert(key, self::value(&value, &at)?);
        }
    }
    Ok(table)
}

/// Converts a value of a job; `at` is its place, for errors.
pub(crate) fn value(object: &Bound<'_, PyAny>, at: &str) -> PyResult<toml::Value> {
    // A bool is an int in Python, so it comes first.
    if let Ok(flag) = object.cast::<PyBool>() {
        Ok(toml::Value::Boolean(flag.is_true()))
    } else if object.is_instance_of::<PyInt>() {
        Ok(toml::Value::Integer(object.extract()?))
    } else if object.is_instance_of::<PyFloat>() {
        Ok(toml::Value::Float(object.extract()?))
    } else if object.is_instance_of::<PyString>() {
        Ok(toml::Value::String(object.extract()?))
    } else if let Ok(dict) = object.cast::<PyDict>() {
        table(dict, at).map(toml::Value::Table)
    } else if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let items = object.try_iter()?.enumerate();
        items
            .map(|(index, item)| value(&item?, &format!("{at}.{index}")))
            .collect::<PyResult<_>>()
            .map(toml::Value::Array)
    } else if let Ok(path) = object.extract::<PathBuf>() {
        Ok(toml::Value::String(path.display().to_string()))
    } else {
        let problem = format!("{at} is {}, which no key of a job is", kind(object));
        Err(ErrorKind::Setting.error(object.py(), &problem, None))
    }
}

/// Converts the table of a job to a dict.
pub(crate) fn dict<'py>(py: Python<'py>, table: &toml::Table) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in table {
        dict.set_item(key, object(py, value)?)?;
    }
    Ok(dict)
}

fn object<'py>(py: Python<'py>, value: &toml::Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        toml::Value::String(text) => PyString::new(py, text).into_any(),
        toml::Value::Integer(number) => number.into_pyobject(py)?.into_any(),
        toml::Value::Float(number) => PyFloat::new(py, *number).into_any(),
        toml::Value::Boolean(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        toml::Value::Datetime(time) => PyString::new(py, &time.to_string()).into_any(),
        toml::Value::Array(items) => {
            let items = items.iter().map(|item| object(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
        toml::Value::Table(table) => dict(py, table)?.into_any(),
    })
}

/// Names the type of an object, for errors.
fn kind(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "an object".to_owned(), |name| format!("a `{name}`"))
}
