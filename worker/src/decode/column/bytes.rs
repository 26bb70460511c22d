//! The kind `bytes`: copies the field unchanged.

use spdl_core::job::BytesColumn;

use super::{ColumnDecoder, ColumnSample, FieldTarget};
use crate::decode::cause::BadSampleProblem;

/// Hands over fields of a bounded length.
pub(super) struct BytesDecoder(pub(super) BytesColumn);

impl ColumnDecoder for BytesDecoder {
    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        let file = sample.content.into_file();
        let (bytes, max_bytes) = (file.len(), self.0.max_bytes);
        if bytes > max_bytes as usize {
            return Err(BadSampleProblem::TooLong { field: sample.field.to_owned(), bytes, max_bytes });
        }
        *target.ragged() = file;
        Ok(())
    }
}
