//! What a job calls, with its arguments: a user's function in Python or in Rust, or the objects of a user's class in
//! Python.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use spdl_types::{RustFunction, is_identifier};

use super::{KeyProblem, SourceDigest};

/// Length of the longest name of a function, in bytes.
const MAX_FUNCTION_BYTES: usize = 256;
/// Length of the longest text of arguments, in bytes. A process gets it in one packet.
const MAX_ARGUMENTS_BYTES: usize = 64 << 10;

/// The `arguments` table of a function in a job file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct ArgumentsFile(pub Map<String, Value>);

/// A function of the user's in Python or in Rust, or a class in Python.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callable {
    /// `package.module:function`, or [`module::function@version`](RustFunction) in Rust.
    pub name: String,
    /// Keyword arguments of the function, or of the class when an object is made.
    #[serde(default, skip_serializing_if = "Arguments::is_empty")]
    pub arguments: Arguments,
    /// The digest of its source in Python, if that was known where the job was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceDigest>,
}

/// Keyword arguments, as the text of a JSON object whose keys are sorted; empty if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Arguments(String);

impl Arguments {
    /// Takes a text that a peer sent, which has to be checked.
    #[must_use]
    pub const fn from_text(text: String) -> Self {
        Self(text)
    }

    fn read(arguments: &ArgumentsFile) -> Result<Self, KeyProblem> {
        if arguments.0.is_empty() {
            return Ok(Self::default());
        }
        if arguments.0.values().any(has_null) {
            return Err(("arguments", "has a number that is not finite".to_owned()));
        }
        Ok(Self(serde_json::to_string(&arguments.0).expect("plain data serialises")))
    }

    /// Returns whether there are no arguments.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names and values; `None` if the text is not that of an object.
    #[must_use]
    pub fn values(&self) -> Option<Map<String, Value>> {
        if self.is_empty() { Some(Map::new()) } else { serde_json::from_str(&self.0).ok() }
    }
}

/// Returns whether a value contains null. TOML has no null; a number that JSON does not have was read as null.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        _ => false,
    }
}

impl Callable {
    /// Returns the function in Rust; `None` if it is in Python.
    #[must_use]
    pub fn rust(&self) -> Option<RustFunction<'_>> {
        RustFunction::parse(&self.name)
    }

    /// Converts the values of a job file, without checking the name.
    pub(super) fn read(
        name: &str,
        arguments: Option<&ArgumentsFile>,
        source: Option<SourceDigest>,
    ) -> Result<Self, KeyProblem> {
        let arguments = arguments.map_or_else(|| Ok(Arguments::default()), Arguments::read)?;
        Ok(Self { name: name.to_owned(), arguments, source })
    }

    /// Checks the name, which is the value of `key`, and the arguments.
    pub(super) fn check(&self, key: &'static str) -> Result<(), KeyProblem> {
        let rust = self.rust();
        if self.name.len() > MAX_FUNCTION_BYTES || rust.is_none() && !is_python_function(&self.name) {
            let shown: String = self.name.chars().take(MAX_FUNCTION_BYTES).collect();
            let problem = format!(
                "is `{shown}`; name a function as `package.module:function`, or one in Rust as `module::function@version`"
            );
            return Err((key, problem));
        }
        if rust.is_some() && self.source.is_some() {
            return Err(("source_digest", format!("is for functions in Python; `{}` has its version", self.name)));
        }
        if self.arguments.0.len() > MAX_ARGUMENTS_BYTES {
            let problem = format!("has {} bytes as JSON, more than {MAX_ARGUMENTS_BYTES}", self.arguments.0.len());
            return Err(("arguments", problem));
        }
        let Some(values) = self.arguments.values() else {
            return Err(("arguments", "is not a JSON object".to_owned()));
        };
        match values.keys().find(|name| !is_identifier(name)) {
            Some(name) => {
                let language = if rust.is_some() { "Rust" } else { "Python" };
                Err(("arguments", format!("has `{name}`, which is not a name in {language}")))
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for Callable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Returns whether `name` has the form `package.module:function`.
fn is_python_function(name: &str) -> bool {
    let is_path = |path: &str| path.split('.').all(is_identifier);
    name.split_once(':').is_some_and(|(module, function)| is_path(module) && is_path(function))
}
