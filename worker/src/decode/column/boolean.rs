//! The kind `bool`: 0 or 1 as a number of any type, as formats give it or in a `.npy` file, or a word in text.

use spdl_job::DefaultValue;
use spdl_shard::format::Content;
use spdl_types::DType;

use super::{
    ColumnDecoder, ColumnSample, FieldTarget,
    int::{array_or_text, check_one_number},
};
use crate::decode::{
    cause::{BadSampleProblem, ValueResult, quoted},
    number::float_of,
};

/// Decodes to one byte, 0 or 1.
pub(super) struct BoolDecoder;

impl ColumnDecoder for BoolDecoder {
    fn takes_numbers(&self) -> bool {
        true
    }

    fn number(&self, dtype: DType, element: &[u8], target: &mut FieldTarget<'_>) -> bool {
        let Some(value) = of_number(float_of(dtype, element)) else { return false };
        target.fixed()[0] = value.into();
        true
    }

    fn write_default(&self, default: &DefaultValue, target: &mut FieldTarget<'_>) -> ValueResult {
        target.fixed()[0] = (*default == DefaultValue::Bool(true)).into();
        Ok(())
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let field = sample.field;
        let problem = |text: String| BadSampleProblem::NotABool { field: field.to_owned(), text };
        let value = match array_or_text(sample.content, field)? {
            Content::Array(array) => {
                check_one_number(&array, field)?;
                let number = float_of(array.dtype, &array.elements);
                of_number(number).ok_or_else(|| problem(number.to_string()))?
            }
            Content::File(text) => of_text(&text).ok_or_else(|| problem(quoted(&text)))?,
        };
        target.fixed()[0] = value.into();
        Ok(())
    }
}

fn of_number(number: f64) -> Option<bool> {
    if number == 1.0 { Some(true) } else { (number == 0.0).then_some(false) }
}

/// Parses text, which may have white space around it and capital letters.
fn of_text(text: &[u8]) -> Option<bool> {
    let is = |word: &[u8]| text.trim_ascii().eq_ignore_ascii_case(word);
    if is(b"true") || is(b"1") { Some(true) } else { (is(b"false") || is(b"0")).then_some(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_digits_in_text() {
        for (text, expected) in [
            ("true", Some(true)),
            (" True\n", Some(true)),
            ("1", Some(true)),
            ("FALSE", Some(false)),
            ("0\n", Some(false)),
            ("", None),
            ("yes", None),
            ("2", None),
            ("1.0", None),
            ("truely", None),
        ] {
            assert_eq!(of_text(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn numbers_of_every_type_are_0_or_1() {
        for (dtype, element, expected) in [
            (DType::Bool, vec![1], Some(1)),
            (DType::U8, vec![0], Some(0)),
            (DType::I64, 1_i64.to_le_bytes().to_vec(), Some(1)),
            (DType::F32, 0.0_f32.to_le_bytes().to_vec(), Some(0)),
            (DType::F64, 1.0_f64.to_le_bytes().to_vec(), Some(1)),
            (DType::Bool, vec![2], None),
            (DType::I8, vec![0xff], None),
            (DType::U64, u64::MAX.to_le_bytes().to_vec(), None),
            (DType::F32, 0.5_f32.to_le_bytes().to_vec(), None),
            (DType::F32, f32::NAN.to_le_bytes().to_vec(), None),
        ] {
            let mut out = [7];
            let fits = BoolDecoder.number(dtype, &element, &mut FieldTarget::Fixed(&mut out));
            assert_eq!((fits, out[0]), (expected.is_some(), expected.unwrap_or(7)), "{dtype:?} {element:?}");
        }
    }
}
