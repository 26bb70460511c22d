//! The kind `text`: copies the field, which has to be UTF-8.

use bytes::Bytes;
use spdl_job::{DefaultValue, TextColumn};

use super::{ColumnDecoder, ColumnSample, FieldTarget, bytes::BytesDecoder};
use crate::decode::cause::{BadSampleProblem, ValueResult};

/// Hands over fields of a bounded length that are UTF-8.
pub(super) struct TextDecoder(BytesDecoder);

impl TextDecoder {
    pub(super) fn new(TextColumn(bytes): &TextColumn) -> Self {
        Self(BytesDecoder(bytes.clone()))
    }
}

impl ColumnDecoder for TextDecoder {
    fn max_bytes(&self) -> u32 {
        self.0.max_bytes()
    }

    fn write_default(&self, default: &DefaultValue, target: &mut FieldTarget<'_>) -> ValueResult {
        let DefaultValue::Text(text) = default else { unreachable!("a valid job has a text, not {default}") };
        *target.ragged() = Bytes::copy_from_slice(text.as_bytes());
        Ok(())
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let field = sample.field;
        self.0.decode(sample, target)?;
        match std::str::from_utf8(target.ragged()) {
            Ok(_) => Ok(()),
            Err(error) => Err(BadSampleProblem::NotText { field: field.to_owned(), byte: error.valid_up_to() }),
        }
    }
}
