//! The kind `image`: decodes a picture, applies the column's operations and writes the pixels.

use spdl_core::job::{DType, ImageColumn, ImageOp};
use spdl_pixels::{Frame, PictureError, PixelWriter};

use super::{ColumnDecoder, ColumnSample, FieldTarget};
use crate::decode::{cause::BadSampleProblem, draw::Draw, memory::NeverFits, operation};

/// Decodes pictures to pixels of one type and size.
pub(super) struct ImageDecoder {
    ops: Vec<ImageOp>,
    writer: PixelWriter,
}

impl ImageDecoder {
    pub(super) fn new(column: &ImageColumn, dtype: DType) -> Self {
        Self { ops: column.ops.clone(), writer: PixelWriter::new(column, dtype) }
    }
}

impl ColumnDecoder for ImageDecoder {
    fn fields(&self) -> Vec<&str> {
        self.ops.iter().filter_map(ImageOp::field).collect()
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        let ColumnSample { field, content, seed, key, record, resources, scratch } = sample;
        let bytes = content.into_file();
        let (writer, out) = (&self.writer, target.fixed());
        assert_eq!(out.len(), writer.bytes(), "bytes of a picture's place");
        if bytes.is_empty() {
            return Err(BadSampleProblem::Empty { field: field.to_owned() });
        }
        let limits = resources.limits;
        let problem = |error: PictureError| BadSampleProblem::of_picture(error, field, bytes.len(), limits);
        let picture = spdl_pixels::open(&bytes, limits).map_err(problem)?;
        let mut draw = Draw::new(seed, key.epoch, key.id.0);
        let plan = operation::plan(picture.seen(), &self.ops, &mut draw, &mut |field| record.pixel_box(field))?;
        let (Some(x), Some(y)) = (plan.x, plan.y) else {
            writer.blacken(out);
            return Ok(());
        };
        let stored = picture.orientation.stored([x, y], picture.stored);
        let orientation = if plan.mirrored { picture.orientation.mirrored() } else { picture.orientation };
        let left = if plan.mirrored { x.size - x.place - x.pixels } else { x.place };
        let frame = Frame { place: [left, y.place], pixels: [x.pixels, y.pixels], orientation };
        let needed_bytes = picture.memory_bytes(stored, (writer, &frame));
        let _permit = resources.memory.take(needed_bytes).map_err(|NeverFits { max_bytes }| {
            let [width, height] = picture.stored;
            BadSampleProblem::TooMuchMemory { field: field.to_owned(), width, height, needed_bytes, max_bytes }
        })?;
        resources.counts.count(&picture);
        picture
            .render(stored, (writer, &frame), (&mut scratch.picture, resources.memory.kept_bytes()), out)
            .map_err(problem)
    }
}
