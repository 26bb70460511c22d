//! Writes numbers as little-endian bytes of a column's type.

use half::{bf16, f16};
use spdl_types::DType;

use super::cause::{BadSampleProblem, ValueResult, quoted};

/// Writes a whole number that field `field` contains.
pub(crate) fn write_integer(
    value: i64,
    dtype: DType,
    field: &str,
    text: impl FnOnce() -> String,
    out: &mut [u8],
) -> ValueResult {
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
pub(crate) fn write_number(number: &serde_json::Number, dtype: DType, field: &str, out: &mut [u8]) -> ValueResult {
    let text = || quoted(number.to_string().as_bytes());
    match dtype {
        DType::F64 | DType::F32 => match number.as_f64().filter(|value| value.is_finite()) {
            Some(value) => write_float(value, dtype, field, text, out),
            None => Err(out_of_range(field, text(), dtype)),
        },
        _ => match number.as_i64().or_else(|| number.as_f64().and_then(whole)) {
            Some(value) => write_integer(value, dtype, field, text, out),
            None if number.is_u64() || number.as_f64().is_some_and(|value| value.fract() == 0.0) => {
                Err(out_of_range(field, text(), dtype))
            }
            None => Err(BadSampleProblem::NotANumber { field: field.to_owned(), text: text() }),
        },
    }
}

/// Writes a number that field `field` contains as a float. Infinities stay what they are.
pub(crate) fn write_float(
    value: f64,
    dtype: DType,
    field: &str,
    text: impl FnOnce() -> String,
    out: &mut [u8],
) -> ValueResult {
    let narrow = match dtype {
        DType::F64 => {
            out.copy_from_slice(&value.to_le_bytes());
            value
        }
        DType::F32 => {
            out.copy_from_slice(&(value as f32).to_le_bytes());
            f64::from(value as f32)
        }
        DType::F16 => {
            out.copy_from_slice(&f16::from_f64(value).to_le_bytes());
            f16::from_f64(value).to_f64()
        }
        DType::Bf16 => {
            out.copy_from_slice(&bf16::from_f64(value).to_le_bytes());
            bf16::from_f64(value).to_f64()
        }
        _ => unreachable!("a valid job has no float of type {dtype:?}"),
    };
    if value.is_finite() && narrow.is_infinite() { Err(out_of_range(field, text(), dtype)) } else { Ok(()) }
}

/// Returns the number, of any type, whose bytes are `element`.
pub(crate) fn float_of(dtype: DType, element: &[u8]) -> f64 {
    fn read<const N: usize>(element: &[u8]) -> [u8; N] {
        element.try_into().expect("as many bytes as the type has")
    }
    match dtype {
        DType::U8 | DType::Bool => f64::from(element[0]),
        DType::I8 => f64::from(element[0].cast_signed()),
        DType::U16 => f64::from(u16::from_le_bytes(read(element))),
        DType::I16 => f64::from(i16::from_le_bytes(read(element))),
        DType::U32 => f64::from(u32::from_le_bytes(read(element))),
        DType::I32 => f64::from(i32::from_le_bytes(read(element))),
        DType::U64 => u64::from_le_bytes(read(element)) as f64,
        DType::I64 => i64::from_le_bytes(read(element)) as f64,
        DType::F16 => f16::from_le_bytes(read(element)).to_f64(),
        DType::Bf16 => bf16::from_le_bytes(read(element)).to_f64(),
        DType::F32 => f64::from(f32::from_le_bytes(read(element))),
        DType::F64 => f64::from_le_bytes(read(element)),
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
