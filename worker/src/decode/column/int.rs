//! The kind `int`: a decimal integer in text, or a number in a `.npy` file, as formats with numbers give it.

use serde_json::Value;
use spdl_job::DefaultValue;
use spdl_shard::format::{Array, Content};
use spdl_types::DType;

use super::{
    ColumnDecoder, ColumnSample, ColumnSetup, DecoderError, FieldTarget, listed::ListedClasses, read_numpy,
    tensor::NPY_MAGIC,
};
use crate::decode::{
    cause::{BadSampleProblem, ValueResult, quoted, reason},
    document::plain_value,
    number::{out_of_range, write_integer, write_number},
};

/// Maximum bytes of an array that is read as a number; a larger one has too many elements.
const MAX_ARRAY_BYTES: usize = 4096;

/// Decodes to integers of one type.
pub(super) struct IntDecoder {
    dtype: DType,
    /// The classes that the integers are numbers of, if the column lists them.
    listed: Option<ListedClasses>,
}

impl IntDecoder {
    pub(super) fn new(setup: &ColumnSetup<'_>) -> Result<Self, DecoderError> {
        Ok(Self { dtype: setup.column.decoded_dtype(), listed: ListedClasses::new(setup)? })
    }

    /// Writes the number of a class, as the column numbers it.
    fn write_class(&self, listed: &ListedClasses, class: i64, field: &str, out: &mut [u8]) -> ValueResult {
        let number = listed.of_field(class, field)?;
        write_integer(number, self.dtype, field, || number.to_string(), out)
    }
}

impl ColumnDecoder for IntDecoder {
    fn takes_numbers(&self) -> bool {
        true
    }

    fn number(&self, dtype: DType, element: &[u8], target: &mut FieldTarget<'_>) -> bool {
        let Some(Ok(value)) = whole(dtype, element) else { return false };
        let value = match &self.listed {
            None => value,
            Some(listed) => match listed.get(value) {
                Some(number) => number,
                None => return false,
            },
        };
        write_integer(value, self.dtype, "", String::new, target.fixed()).is_ok()
    }

    fn copies_numbers(&self, dtype: DType) -> bool {
        dtype == self.dtype && self.listed.is_none()
    }

    fn write_default(&self, default: &DefaultValue, target: &mut FieldTarget<'_>) -> ValueResult {
        let (field, out) = ("default", target.fixed());
        match (default, &self.listed) {
            (DefaultValue::Number(number), _) => int(number.as_bytes(), self.dtype, field, out),
            (DefaultValue::Text(name), Some(listed)) => {
                let number =
                    listed.called(name).ok_or_else(|| BadSampleProblem::name_unknown(field, name.as_bytes()))?;
                write_integer(number, self.dtype, field, || number.to_string(), out)
            }
            _ => unreachable!("a valid job has a number as default, not {default}"),
        }
    }

    fn decode_json(
        &self,
        sample: ColumnSample<'_, '_, Option<&Value>>,
        path: &[String],
        target: &mut FieldTarget<'_>,
    ) -> ValueResult {
        let (field, out) = (sample.field, target.fixed());
        match (sample.content, &self.listed) {
            (Some(Value::Number(number)), None) => write_number(number, self.dtype, field, out),
            (Some(Value::Number(number)), Some(listed)) => {
                let mut class = [0; 8];
                write_number(number, DType::I64, field, &mut class)?;
                self.write_class(listed, i64::from_le_bytes(class), field, out)
            }
            _ => {
                let value = plain_value(sample.content, field, path)?;
                self.decode(sample.replace(value).0, target)
            }
        }
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let (field, out) = (sample.field, target.fixed());
        let content = array_or_text(sample.content, field)?;
        match (&self.listed, content) {
            (Some(listed), content) => self.write_class(listed, whole_number(&content, field)?, field, out),
            (None, Content::Array(array)) => number(&array, self.dtype, field, out),
            (None, Content::File(text)) => int(&text, self.dtype, field, out),
        }
    }
}

/// Returns the whole number that a field holds.
pub(super) fn whole_number(content: &Content, field: &str) -> Result<i64, BadSampleProblem> {
    let mut out = [0; 8];
    match content {
        Content::Array(array) => number(array, DType::I64, field, &mut out)?,
        Content::File(text) => int(text, DType::I64, field, &mut out)?,
    }
    Ok(i64::from_le_bytes(out))
}

/// Returns the array that a field has, also as a `.npy` file; otherwise the file, which is text.
pub(super) fn array_or_text(content: Content, field: &str) -> Result<Content, BadSampleProblem> {
    match content {
        Content::File(file) if file.starts_with(NPY_MAGIC) => {
            let array = read_numpy(&file, None, MAX_ARRAY_BYTES);
            array.map(Content::Array).map_err(|problem| undecodable(field, problem))
        }
        content => Ok(content),
    }
}

/// Checks that an array has one element.
pub(super) fn check_one_number(array: &Array, field: &str) -> ValueResult {
    if array.elements.len() == array.dtype.bytes() { Ok(()) } else { Err(holds(array, "one number", field)) }
}

/// Returns the problem of an array that is not what the column expects.
fn holds(Array { dtype, shape, .. }: &Array, expected: &str, field: &str) -> BadSampleProblem {
    undecodable(field, format!("it holds {} {shape:?}, and the column expects {expected}", dtype.name()))
}

fn undecodable(field: &str, problem: String) -> BadSampleProblem {
    BadSampleProblem::Undecodable { field: field.to_owned(), reason: reason(problem) }
}

/// Reads the only element of an array of whole numbers.
fn number(array: &Array, dtype: DType, field: &str, out: &mut [u8]) -> ValueResult {
    check_one_number(array, field)?;
    match whole(array.dtype, &array.elements) {
        Some(Ok(value)) => write_integer(value, dtype, field, || value.to_string(), out),
        Some(Err(unsigned)) => Err(out_of_range(field, unsigned.to_string(), dtype)),
        None => Err(holds(array, "a whole number", field)),
    }
}

/// Returns a whole number, or the error that has one beyond the range; `None` if numbers of this type have a fraction.
pub(super) fn whole(dtype: DType, element: &[u8]) -> Option<Result<i64, u64>> {
    let mut wide = [0; 8];
    wide[..element.len()].copy_from_slice(element);
    // The bytes of the number's own width, little-endian, with its sign in front.
    let shift = 64 - 8 * element.len() as u32;
    let unsigned = u64::from_le_bytes(wide);
    let signed = (unsigned << shift).cast_signed() >> shift;
    match dtype {
        DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool => {
            Some(i64::try_from(unsigned).map_err(|_| unsigned))
        }
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => Some(Ok(signed)),
        DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => None,
    }
}

/// Parses a decimal integer from text, which may have white space around it.
pub(super) fn int(bytes: &[u8], dtype: DType, field: &str, out: &mut [u8]) -> ValueResult {
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
    use bytes::Bytes;

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

    fn npy(descr: &str, shape: &str, elements: &[u8]) -> Bytes {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (header.len() as u16).to_le_bytes();
        [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), elements].concat().into()
    }

    #[test]
    fn whole_numbers_in_arrays_of_one_element() {
        let of = |descr, shape, elements: &[u8]| {
            let mut out = vec![0; 8];
            let array = read_numpy(&npy(descr, shape, elements), None, MAX_ARRAY_BYTES);
            array
                .map_err(|problem| undecodable("n", problem))
                .and_then(|array| number(&array, DType::I64, "n", &mut out))
                .map(|()| i64::from_le_bytes(out.try_into().unwrap()))
                .map_err(|problem| problem.to_string())
        };
        assert_eq!(of("<i8", "()", &i64::MIN.to_le_bytes()), Ok(i64::MIN));
        assert_eq!(of("|i1", "(1, 1)", &[0x80]), Ok(-128));
        assert_eq!(of("|u1", "(1,)", &[0x80]), Ok(128));
        assert_eq!(of("<i2", "()", &(-2_i16).to_le_bytes()), Ok(-2));
        assert_eq!(of(">u4", "()", &7_u32.to_be_bytes()), Ok(7));
        assert!(of("<u8", "()", &[255; 8]).unwrap_err().contains("\"18446744073709551615\", outside the range of i64"));
        assert!(of("<f4", "()", &[0; 4]).unwrap_err().contains("holds f32 [], and the column expects a whole number"));
        assert!(of("<i4", "(2,)", &[0; 8]).unwrap_err().contains("holds i32 [2], and the column expects one number"));
        assert!(of("<i4", "(0,)", &[]).unwrap_err().contains("expects one number"));
        assert!(of("<i4", "(9999999999,)", &[]).unwrap_err().contains("more than 4096 bytes"));
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
