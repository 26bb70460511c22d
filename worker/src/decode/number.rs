//! Writes numbers as little-endian bytes of a column's type.

use spdl_core::job::DType;

use super::cause::{BadSampleProblem, quoted};

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

/// Writes a number of a JSON document that field `field` contains.
pub(crate) fn write_number(
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

/// Returns the problem of a number that the column's type cannot hold.
pub(crate) fn out_of_range(field: &str, text: String, dtype: DType) -> BadSampleProblem {
    BadSampleProblem::OutOfRange { field: field.to_owned(), text, dtype: dtype.name() }
}
