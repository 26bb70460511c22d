//! A user's function: how it is prepared, and how it is called.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as JsonValue};

use crate::{Draw, Returned, Taken, ValueType};

/// A function that a worker calls once for each sample, on several threads at once.
///
/// Its result may depend only on its arguments, the values that it takes, and what it draws: never on earlier samples,
/// the time or the machine. Then a sample is the same on every worker and after a resume.
pub trait SampleFunction: Send + Sync + Sized + 'static {
    /// The name by which jobs call it, such as `captions::tokens`: two names at least, with `::` between.
    const NAME: &'static str;
    /// The version of its results. Raise it with every change to them: a job calls one version, as
    /// `captions::tokens@3`.
    const VERSION: u32;

    /// Prepares the function for a job: reads its arguments, loads what it needs, and checks that it can take and return what
    /// the job declares. Called once for each rank that a worker feeds.
    ///
    /// # Errors
    /// Why the function cannot be called. The job then fails before its first batch.
    fn prepare(setup: &FunctionSetup) -> Result<Self, FunctionProblem>;

    /// Makes the values of one sample: all that the job declares. `draw` is the random generator of the seed, the epoch
    /// and the sample.
    ///
    /// # Errors
    /// Why the sample is bad; the job's `bad_samples` decides what happens to it. A sample for which the function
    /// panics is bad, too.
    fn call(&self, taken: &Taken<'_>, returned: &mut Returned<'_>, draw: &mut Draw) -> Result<(), FunctionProblem>;
}

/// Why a function cannot be prepared, or why a sample is bad. The operator `?` converts every error to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionProblem(String);

impl FunctionProblem {
    /// Creates a problem with a text such as "has no caption".
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

// A problem is not itself an `Error`, so that every error can be converted to one.
impl<E: std::error::Error> From<E> for FunctionProblem {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        Self(text)
    }
}

/// The declarations of a job for a function that it calls.
#[derive(Clone, Debug)]
pub struct FunctionSetup {
    pub(crate) arguments: Map<String, JsonValue>,
    pub(crate) takes: Vec<ValueType>,
    pub(crate) returns: Vec<ValueType>,
}

impl FunctionSetup {
    /// Returns the arguments as a type with one field for each.
    ///
    /// # Errors
    /// The argument that is missing, unknown, or of another type.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<T, FunctionProblem> {
        let arguments = JsonValue::Object(self.arguments.clone());
        serde_json::from_value(arguments).map_err(|error| FunctionProblem::new(format!("`arguments`: {error}")))
    }

    /// Returns the types of the values that the function takes: first the fields, then the columns. The value of a column's
    /// `transform` has the name of the column.
    #[must_use]
    pub fn takes(&self) -> &[ValueType] {
        &self.takes
    }

    /// Returns the types of the values that the function has to return.
    #[must_use]
    pub fn returns(&self) -> &[ValueType] {
        &self.returns
    }
}
