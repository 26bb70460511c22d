//! How values in a JSON document stand for the fields of columns with a `path`.

use serde_json::Value;
use spdl_shard::{format::Content, json};

use super::cause::{BadSampleProblem, quoted};

/// Returns a value as the text that a field with this value would have.
pub(super) fn plain_value(value: Option<&Value>, field: &str, path: &[String]) -> Result<Content, BadSampleProblem> {
    match value {
        Some(plain @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) => {
            let text = json::text(plain.clone());
            let wrong =
                |problem: &str| BadSampleProblem::Malformed { field: field.to_owned(), problem: problem.to_owned() };
            Ok(Content::File(text.map_err(wrong)?.into()))
        }
        value => Err(nothing_at(value, "value", field, path)),
    }
}

/// Returns the problem of a document that has something else at `path` than what the column wants.
pub(super) fn nothing_at(
    value: Option<&Value>,
    wanted: &'static str,
    field: &str,
    path: &[String],
) -> BadSampleProblem {
    let found = match value {
        None => "nothing",
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "true or false",
        Some(Value::String(_)) => "a string",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "an object",
        Some(Value::Number(_)) => "a number",
    };
    BadSampleProblem::NothingAt { field: field.to_owned(), path: quoted(path.join(".").as_bytes()), wanted, found }
}
