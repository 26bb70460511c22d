//! The functions that a worker has, by name and version.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde_json::{Map, Value as JsonValue};
use spdl_types::RustFunction;

use crate::{
    CallMemory, Draw, FunctionProblem, FunctionSetup, Returned, SampleFunction, Taken, ValueMemory, ValueType,
};

/// The functions that a worker has.
#[derive(Clone, Debug, Default)]
pub struct FunctionRegistry(Vec<RegisteredFunction>);

#[derive(Clone, Debug)]
struct RegisteredFunction {
    function: RustFunction<'static>,
    prepare: fn(&FunctionSetup) -> Result<Box<dyn CallSample>, FunctionProblem>,
}

/// A [`SampleFunction`] of any type.
trait CallSample: Send + Sync {
    fn call_sample(
        &self,
        taken: &Taken<'_>,
        returned: &mut Returned<'_>,
        draw: &mut Draw,
    ) -> Result<(), FunctionProblem>;
}

impl<F: SampleFunction> CallSample for F {
    fn call_sample(
        &self,
        taken: &Taken<'_>,
        returned: &mut Returned<'_>,
        draw: &mut Draw,
    ) -> Result<(), FunctionProblem> {
        self.call(taken, returned, draw)
    }
}

/// The error of a function that cannot be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum FunctionRegistryError {
    /// No function of this name and version is registered.
    #[error("it has {registered}")]
    NotRegistered { registered: String },
    /// The function cannot be prepared with what the job declares.
    #[error("it {problem}")]
    Unprepared { problem: String },
}

impl FunctionRegistry {
    /// Creates a registry without functions.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a function.
    ///
    /// # Panics
    /// If its name is not one that a job can have, or the registry has that version of it already.
    #[must_use]
    pub fn with<F: SampleFunction>(mut self) -> Self {
        let function = RustFunction { name: F::NAME, version: F::VERSION };
        let text = function.to_string();
        assert!(RustFunction::parse(&text).is_some(), "`{text}` is not the name of a function: use `module::function`");
        assert!(self.find(function).is_none(), "`{text}` is registered twice");
        self.0.push(RegisteredFunction { function, prepare: |setup| Ok(Box::new(F::prepare(setup)?)) });
        self
    }

    /// Returns the names of all functions as jobs call them: `captions::tokens@3`.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|entry| entry.function.to_string()).collect()
    }

    fn find(&self, function: RustFunction<'_>) -> Option<&RegisteredFunction> {
        self.0.iter().find(|entry| entry.function == function)
    }

    /// Prepares a function for a job.
    ///
    /// # Errors
    /// [`FunctionRegistryError::NotRegistered`] if it is not there, and [`FunctionRegistryError::Unprepared`] with the function's own reason.
    pub fn prepare(
        &self,
        function: RustFunction<'_>,
        arguments: Map<String, JsonValue>,
        takes: Vec<ValueType>,
        returns: Vec<ValueType>,
    ) -> Result<PreparedFunction, FunctionRegistryError> {
        let Some(entry) = self.find(function) else {
            return Err(FunctionRegistryError::NotRegistered { registered: self.registered(function.name) });
        };
        let setup = FunctionSetup { arguments, takes, returns };
        let prepared = catch_unwind(AssertUnwindSafe(|| (entry.prepare)(&setup)));
        let prepared = prepared.unwrap_or_else(|panic| Err(panicked(&*panic)));
        let problem = |problem: FunctionProblem| FunctionRegistryError::Unprepared {
            problem: format!("cannot be prepared: {}", problem.text()),
        };
        let function = prepared.map_err(problem)?;
        Ok(PreparedFunction { function, takes: setup.takes, returns: setup.returns })
    }

    /// Describes what is registered instead of a function of this name.
    fn registered(&self, name: &str) -> String {
        let versions = self.0.iter().filter(|entry| entry.function.name == name);
        let versions: Vec<String> = versions.map(|entry| entry.function.version.to_string()).collect();
        if !versions.is_empty() {
            return format!("version {} of it", versions.join(", "));
        }
        match &self.names()[..] {
            [] => "no functions in Rust".to_owned(),
            names => format!("`{}`", names.join("`, `")),
        }
    }
}

/// A function that is prepared for a job.
pub struct PreparedFunction {
    function: Box<dyn CallSample>,
    takes: Vec<ValueType>,
    returns: Vec<ValueType>,
}

impl fmt::Debug for PreparedFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedFunction").field("takes", &self.takes).field("returns", &self.returns).finish()
    }
}

/// The key of the random numbers of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKey {
    /// The job's seed.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
    /// The number of the sample.
    pub id: u64,
}

impl PreparedFunction {
    /// Calls the function for one sample. `input` writes a value that the function takes, and `output` reads a value
    /// that it has returned, each by its number.
    ///
    /// # Errors
    /// The error of `input`, or what `bad` makes of the reason why the sample is bad.
    pub fn call<E>(
        &self,
        memory: &mut CallMemory,
        CallKey { seed, epoch, id }: CallKey,
        mut input: impl FnMut(usize, &mut ValueMemory) -> Result<(), E>,
        mut output: impl FnMut(usize, &[u8]),
        bad: impl FnOnce(String) -> E,
    ) -> Result<(), E> {
        memory.reset(self.takes.len(), self.returns.len());
        for (number, value) in memory.taken[..self.takes.len()].iter_mut().enumerate() {
            input(number, value)?;
        }
        let taken = Taken { types: &self.takes, memory: &memory.taken[..self.takes.len()] };
        let mut returned = Returned { types: &self.returns, memory: &mut memory.returned[..self.returns.len()] };
        let mut draw = Draw::new(seed, epoch, id);
        // A panic is the fault of the sample or of the function, and not of the worker.
        let called = catch_unwind(AssertUnwindSafe(|| self.function.call_sample(&taken, &mut returned, &mut draw)));
        let called = called.unwrap_or_else(|panic| Err(panicked(&*panic)));
        let missing = self.returns.iter().zip(&memory.returned).find(|(_, value)| !value.is_set());
        let called = called.and_then(|()| match missing {
            Some((declared, _)) => {
                Err(FunctionProblem::new(format!("returned no `{}`, which its job declares", declared.name)))
            }
            None => Ok(()),
        });
        if let Err(problem) = called {
            return Err(bad(problem.text().to_owned()));
        }
        for (number, value) in memory.returned[..self.returns.len()].iter().enumerate() {
            output(number, value.used());
        }
        Ok(())
    }
}

/// Describes a panic.
fn panicked(panic: &(dyn Any + Send)) -> FunctionProblem {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    FunctionProblem::new(format!("panicked: {}", text.unwrap_or("without a text")))
}

#[cfg(test)]
mod tests;
