//! The kind `tokens`: checks the ids of a text, and converts them from the type that is stored to that of the column.

use bytes::Bytes;
use spdl_job::TokensColumn;
use spdl_sequence::{TokenRange, can_be_ids};
use spdl_shard::format::{Array, Content, FieldValue};
use spdl_types::DType;

use super::{ColumnDecoder, ColumnSample, FieldTarget, tensor::read_numpy_if};
use crate::decode::cause::{BadSampleProblem, ValueResult, reason};

/// Bytes of the widest id that is stored.
const MAX_ID_BYTES: usize = 8;

/// Hands over ids of one type.
pub(super) struct TokensDecoder {
    range: TokenRange,
    max_rows: u32,
}

impl TokensDecoder {
    pub(super) fn new(column: &TokensColumn, dtype: DType) -> Self {
        let max_rows = column.max_rows.expect("a job without sequences has the most ids of a document");
        Self { range: TokenRange::new(dtype, column.vocab), max_rows }
    }

    /// Returns the ids of an array in the column's type, without a copy where it is stored in that type.
    fn ids(&self, Array { dtype: stored, elements, .. }: Array, field: &str) -> Result<Bytes, BadSampleProblem> {
        let ids = if self.range.keeps(stored) {
            self.range.check(stored, &elements).map(|()| elements)
        } else {
            let mut ids = vec![0; elements.len() / stored.bytes() * self.range.dtype().bytes()];
            self.range.copy(stored, &elements, &mut ids).map(|()| ids.into())
        };
        ids.map_err(|wrong| BadSampleProblem::Token { field: field.to_owned(), problem: wrong.to_string() })
    }
}

/// Upper limit of the bytes of a document's tokens in a file.
pub(in crate::decode) const MAX_DOCUMENT_BYTES: usize = 1 << 32;

/// Reads whole numbers in one dimension: an array of a type that `takes` returns true for, a `.npy` file of at most `max_bytes`, or a
/// list without values. `check` gets how many there are.
///
/// # Errors
/// What is wrong with the value, to follow the name of its field.
pub(in crate::decode) fn whole_numbers(
    value: FieldValue,
    max_bytes: usize,
    takes: fn(DType) -> bool,
    check: impl Fn(u64) -> Result<(), String>,
) -> Result<Array, String> {
    let check = |dtype: DType, shape: &[u64]| match shape {
        [numbers] if takes(dtype) => check(*numbers),
        _ => Err(format!("it holds {} {shape:?}, and whole numbers in one dimension are expected", dtype.name())),
    };
    match value {
        FieldValue::One(Content::Array(array)) => check(array.dtype, &array.shape).map(|()| array),
        FieldValue::One(Content::File(file)) if file.is_empty() => Err("it is empty".to_owned()),
        FieldValue::One(Content::File(file)) => read_numpy_if(&file, None, max_bytes, check),
        // A list without values has no type in TFRecord.
        FieldValue::List(files) if files.is_empty() => {
            let none = Array { dtype: DType::I64, shape: vec![0], elements: Bytes::new() };
            check(none.dtype, &none.shape).map(|()| none)
        }
        FieldValue::List(files) => {
            Err(format!("it is a list of {} files or texts, and whole numbers are expected", files.len()))
        }
    }
}

impl ColumnDecoder for TokensDecoder {
    fn decode_value(&self, sample: ColumnSample<'_, '_, FieldValue>, target: &mut FieldTarget<'_>) -> ValueResult {
        let (field, max_rows) = (sample.field, self.max_rows);
        let check = |ids: u64| match ids <= max_rows.into() {
            true => Ok(()),
            false => Err(format!("it holds {ids} ids; `max_rows` is {max_rows}")),
        };
        let array = whole_numbers(sample.content, max_rows as usize * MAX_ID_BYTES, can_be_ids, check);
        let undecodable = |problem| BadSampleProblem::Undecodable { field: field.to_owned(), reason: reason(problem) };
        *target.ragged() = self.ids(array.map_err(undecodable)?, field)?;
        Ok(())
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let (sample, content) = sample.replace(());
        self.decode_value(sample.replace(FieldValue::One(content)).0, target)
    }
}
