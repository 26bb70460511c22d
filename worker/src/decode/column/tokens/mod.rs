//! The kind `tokens`: checks the ids of a text, and converts them from the type that is stored to that of the column.

mod copy;

use bytes::Bytes;
use spdl_job::TokensColumn;
use spdl_shard::format::{Array, Content, FieldValue};
use spdl_types::DType;

use super::{ColumnDecoder, ColumnSample, FieldTarget, tensor::read_numpy_if};
use crate::decode::cause::{BadSampleProblem, reason};
pub(in crate::decode) use copy::{TokenRange, can_be_ids};

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

    /// Checks that an array of this type and shape can be the ids of a text.
    fn check(&self, dtype: DType, shape: &[u64]) -> Result<(), String> {
        match shape {
            [ids] if can_be_ids(dtype) && *ids <= self.max_rows.into() => Ok(()),
            [ids] if can_be_ids(dtype) => Err(format!("it holds {ids} ids; `max_rows` is {}", self.max_rows)),
            _ => Err(format!(
                "it holds {} {shape:?}, and the column expects whole numbers in one dimension",
                dtype.name()
            )),
        }
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

impl ColumnDecoder for TokensDecoder {
    fn decode_value(
        &self,
        sample: ColumnSample<'_, '_, FieldValue>,
        target: &mut FieldTarget<'_>,
    ) -> Result<(), BadSampleProblem> {
        let (sample, value) = sample.replace(());
        match value {
            FieldValue::One(content) => self.decode(sample.replace(content).0, target),
            // A list without values has no type in TFRecord.
            FieldValue::List(files) if files.is_empty() => {
                *target.ragged() = Bytes::new();
                Ok(())
            }
            FieldValue::List(files) => Err(undecodable(
                sample.field,
                format!("it is a list of {} files or texts, and the column expects whole numbers", files.len()),
            )),
        }
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        let field = sample.field;
        let array = match sample.content {
            Content::Array(array) => self.check(array.dtype, &array.shape).map(|()| array),
            Content::File(file) if file.is_empty() => return Err(BadSampleProblem::Empty { field: field.to_owned() }),
            Content::File(file) => {
                let max_bytes = self.max_rows as usize * MAX_ID_BYTES;
                read_numpy_if(&file, None, max_bytes, |dtype, shape| self.check(dtype, shape))
            }
        };
        *target.ragged() = self.ids(array.map_err(|problem| undecodable(field, problem))?, field)?;
        Ok(())
    }
}

fn undecodable(field: &str, problem: String) -> BadSampleProblem {
    BadSampleProblem::Undecodable { field: field.to_owned(), reason: reason(problem) }
}
