//! The kind `int`: parses a decimal integer in text.

use spdl_core::job::DType;

use super::{ColumnDecoder, ColumnSample, FieldTarget};
use crate::decode::{
    cause::{BadSampleProblem, quoted},
    number::{out_of_range, write_integer},
};

/// Decodes to integers of this type.
pub(super) struct IntDecoder(pub(super) DType);

impl ColumnDecoder for IntDecoder {
    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        int(&sample.bytes, self.0, sample.field, target.fixed())
    }
}

/// Parses a decimal integer from text, which may have white space around it.
fn int(bytes: &[u8], dtype: DType, field: &str, out: &mut [u8]) -> Result<(), BadSampleProblem> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn int_of(text: &str, dtype: DType) -> Result<Vec<u8>, String> {
        let mut out = vec![0; dtype.bytes()];
        int(text.as_bytes(), dtype, "cls", &mut out).map(|()| out).map_err(|problem| problem.to_string())
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
}
