//! The kind `float`: a number of any numeric type as formats give it or in a `.npy` file, or a decimal number in text.

use spdl_job::DefaultValue;
use spdl_shard::format::Content;
use spdl_types::DType;

use super::{
    ColumnDecoder, ColumnSample, FieldTarget,
    int::{array_or_text, check_one_number},
};
use crate::decode::{
    cause::{BadSampleProblem, ValueResult, quoted},
    number::{float_of, out_of_range, write_float},
};

/// Decodes to floats of this type.
pub(super) struct FloatDecoder(pub(super) DType);

impl ColumnDecoder for FloatDecoder {
    fn takes_numbers(&self) -> bool {
        true
    }

    fn number(&self, dtype: DType, element: &[u8], target: &mut FieldTarget<'_>) -> bool {
        write_float(float_of(dtype, element), self.0, "", String::new, target.fixed()).is_ok()
    }

    fn write_default(&self, default: &DefaultValue, target: &mut FieldTarget<'_>) -> ValueResult {
        let DefaultValue::Number(number) = default else { unreachable!("a valid job has a number, not {default}") };
        float(number.as_bytes(), self.0, "default", target.fixed())
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let (field, out) = (sample.field, target.fixed());
        match array_or_text(sample.content, field)? {
            Content::Array(array) => {
                check_one_number(&array, field)?;
                let value = float_of(array.dtype, &array.elements);
                write_float(value, self.0, field, || value.to_string(), out)
            }
            Content::File(text) => float(&text, self.0, field, out),
        }
    }
}

/// Parses a number from text, which may have white space around it.
pub(super) fn float(bytes: &[u8], dtype: DType, field: &str, out: &mut [u8]) -> ValueResult {
    let text = std::str::from_utf8(bytes.trim_ascii()).ok();
    let Some(value) = text.and_then(|text| text.parse::<f64>().ok()) else {
        return Err(BadSampleProblem::NotAFloat { field: field.to_owned(), text: quoted(bytes) });
    };
    let has_digits = bytes.iter().any(u8::is_ascii_digit);
    if value.is_infinite() && has_digits {
        return Err(out_of_range(field, quoted(bytes), DType::F64));
    }
    write_float(value, dtype, field, || quoted(bytes), out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_text(text: &str, dtype: DType) -> Result<Vec<u8>, String> {
        let mut out = vec![0; dtype.bytes()];
        float(text.as_bytes(), dtype, "score", &mut out).map(|()| out).map_err(|problem| problem.to_string())
    }

    #[test]
    fn numbers_in_text() {
        assert_eq!(of_text(" 0.25\n", DType::F32).unwrap(), 0.25_f32.to_le_bytes());
        assert_eq!(of_text("-1e-3", DType::F64).unwrap(), (-1e-3_f64).to_le_bytes());
        assert_eq!(of_text("7", DType::F64).unwrap(), 7.0_f64.to_le_bytes());
        assert_eq!(of_text("inf", DType::F32).unwrap(), f32::INFINITY.to_le_bytes());
        assert!(f32::from_le_bytes(of_text("NaN", DType::F32).unwrap().try_into().unwrap()).is_nan());
        for (text, dtype, expected) in [
            ("cat", DType::F32, "field `score` is \"cat\", not a number"),
            ("", DType::F32, "not a number"),
            ("1 2", DType::F32, "not a number"),
            ("1,5", DType::F32, "not a number"),
            ("1e300", DType::F32, "\"1e300\", outside the range of f32"),
            ("1e999", DType::F64, "outside the range of f64"),
            ("1e5", DType::F16, "outside the range of f16"),
        ] {
            let error = of_text(text, dtype).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_of_every_type() {
        for (dtype, element, expected) in [
            (DType::U8, vec![200], 200.0),
            (DType::I8, vec![200], -56.0),
            (DType::Bool, vec![1], 1.0),
            (DType::I16, (-300_i16).to_le_bytes().to_vec(), -300.0),
            (DType::U64, u64::MAX.to_le_bytes().to_vec(), u64::MAX as f64),
            (DType::I64, i64::MIN.to_le_bytes().to_vec(), i64::MIN as f64),
            (DType::F16, half::f16::from_f32(1.5).to_le_bytes().to_vec(), 1.5),
            (DType::Bf16, half::bf16::from_f32(-2.5).to_le_bytes().to_vec(), -2.5),
            (DType::F32, 0.125_f32.to_le_bytes().to_vec(), 0.125),
            (DType::F64, 1e300_f64.to_le_bytes().to_vec(), 1e300),
        ] {
            let mut out = [0; 8];
            assert!(FloatDecoder(DType::F64).number(dtype, &element, &mut FieldTarget::Fixed(&mut out)), "{dtype:?}");
            assert_eq!(f64::from_le_bytes(out), expected, "{dtype:?}");
        }
        let too_large = 1e300_f64.to_le_bytes();
        assert!(!FloatDecoder(DType::F32).number(DType::F64, &too_large, &mut FieldTarget::Fixed(&mut [0; 4])));
    }
}
