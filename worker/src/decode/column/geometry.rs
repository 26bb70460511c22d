//! The kind `geometry`: the matrix from places in the result to places in the upright picture.

use spdl_job::GeometryColumn;
use spdl_pixels::{Parts, ScalableHead};
use spdl_types::DType;

use super::{ColumnDecoder, ColumnSample, ColumnSetup, FieldTarget};
use crate::decode::{SampleKey, cause::ValueResult, followed::FollowedPicture, record::SampleRecord};

/// Decodes to matrices of 3x3.
pub(super) struct GeometryDecoder {
    dtype: DType,
    picture: FollowedPicture,
}

impl GeometryDecoder {
    pub(super) fn new(column: &GeometryColumn, setup: &ColumnSetup<'_>) -> Self {
        let picture = FollowedPicture::new(&column.follows, setup.columns);
        Self { dtype: setup.column.decoded_dtype(), picture }
    }
}

impl ColumnDecoder for GeometryDecoder {
    fn picture_parts(&self, _: &ScalableHead<'_>, _: (u64, SampleKey), _: &mut SampleRecord<'_>) -> Option<Parts> {
        Some(Parts::default())
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let matrix =
            self.picture.plan((sample.seed, sample.key), sample.resources.limits, sample.record)?.plan.to_picture();
        let places = target.fixed().chunks_exact_mut(self.dtype.bytes());
        for (factor, place) in matrix.0.as_flattened().iter().zip(places) {
            match self.dtype {
                DType::F64 => place.copy_from_slice(&factor.to_le_bytes()),
                _ => place.copy_from_slice(&(*factor as f32).to_le_bytes()),
            }
        }
        Ok(())
    }
}
