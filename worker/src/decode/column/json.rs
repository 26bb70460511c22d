//! The kind `json`: finds a number in a JSON document.

use serde_json::Value;
use spdl_job::JsonColumn;
use spdl_shard::json;
use spdl_types::DType;

use super::{ColumnDecoder, ColumnSample, FieldTarget};
use crate::decode::{
    cause::{BadSampleProblem, quoted, reason},
    number::{write_float, write_number},
};

/// Decodes the number at a path to the column's type.
pub(super) struct JsonDecoder(pub(super) JsonColumn, pub(super) DType);

impl ColumnDecoder for JsonDecoder {
    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        number_at(&sample.content.into_file(), &self.0.path, self.1, sample.field, target.fixed())
    }
}

/// Parses the number at `path` of a JSON document.
fn number_at(bytes: &[u8], path: &[String], dtype: DType, field: &str, out: &mut [u8]) -> Result<(), BadSampleProblem> {
    let document: Value = json::read(bytes)
        .map_err(|error| BadSampleProblem::NotJson { field: field.to_owned(), reason: reason(error) })?;
    let mut place = Some(&document);
    for key in path {
        place = match place {
            Some(Value::Object(members)) => members.get(key),
            Some(Value::Array(items)) => key.parse().ok().and_then(|index: usize| items.get(index)),
            _ => None,
        };
    }
    if let Some(Value::String(text)) = place
        && let Some(number) = json::non_finite(text)
    {
        let text = || quoted(number.to_string().as_bytes());
        return match dtype {
            DType::F32 | DType::F64 => write_float(number, dtype, field, text, out),
            _ => Err(BadSampleProblem::NotANumber { field: field.to_owned(), text: text() }),
        };
    }
    let Some(Value::Number(number)) = place else {
        let found = match place {
            None => "nothing",
            Some(Value::Null) => "null",
            Some(Value::Bool(_)) => "true or false",
            Some(Value::String(_)) => "a string",
            Some(Value::Array(_)) => "a list",
            Some(Value::Object(_) | Value::Number(_)) => "an object",
        };
        let path = quoted(path.join(".").as_bytes());
        return Err(BadSampleProblem::NoNumberAt { field: field.to_owned(), path, found: found.to_owned() });
    };
    write_number(number, dtype, field, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(text: &str, path: &str, dtype: DType) -> Result<Vec<u8>, String> {
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        let mut out = vec![0; dtype.bytes()];
        number_at(text.as_bytes(), &path, dtype, "json", &mut out).map(|()| out).map_err(|problem| problem.to_string())
    }

    #[test]
    fn numbers_in_json() {
        let text = r#"{"camera": {"exposure": 0.5, "iso": [100, 200.0]}, "big": 18446744073709551615, "0": -3}"#;
        assert_eq!(json_of(text, "camera.exposure", DType::F64).unwrap(), 0.5f64.to_le_bytes());
        assert_eq!(json_of(text, "camera.exposure", DType::F32).unwrap(), 0.5f32.to_le_bytes());
        assert_eq!(json_of(text, "camera.iso.1", DType::I32).unwrap(), 200i32.to_le_bytes());
        assert_eq!(json_of(text, "0", DType::I64).unwrap(), (-3i64).to_le_bytes());
        for (path, dtype, expected) in [
            ("camera.shutter", DType::F64, "no number at `camera.shutter`, but nothing"),
            ("camera.iso.2", DType::F64, "but nothing"),
            ("camera.iso.x", DType::F64, "but nothing"),
            ("camera", DType::F64, "an object"),
            ("camera.iso", DType::F64, "a list"),
            ("camera.exposure", DType::I64, "\"0.5\", not a whole number"),
            ("big", DType::I64, "outside the range of i64"),
        ] {
            let error = json_of(text, path, dtype).unwrap_err();
            assert!(error.contains(expected), "{path}: {error}");
        }
        let nan = "{\"a\": NaN, \"b\": 7, \"c\": -Infinity, \"d\": \"NaN\"}";
        assert_eq!(json_of(nan, "b", DType::I64).unwrap(), 7i64.to_le_bytes());
        assert!(f32::from_le_bytes(json_of(nan, "a", DType::F32).unwrap().try_into().unwrap()).is_nan());
        assert_eq!(json_of(nan, "c", DType::F64).unwrap(), f64::NEG_INFINITY.to_le_bytes());
        assert!(json_of(nan, "a", DType::I64).unwrap_err().contains("\"NaN\", not a whole number"));
        assert!(json_of(nan, "d", DType::F64).unwrap_err().contains("a string"));
        assert!(json_of("{\"a\": 1e300}", "a", DType::F32).unwrap_err().contains("outside the range of f32"));
        assert!(json_of("{\"a\": 1e300}", "a", DType::I64).unwrap_err().contains("outside the range of i64"));
        assert!(json_of("{\"a\": ", "a", DType::F32).unwrap_err().contains("is not JSON: EOF"));
        assert!(json_of(&"[".repeat(100_000), "a", DType::F32).unwrap_err().contains("not JSON: recursion limit"));
        let odd = format!("{{\"a\": {}{}, \"b\": \"\\ud800\", \"c\": 7}}", "[".repeat(500), "]".repeat(500));
        assert_eq!(json_of(&odd, "c", DType::I64).unwrap(), 7i64.to_le_bytes());
    }
}
