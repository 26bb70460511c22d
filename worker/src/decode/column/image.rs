//! The kind `image`: decodes a picture, applies the column's operations and writes the pixels.

use spdl_core::job::{ImageColor, ImageColumn};
use spdl_pixels::{Frame, Orientation, PictureError, PixelWriter, make_gray};

use super::{ColumnDecoder, ColumnSample, ColumnSetup, DecodeScratch, FieldTarget};
use crate::decode::{cause::BadSampleProblem, followed::FollowedPicture, memory::NeverFits, operation::PicturePlan};

/// Decodes pictures to pixels of one type and size.
pub(super) struct ImageDecoder {
    picture: FollowedPicture,
    /// Writes each of the pictures of a sample.
    writer: PixelWriter,
    pictures: u32,
    /// Whether operations work on the grey picture.
    is_gray: bool,
    /// The colour that shows through transparent pixels.
    background: Option<[u8; 3]>,
}

impl ImageDecoder {
    pub(super) fn new(column: &ImageColumn, setup: &ColumnSetup<'_>) -> Self {
        let writer = PixelWriter::new(column, setup.column.decoded_dtype());
        let picture = FollowedPicture::of(setup.number, setup.column, &column.ops);
        let (is_gray, background) = (column.color == ImageColor::Gray, column.background.map(|fill| fill.0));
        Self { picture, writer, pictures: column.pictures(), is_gray, background }
    }
}

impl ColumnDecoder for ImageDecoder {
    fn fields(&self) -> Vec<&str> {
        self.picture.fields().collect()
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        let ColumnSample { field, content, seed, key, record, resources, scratch } = sample;
        let bytes = content.into_file();
        let (writer, out) = (&self.writer, target.fixed());
        assert_eq!(out.len(), writer.bytes() * self.pictures as usize, "bytes of a sample's place");
        if bytes.is_empty() {
            return Err(BadSampleProblem::Empty { field: field.to_owned() });
        }
        let limits = resources.limits;
        let problem = |error: PictureError| BadSampleProblem::of_picture(error, field, bytes.len(), limits);
        let picture = spdl_pixels::open(&bytes, limits).map_err(problem)?.on(self.background);
        let followed = self.picture.plan_of_size(picture.seen(), (seed, key), record)?;
        let plan = &followed.plan;
        let too_much = |needed_bytes: u64, NeverFits { max_bytes }| {
            let [width, height] = picture.stored;
            BadSampleProblem::TooMuchMemory { field: field.to_owned(), width, height, needed_bytes, max_bytes }
        };
        let PicturePlan { decode, then, .. } = plan;
        if then.is_empty() {
            let Some((stored, frame)) = decode.frame(picture.orientation, picture.stored) else {
                writer.blacken(out);
                return Ok(());
            };
            let needed_bytes = picture.memory_bytes(stored, (writer, &frame));
            let _permit = resources.memory.take(needed_bytes).map_err(|never| too_much(needed_bytes, never))?;
            resources.counts.count(&picture);
            let scratch = (&mut scratch.picture, resources.memory.kept_bytes());
            return picture.render(stored, (writer, &frame), scratch, out).map_err(problem);
        }
        if let Some([width, height]) = plan.too_large(limits.pixels) {
            let pixels = limits.pixels;
            return Err(BadSampleProblem::GrowsTooLarge { field: field.to_owned(), width, height, pixels });
        }
        let rgb_writer = PixelWriter::of_rgb(decode.size);
        let visible = decode.frame(picture.orientation, picture.stored);
        let decode_bytes = visible.map_or(0, |(stored, frame)| picture.memory_bytes(stored, (&rgb_writer, &frame)));
        let needed_bytes = decode_bytes + spdl_operations::memory_bytes(decode.size, then);
        let _permit = resources.memory.take(needed_bytes).map_err(|never| too_much(needed_bytes, never))?;
        resources.counts.count(&picture);
        let DecodeScratch { picture: picture_scratch, rgb, operation, .. } = scratch;
        let kept_bytes = resources.memory.kept_bytes();
        rgb.size = decode.size;
        let pixels = rgb.pixels.to_mut();
        pixels.resize(rgb_writer.bytes(), 0);
        match visible {
            Some((stored, frame)) => {
                let scratch = (picture_scratch, kept_bytes);
                picture.render(stored, (&rgb_writer, &frame), scratch, pixels).map_err(problem)?;
            }
            None => pixels.fill(0),
        }
        if self.is_gray {
            make_gray(rgb.pixels.to_mut());
        }
        spdl_operations::run(then, rgb, operation);
        // Several pictures lie one below the other.
        let [width, height] = [rgb.size[0], rgb.size[1] / self.pictures];
        let frame = Frame { place: [0, 0], pixels: [width, height], orientation: Orientation::default() };
        let each = rgb.pixels.chunks_exact(width as usize * height as usize * 3);
        for (pixels, out) in each.zip(out.chunks_exact_mut(writer.bytes())) {
            writer.write(pixels, &frame, out);
        }
        rgb.shrink_to(kept_bytes);
        operation.shrink_to(kept_bytes);
        Ok(())
    }
}
