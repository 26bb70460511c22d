//! The functions in Rust that a job calls, prepared from those that the worker has.

use spdl_functions::{FunctionRegistry, FunctionRegistryError, PreparedFunction, ValueType};
use spdl_job::{Callable, Column, Job};

/// The error of a function in Rust that a worker cannot call for a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct RustFunctionError {
    job: Box<str>,
    column: Box<str>,
    function: Box<str>,
    worker: Box<str>,
    reason: FunctionRegistryError,
}

impl RustFunctionError {
    fn text(&self) -> String {
        let Self { job, column, function, worker, reason } = self;
        let text = format!(
            "column `{column}` of job `{job}` calls the function `{function}` in Rust, and worker `{worker}` cannot: {reason}"
        );
        match reason {
            FunctionRegistryError::NotRegistered { .. } => format!(
                "{text}; the function is in the worker program that was built with it, and not in `spdl-worker`, `spdl-ctl` or \
                 `local` of Python: start that program as the worker on every node"
            ),
            _ => text,
        }
    }
}

/// The functions of a job, by the first column that each returns.
#[derive(Debug, Default)]
pub(crate) struct RustFunctions(Vec<(String, PreparedFunction)>);

impl RustFunctions {
    /// Prepares the functions that a job calls.
    pub(crate) fn prepare(job: &Job, registry: &FunctionRegistry, worker: &str) -> Result<Self, RustFunctionError> {
        let mut prepared = Vec::new();
        for column in &job.columns {
            let Some((callable, takes, returns)) = declared(column) else { continue };
            let Some(function) = callable.rust() else { continue };
            let arguments = callable.arguments.values().expect("a checked job has valid arguments");
            let made = registry.prepare(function, arguments, takes, returns).map_err(|reason| RustFunctionError {
                job: job.name.as_str().into(),
                column: column.name.as_str().into(),
                function: callable.name.as_str().into(),
                worker: worker.into(),
                reason,
            })?;
            prepared.push((column.name.clone(), made));
        }
        Ok(Self(prepared))
    }

    /// Returns the function that returns `column` as its first one.
    pub(crate) fn of(&self, column: &str) -> Option<&PreparedFunction> {
        self.0.iter().find(|(first, _)| first == column).map(|(_, function)| function)
    }
}

/// Returns the function that makes a column, with the values that it takes and returns, if the column is the first that
/// the function returns.
fn declared(column: &Column) -> Option<(&Callable, Vec<ValueType>, Vec<ValueType>)> {
    let of = |column: &Column| ValueType { name: column.name.clone(), dtype: column.dtype, shape: column.shape() };
    if let Some(transform) = &column.transform {
        let takes = ValueType { name: column.name.clone(), dtype: transform.takes, shape: column.decoded_shape() };
        return Some((&transform.function, vec![takes], vec![of(column)]));
    }
    let call = &column.returned().filter(|returned| returned.number == 0)?.call;
    let returns = call.returns.iter().map(|value| ValueType {
        name: value.name.clone(),
        dtype: value.dtype,
        shape: value.shape.sample_shape(),
    });
    Some((&call.function, call.takes().iter().map(of).collect(), returns.collect()))
}
