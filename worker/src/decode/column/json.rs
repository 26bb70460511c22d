//! The kind `json`: a number in a JSON document.

use serde_json::Value;
use spdl_job::DefaultValue;
use spdl_shard::json;
use spdl_types::DType;

use super::{ColumnDecoder, ColumnSample, FieldTarget, float::float, int::int};
use crate::decode::{
    cause::{BadSampleProblem, ValueResult, quoted},
    document::nothing_at,
    number::{write_float, write_number},
};

/// Decodes numbers to a type.
pub(super) struct JsonDecoder(pub(super) DType);

impl ColumnDecoder for JsonDecoder {
    fn write_default(&self, default: &DefaultValue, target: &mut FieldTarget<'_>) -> ValueResult {
        let DefaultValue::Number(number) = default else { unreachable!("a valid job has a number, not {default}") };
        let write = if matches!(self.0, DType::F32 | DType::F64) { float } else { int };
        write(number.as_bytes(), self.0, "default", target.fixed())
    }

    fn decode_json(
        &self,
        sample: ColumnSample<'_, '_, Option<&Value>>,
        path: &[String],
        target: &mut FieldTarget<'_>,
    ) -> ValueResult {
        number(sample.content, self.0, sample.field, path, target.fixed())
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, _: &mut FieldTarget<'_>) -> ValueResult {
        unreachable!("the column of field `{}` has no path", sample.field)
    }
}

/// Writes the number at `path` of a document.
fn number(value: Option<&Value>, dtype: DType, field: &str, path: &[String], out: &mut [u8]) -> ValueResult {
    match value {
        Some(Value::Number(number)) => write_number(number, dtype, field, out),
        Some(Value::String(text)) if let Some(number) = json::non_finite(text) => {
            let text = || quoted(number.to_string().as_bytes());
            match dtype {
                DType::F32 | DType::F64 => write_float(number, dtype, field, text, out),
                _ => Err(BadSampleProblem::NotANumber { field: field.to_owned(), text: text() }),
            }
        }
        value => Err(nothing_at(value, "number", field, path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(text: &str, path: &str, dtype: DType) -> Result<Vec<u8>, String> {
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        let mut out = vec![0; dtype.bytes()];
        let document: Value = json::read(text.as_bytes()).unwrap();
        let number = number(json::at(&document, &path), dtype, "json", &path, &mut out);
        number.map(|()| out).map_err(|problem| problem.to_string())
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
        let odd = format!("{{\"a\": {}{}, \"b\": \"\\ud800\", \"c\": 7}}", "[".repeat(500), "]".repeat(500));
        assert_eq!(json_of(&odd, "c", DType::I64).unwrap(), 7i64.to_le_bytes());
    }
}
