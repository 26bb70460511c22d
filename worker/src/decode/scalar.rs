//! Decodes numbers from decimal text and from JSON documents, into little-endian bytes of the column's type.

use serde_json::Value;
use spdl_core::job::DType;

use super::cause::{BadSampleProblem, quoted, reason};

/// Writes a whole number that field `field` contains.
pub(crate) fn write_integer(
    value: i64,
    dtype: DType,
    field: &str,
    text: impl FnOnce() -> String,
    out: &mut [u8],
) -> Result<(), BadSampleProblem> {
    match dtype {
        DType::I64 => out.copy_from_slice(&value.to_le_bytes()),
        DType::I32 => match i32::try_from(value) {
            Ok(value) => out.copy_from_slice(&value.to_le_bytes()),
            Err(_) => return Err(out_of_range(field, text(), dtype)),
        },
        _ => unreachable!("a valid job has no whole number of type {dtype:?}"),
    }
    Ok(())
}

/// Parses a decimal integer from text, which may have white space around it.
pub(crate) fn int(bytes: &[u8], dtype: DType, field: &str, out: &mut [u8]) -> Result<(), BadSampleProblem> {
    let text = bytes.trim_ascii();
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(BadSampleProblem::NotANumber { field: field.to_owned(), text: quoted(bytes) });
    }
    match std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
        Some(value) => write_integer(value, dtype, field, || quoted(text), out),
        None => Err(out_of_range(field, quoted(text), dtype)),
    }
}

/// Parses the number at `path` of a JSON document.
pub(crate) fn json(
    bytes: &[u8],
    path: &[String],
    dtype: DType,
    field: &str,
    out: &mut [u8],
) -> Result<(), BadSampleProblem> {
    let document: Value = serde_json::from_slice(bytes)
        .map_err(|error| BadSampleProblem::NotJson { field: field.to_owned(), reason: reason(error) })?;
    let mut place = Some(&document);
    for key in path {
        place = match place {
            Some(Value::Object(members)) => members.get(key),
            Some(Value::Array(items)) => key.parse().ok().and_then(|index: usize| items.get(index)),
            _ => None,
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

fn write_number(
    number: &serde_json::Number,
    dtype: DType,
    field: &str,
    out: &mut [u8],
) -> Result<(), BadSampleProblem> {
    let text = || quoted(number.to_string().as_bytes());
    match dtype {
        DType::F64 | DType::F32 => {
            let value = number.as_f64().unwrap_or(f64::INFINITY);
            let narrow = value as f32;
            if !value.is_finite() || (dtype == DType::F32 && !narrow.is_finite()) {
                return Err(out_of_range(field, text(), dtype));
            }
            if dtype == DType::F64 {
                out.copy_from_slice(&value.to_le_bytes());
            } else {
                out.copy_from_slice(&narrow.to_le_bytes());
            }
            Ok(())
        }
        _ => match number.as_i64().or_else(|| number.as_f64().and_then(whole)) {
            Some(value) => write_integer(value, dtype, field, text, out),
            None if number.is_u64() || number.as_f64().is_some_and(|value| value.fract() == 0.0) => {
                Err(out_of_range(field, text(), dtype))
            }
            None => Err(BadSampleProblem::NotANumber { field: field.to_owned(), text: text() }),
        },
    }
}

/// Returns a float as an integer if it is a whole number that `f64` represents exactly, such as `3.0` or `1e6`.
fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() <= (1u64 << 53) as f64).then_some(value as i64)
}

fn out_of_range(field: &str, text: String, dtype: DType) -> BadSampleProblem {
    BadSampleProblem::OutOfRange { field: field.to_owned(), text, dtype: dtype.name() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int_of(text: &str, dtype: DType) -> Result<Vec<u8>, String> {
        let mut out = vec![0; dtype.bytes()];
        int(text.as_bytes(), dtype, "cls", &mut out).map(|()| out).map_err(|problem| problem.to_string())
    }

    fn json_of(text: &str, path: &str, dtype: DType) -> Result<Vec<u8>, String> {
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        let mut out = vec![0; dtype.bytes()];
        json(text.as_bytes(), &path, dtype, "json", &mut out).map(|()| out).map_err(|problem| problem.to_string())
    }

    #[test]
    fn whole_numbers_in_text() {
        assert_eq!(int_of("42\n", DType::I64).unwrap(), 42i64.to_le_bytes());
        assert_eq!(int_of(" -7 ", DType::I32).unwrap(), (-7i32).to_le_bytes());
        assert_eq!(int_of("+0007", DType::I64).unwrap(), 7i64.to_le_bytes());
        assert_eq!(int_of("-9223372036854775808", DType::I64).unwrap(), i64::MIN.to_le_bytes());
    }

    #[test]
    fn text_that_is_no_number_is_quoted() {
        for (text, dtype, expected) in [
            ("cat", DType::I64, "field `cls` is \"cat\", not a whole number"),
            ("", DType::I64, "field `cls` is \"\", not a whole number"),
            ("-", DType::I64, "not a whole number"),
            ("1.5", DType::I64, "\"1.5\", not a whole number"),
            ("1 2", DType::I64, "not a whole number"),
            ("9223372036854775808", DType::I64, "outside the range of i64"),
            ("2147483648", DType::I32, "\"2147483648\", outside the range of i32"),
        ] {
            let error = int_of(text, dtype).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(int_of(&"9".repeat(100_000), DType::I64).unwrap_err().len() < 120);
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
        assert!(json_of("{\"a\": 1e300}", "a", DType::F32).unwrap_err().contains("outside the range of f32"));
        assert!(json_of("{\"a\": 1e300}", "a", DType::I64).unwrap_err().contains("outside the range of i64"));
        assert!(json_of("{\"a\": ", "a", DType::F32).unwrap_err().contains("is not JSON: EOF"));
        assert!(json_of(&"[".repeat(100_000), "a", DType::F32).unwrap_err().contains("not JSON: recursion limit"));
    }
}
