//! The kind `bytes`: copies the field unchanged. Of a scalable picture it is the file that was packed.

use bytes::Bytes;
use spdl_job::BytesColumn;
use spdl_pixels::{PackedPicture, PictureError};

use super::{ColumnDecoder, ColumnSample, DecodeResources, FieldTarget};
use crate::decode::{
    cause::{BadSampleProblem, ValueResult},
    memory::NeverFits,
};

/// Hands over fields of a bounded length.
pub(super) struct BytesDecoder(pub(super) BytesColumn);

impl ColumnDecoder for BytesDecoder {
    fn max_bytes(&self) -> u32 {
        self.0.max_bytes
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let file = original(sample.field, sample.content.into_file(), sample.resources)?;
        let (bytes, max_bytes) = (file.len(), self.0.max_bytes);
        if bytes > max_bytes as usize {
            return Err(BadSampleProblem::TooLong { field: sample.field.to_owned(), bytes, max_bytes });
        }
        *target.ragged() = file;
        Ok(())
    }
}

/// Returns the file that a field was made of.
fn original(field: &str, file: Bytes, resources: &DecodeResources) -> Result<Bytes, BadSampleProblem> {
    let limits = resources.limits;
    let problem = |error: PictureError| BadSampleProblem::of_picture(error, field, file.len(), limits);
    let Some(packed) = PackedPicture::open(&file, limits).map_err(problem)? else { return Ok(file) };
    let (needed_bytes, [width, height]) = (packed.memory_bytes, packed.size);
    let _permit = resources.memory.take(needed_bytes).map_err(|NeverFits { max_bytes }| {
        BadSampleProblem::TooMuchMemory { field: field.to_owned(), width, height, needed_bytes, max_bytes }
    })?;
    Ok(packed.restore().map_err(problem)?.into())
}
