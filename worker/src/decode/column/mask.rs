//! The kind `mask`: decodes the class of each pixel, and moves the classes as the picture's pixels are moved.

use spdl_job::MaskColumn;
use spdl_operations::index_memory_bytes;
use spdl_pixels::{IndexPng, PictureError};
use spdl_types::DType;

use super::{ColumnDecoder, ColumnSample, ColumnSetup, FieldTarget};
use crate::decode::{
    cause::{BadSampleProblem, ValueResult},
    followed::FollowedPicture,
    memory::NeverFits,
};

/// Decodes masks to numbers of one type.
pub(super) struct MaskDecoder {
    dtype: DType,
    ignore_index: u16,
    picture: FollowedPicture,
}

impl MaskDecoder {
    pub(super) fn new(column: &MaskColumn, setup: &ColumnSetup<'_>) -> Self {
        let picture = FollowedPicture::new(&column.follows, setup.columns);
        Self { dtype: setup.column.decoded_dtype(), ignore_index: column.ignore_index, picture }
    }
}

impl ColumnDecoder for MaskDecoder {
    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let ColumnSample { field, content, seed, key, record, resources, scratch } = sample;
        let bytes = content.into_file();
        if bytes.is_empty() {
            return Err(BadSampleProblem::Empty { field: field.to_owned() });
        }
        let limits = resources.limits;
        let followed = self.picture.plan((seed, key), limits, record)?;
        let problem = |error: PictureError| BadSampleProblem::of_picture(error, field, bytes.len(), limits);
        let png = IndexPng::open(&bytes, limits).map_err(problem)?;
        let [width, height] = png.size;
        if png.size != followed.size {
            let [picture_width, picture_height] = followed.size;
            return Err(BadSampleProblem::MaskSize {
                field: field.to_owned(),
                width,
                height,
                picture_width,
                picture_height,
            });
        }
        let plan = &followed.plan;
        let needed_bytes = png.memory_bytes() + index_memory_bytes(png.size, &plan.decode, &plan.then);
        let _permit = resources.memory.take(needed_bytes).map_err(|NeverFits { max_bytes }| {
            BadSampleProblem::TooMuchMemory { field: field.to_owned(), width, height, needed_bytes, max_bytes }
        })?;
        let indices = &mut scratch.indices;
        (indices.size, indices.beyond) = (png.size, self.ignore_index);
        let greatest = png.decode(&mut indices.values).map_err(problem)?;
        if self.dtype == DType::U8 && greatest > 255 {
            let text = greatest.to_string();
            return Err(BadSampleProblem::OutOfRange { field: field.to_owned(), text, dtype: self.dtype.name() });
        }
        indices.resample(&plan.decode);
        indices.run(&plan.then);
        self.write(&indices.values, target.fixed());
        indices.shrink_to(resources.memory.kept_bytes());
        Ok(())
    }
}

impl MaskDecoder {
    fn write(&self, values: &[u16], out: &mut [u8]) {
        assert_eq!(out.len(), values.len() * self.dtype.bytes(), "bytes of a mask's place");
        if self.dtype == DType::U8 {
            out.iter_mut().zip(values).for_each(|(byte, value)| *byte = *value as u8);
        } else {
            let places = out.as_chunks_mut().0;
            places.iter_mut().zip(values).for_each(|(place, value)| *place = value.to_le_bytes());
        }
    }
}
