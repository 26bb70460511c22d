//! The kind `image_size`: the height and width of the upright picture, or of that in the batch.

use spdl_job::ImageSizeColumn;
use spdl_pixels::{Parts, ScalableHead};
use spdl_types::DType;

use super::{ColumnDecoder, ColumnSample, ColumnSetup, FieldTarget};
use crate::decode::{
    SampleKey, cause::ValueResult, followed::FollowedPicture, number::write_integer, record::SampleRecord,
};

/// Decodes to two whole numbers.
pub(super) struct ImageSizeDecoder {
    dtype: DType,
    picture: FollowedPicture,
    after_ops: bool,
}

impl ImageSizeDecoder {
    pub(super) fn new(column: &ImageSizeColumn, setup: &ColumnSetup<'_>) -> Self {
        let picture = FollowedPicture::new(&column.follows, setup.columns);
        Self { dtype: setup.column.decoded_dtype(), picture, after_ops: column.after_ops }
    }
}

impl ColumnDecoder for ImageSizeDecoder {
    fn picture_parts(&self, _: &ScalableHead<'_>, _: (u64, SampleKey), _: &mut SampleRecord<'_>) -> Option<Parts> {
        Some(Parts::default())
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let planned = self.picture.plan((sample.seed, sample.key), sample.resources.limits, sample.record)?;
        let [width, height] = if self.after_ops { self.picture.size_of_result(&planned.plan) } else { planned.size };
        let places = target.fixed().chunks_exact_mut(self.dtype.bytes());
        for (side, place) in [height, width].into_iter().zip(places) {
            write_integer(side.into(), self.dtype, sample.field, || side.to_string(), place)?;
        }
        Ok(())
    }
}
