//! The kind `image`: decodes a picture, applies the column's operations and writes the pixels.

use std::rc::Rc;

use bytes::Bytes;
use spdl_canvas::AxisSpan;
use spdl_job::{ImageColumn, PicturePlan};
use spdl_operations::{channel_memory_bytes, run_on_channels, without_colors};
use spdl_pixels::{
    ChannelFormat, ChannelPicture, ChannelWriter, Frame, OpenPicture, Orientation, Parts, PictureError, PictureSpec,
    PixelWriter, ScalableHead, make_gray, of_rgb, of_rgb_memory_bytes,
};
use spdl_types::{DType, ImageColor, ImageDepth};

use super::{ColumnDecoder, ColumnSample, ColumnSetup, DecodeResources, DecodeScratch, FieldTarget};
use crate::decode::{
    SampleKey,
    cause::{BadSampleProblem, ValueResult},
    followed::FollowedPicture,
    memory::{MemoryPermit, NeverFits},
    record::{FollowedPlan, SampleRecord},
    still::open_picture,
};

/// Decodes pictures to pixels of one type, and of one size if the column is not ragged.
pub(super) struct ImageColumnDecoder {
    picture: FollowedPicture,
    pictures: u32,
    /// The colour that shows through transparent pixels.
    background: Option<[u8; 3]>,
    writers: PictureWriters,
    /// How writers are made for a picture, if pictures differ in size.
    ragged: Option<(ImageColumn, DType)>,
}

/// What writes the pictures of one size.
struct PictureWriters {
    pixels: PictureWriter,
    /// Writes pictures of more than 8 bits with their depth, if the column keeps it and `pixels` does not.
    deep: Option<ChannelWriter>,
}

/// How pictures become pixels, and what writes each of the pictures of a sample.
enum PictureWriter {
    /// By RGB of 8 bits.
    Rgb {
        writer: PixelWriter,
        /// Whether operations work on the grey picture.
        is_gray: bool,
    },
    /// By floats: with alpha, or of more than 8 bits.
    Channels(ChannelWriter),
}

/// A picture, and the plan of how it is decoded and changed.
struct PlannedPicture<'a, 'b> {
    field: &'a str,
    bytes: usize,
    picture: OpenPicture<'b>,
    plan: &'a PicturePlan,
    resources: &'a DecodeResources,
    /// Bytes that are reserved in addition to those for decoding the picture.
    beside_bytes: u64,
}

/// What decoding gives of a picture: the spans of the stored picture that are read, and where their pixels are in the result; `None`
/// if the result is black.
type Visible = Option<([AxisSpan; 2], Frame)>;

/// A picture that is decoded already, such as a frame of a video.
pub(super) struct RgbFrame<'a> {
    /// Name of the field that it is of.
    pub(super) field: &'a str,
    /// Its pixels.
    pub(super) rgb: &'a [u8],
    /// Width and height as they are stored.
    pub(super) stored: [u32; 2],
    /// How it becomes upright.
    pub(super) orientation: Orientation,
}

/// The file of a picture.
pub(super) struct PictureFile<'a> {
    /// Name of the field that it lies in.
    pub(super) field: &'a str,
    pub(super) bytes: &'a Bytes,
    /// Bytes that are in memory while the picture is decoded; they are reserved together with those for decoding it.
    pub(super) beside_bytes: u64,
}

impl ImageColumnDecoder {
    pub(super) fn new(column: &ImageColumn, setup: &ColumnSetup<'_>) -> Self {
        let dtype = setup.column.decoded_dtype();
        let [height, width] = column.size;
        let writers = PictureWriters::new(column, dtype, [width, height]);
        let ragged = column.max_pixels().map(|_| (column.clone(), dtype));
        let picture = FollowedPicture::of(setup.number, setup.column, &column.ops);
        let (pictures, background) = (column.pictures_of_one(), column.background.map(|fill| fill.0));
        Self { picture, pictures, background, writers, ragged }
    }
}

impl PictureWriters {
    /// Creates what writes the pictures of a column of this type which have this width and height.
    fn new(column: &ImageColumn, dtype: DType, size: [u32; 2]) -> Self {
        let format = ChannelFormat { color: column.color, depth: column.depth_of(dtype) };
        let spec = PictureSpec { size, format, dtype, layout: column.layout, normalise: column.normalise.clone() };
        let deep = column.keeps_depth(dtype).then(|| {
            let format = ChannelFormat { depth: ImageDepth::Bits32, ..format };
            ChannelWriter::new(PictureSpec { format, ..spec.clone() })
        });
        let pixels = if column.is_by_rgb(dtype) {
            PictureWriter::Rgb { writer: PixelWriter::new(&spec), is_gray: column.color == ImageColor::Gray }
        } else {
            PictureWriter::Channels(ChannelWriter::new(spec))
        };
        Self { pixels, deep }
    }

    /// Returns the number of bytes of a picture.
    fn bytes(&self) -> usize {
        match &self.pixels {
            PictureWriter::Rgb { writer, .. } => writer.bytes(),
            PictureWriter::Channels(writer) => writer.bytes(),
        }
    }
}

impl ColumnDecoder for ImageColumnDecoder {
    fn fields(&self) -> Vec<&str> {
        self.picture.fields().collect()
    }

    fn picture_parts(
        &self,
        head: &ScalableHead<'_>,
        of: (u64, SampleKey),
        record: &mut SampleRecord<'_>,
    ) -> Option<Parts> {
        // If planning fails, the sample is bad, and the picture is read whole.
        let followed = self.picture.plan_of_size(head.seen(), of, record).ok()?;
        let visible = head.orientation.frame(&followed.plan.decode, head.stored);
        Some(visible.map_or_else(Parts::default, |(spans, frame)| head.parts(spans, &frame)))
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let ColumnSample { field, content, seed, key, record, resources, scratch } = sample;
        let file = PictureFile { field, bytes: &content.into_file(), beside_bytes: 0 };
        let plan = |size| self.picture.plan_of_size(size, (seed, key), record);
        let Some((column, dtype)) = &self.ragged else {
            return self.write(file, plan, (resources, scratch), target.fixed());
        };
        let (picture, followed) = self.open(&file, plan, resources)?;
        let writers = PictureWriters::new(column, *dtype, followed.plan.size());
        let mut made = vec![0; writers.bytes()];
        let file = PictureFile { beside_bytes: made.len() as u64, ..file };
        self.write_opened(file, (picture, &followed.plan), &writers, (resources, scratch), &mut made)?;
        *target.ragged() = made.into();
        Ok(())
    }
}

impl ImageColumnDecoder {
    /// Returns the number of bytes that a picture has in the batch.
    pub(super) fn bytes(&self) -> usize {
        self.writers.bytes() * self.pictures as usize
    }

    /// Returns the picture of the column.
    pub(super) const fn picture(&self) -> &FollowedPicture {
        &self.picture
    }

    /// Decodes a picture into its place. `plan` returns the plan for a picture of the given width and height.
    pub(super) fn write(
        &self,
        file: PictureFile<'_>,
        plan: impl FnOnce([u32; 2]) -> Result<Rc<FollowedPlan>, BadSampleProblem>,
        (resources, scratch): (&DecodeResources, &mut DecodeScratch),
        out: &mut [u8],
    ) -> ValueResult {
        let (picture, followed) = self.open(&file, plan, resources)?;
        self.write_opened(file, (picture, &followed.plan), &self.writers, (resources, scratch), out)
    }

    /// Reads the header of a picture, and plans it.
    fn open<'b>(
        &self,
        &PictureFile { field, bytes, .. }: &PictureFile<'b>,
        plan: impl FnOnce([u32; 2]) -> Result<Rc<FollowedPlan>, BadSampleProblem>,
        resources: &DecodeResources,
    ) -> Result<(OpenPicture<'b>, Rc<FollowedPlan>), BadSampleProblem> {
        if bytes.is_empty() {
            return Err(BadSampleProblem::Empty { field: field.to_owned() });
        }
        let limits = resources.limits;
        let problem = |error: PictureError| BadSampleProblem::of_picture(error, field, bytes.len(), limits);
        let picture = open_picture(bytes, limits, resources.frames.as_ref()).map_err(problem)?.on(self.background);
        let followed = plan(picture.seen())?;
        Ok((picture, followed))
    }

    /// Decodes a picture that was opened, by what writes pictures of its size.
    fn write_opened(
        &self,
        PictureFile { field, bytes, beside_bytes }: PictureFile<'_>,
        (picture, plan): (OpenPicture<'_>, &PicturePlan),
        writers: &PictureWriters,
        (resources, scratch): (&DecodeResources, &mut DecodeScratch),
        out: &mut [u8],
    ) -> ValueResult {
        let bytes = bytes.len();
        let deep = writers.deep.as_ref().filter(|_| picture.is_deep());
        let planned = PlannedPicture { field, bytes, picture, plan, resources, beside_bytes };
        match (deep, &writers.pixels) {
            (Some(writer), _) | (None, PictureWriter::Channels(writer)) => {
                self.write_channels(planned, writer, scratch, out)
            }
            (None, PictureWriter::Rgb { writer, is_gray }) => self.write_rgb(planned, (writer, *is_gray), scratch, out),
        }
    }

    fn write_rgb(
        &self,
        planned: PlannedPicture<'_, '_>,
        (writer, is_gray): (&PixelWriter, bool),
        scratch: &mut DecodeScratch,
        out: &mut [u8],
    ) -> ValueResult {
        if !planned.plan.then.is_empty() {
            planned.check_size()?;
        }
        let needed_bytes = rgb_memory_bytes(planned.plan, &planned.visible(), writer, |(spans, frame), writer| {
            planned.picture.memory_bytes(*spans, (writer, frame))
        });
        let _permit = planned.take_memory(needed_bytes)?;
        self.render_rgb(planned, (writer, is_gray), scratch, out)
    }

    /// Writes a picture, for which memory is reserved.
    fn render_rgb(
        &self,
        planned: PlannedPicture<'_, '_>,
        (writer, is_gray): (&PixelWriter, bool),
        scratch: &mut DecodeScratch,
        out: &mut [u8],
    ) -> ValueResult {
        assert_eq!(out.len(), writer.bytes() * self.pictures as usize, "bytes of a sample's place");
        let PicturePlan { decode, then, .. } = planned.plan;
        let kept_bytes = planned.resources.memory.kept_bytes();
        let visible = planned.visible();
        if then.is_empty() {
            let Some((stored, frame)) = visible else {
                writer.blacken(out);
                return Ok(());
            };
            let scratch = (&mut scratch.picture, kept_bytes);
            return planned.decode(|picture| picture.render(stored, (writer, &frame), scratch, out));
        }
        let rgb_writer = PixelWriter::of_rgb(decode.size);
        let DecodeScratch { picture: picture_scratch, rgb, operation, .. } = scratch;
        rgb.size = decode.size;
        let pixels = rgb.pixels.to_mut();
        pixels.resize(rgb_writer.bytes(), 0);
        match visible {
            Some((stored, frame)) => {
                let scratch = (picture_scratch, kept_bytes);
                planned.decode(|picture| picture.render(stored, (&rgb_writer, &frame), scratch, pixels))?;
            }
            None => pixels.fill(0),
        }
        if is_gray {
            make_gray(pixels);
            spdl_operations::run(&without_colors(then), rgb, operation);
        } else {
            spdl_operations::run(then, rgb, operation);
        }
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

    /// Returns what writes RGB of 8 bits, as all columns of videos have it.
    fn of_frames(&self) -> (&PixelWriter, bool) {
        match &self.writers.pixels {
            PictureWriter::Rgb { writer, is_gray } => (writer, *is_gray),
            PictureWriter::Channels(_) => panic!("a column of frames is not of RGB of 8 bits"),
        }
    }

    /// Returns the bytes that writing a [frame](Self::write_frame) of this stored size takes beside its pixels.
    pub(super) fn frame_memory_bytes(&self, stored: [u32; 2], orientation: Orientation, plan: &PicturePlan) -> u64 {
        let visible = orientation.frame(&plan.decode, stored);
        rgb_memory_bytes(plan, &visible, self.of_frames().0, |(spans, frame), writer| {
            of_rgb_memory_bytes(stored, *spans, (writer, frame))
        })
    }

    /// Writes a picture that is decoded already into its place. The memory for that is reserved, and its plan is not too large.
    pub(super) fn write_frame(
        &self,
        frame: RgbFrame<'_>,
        plan: &PicturePlan,
        (resources, scratch): (&DecodeResources, &mut DecodeScratch),
        out: &mut [u8],
    ) -> ValueResult {
        let RgbFrame { field, rgb, stored, orientation } = frame;
        let (bytes, picture) = (rgb.len(), of_rgb(rgb, stored, orientation));
        let planned = PlannedPicture { field, bytes, picture, plan, resources, beside_bytes: 0 };
        self.render_rgb(planned, self.of_frames(), scratch, out)
    }

    fn write_channels(
        &self,
        planned: PlannedPicture<'_, '_>,
        writer: &ChannelWriter,
        scratch: &mut DecodeScratch,
        out: &mut [u8],
    ) -> ValueResult {
        assert_eq!(out.len(), writer.bytes() * self.pictures as usize, "bytes of a sample's place");
        planned.check_size()?;
        let (format, PicturePlan { decode, then, .. }) = (writer.format(), planned.plan);
        let (field, bytes, limits) = (planned.field, planned.bytes, planned.resources.limits);
        let visible = planned.picture.orientation.frame(decode, planned.picture.stored);
        let decode_bytes =
            visible.map_or(0, |(stored, frame)| planned.picture.channel_memory_bytes(stored, (format, &frame)));
        let _permit = planned.take_memory(decode_bytes + channel_memory_bytes(format, decode.size, then))?;
        let mut picture = ChannelPicture::new(format, decode.size);
        if let Some((stored, frame)) = visible {
            let scratch = (&mut scratch.picture, planned.resources.memory.kept_bytes());
            planned.decode(|stored_picture| stored_picture.render_channels(stored, &frame, scratch, &mut picture))?;
        }
        run_on_channels(then, &mut picture);
        let height = picture.size[1] / self.pictures;
        let mut pictures = picture.pictures(height).zip(out.chunks_exact_mut(writer.bytes()));
        let written = pictures.try_for_each(|(values, out)| writer.write(values, out));
        written.map_err(|error| BadSampleProblem::of_picture(error, field, bytes, limits))
    }
}

/// Returns the bytes that a picture takes by RGB of 8 bits, where decoding takes those that `decoding` returns for what writes its
/// pixels.
fn rgb_memory_bytes(
    plan: &PicturePlan,
    visible: &Visible,
    writer: &PixelWriter,
    decoding: impl Fn(&([AxisSpan; 2], Frame), &PixelWriter) -> u64,
) -> u64 {
    let PicturePlan { decode, then, .. } = plan;
    if then.is_empty() {
        return visible.as_ref().map_or(0, |visible| decoding(visible, writer));
    }
    let decode_bytes = visible.as_ref().map_or(0, |visible| decoding(visible, &PixelWriter::of_rgb(decode.size)));
    decode_bytes + spdl_operations::memory_bytes(decode.size, then)
}

impl<'a, 'b> PlannedPicture<'a, 'b> {
    /// Returns what is decoded of the picture.
    fn visible(&self) -> Visible {
        self.picture.orientation.frame(&self.plan.decode, self.picture.stored)
    }

    /// Reserves the memory for decoding.
    fn take_memory(&self, needed_bytes: u64) -> Result<MemoryPermit<'a>, BadSampleProblem> {
        let needed_bytes = needed_bytes + self.beside_bytes;
        self.resources.memory.take(needed_bytes).map_err(|NeverFits { max_bytes }| {
            let [width, height] = self.picture.stored;
            BadSampleProblem::TooMuchMemory { field: self.field.to_owned(), width, height, needed_bytes, max_bytes }
        })
    }

    /// Checks that no operation makes the picture larger than the limits.
    fn check_size(&self) -> ValueResult {
        let (field, pixels) = (self.field, self.resources.limits.pixels);
        self.plan.too_large(pixels).map_or(Ok(()), |[width, height]| {
            Err(BadSampleProblem::GrowsTooLarge { field: field.to_owned(), width, height, pixels })
        })
    }

    /// Counts the picture and decodes it.
    fn decode(self, decode: impl FnOnce(OpenPicture<'b>) -> Result<(), PictureError>) -> ValueResult {
        let Self { field, bytes, picture, resources, .. } = self;
        resources.counts.count(&picture);
        decode(picture).map_err(|error| BadSampleProblem::of_picture(error, field, bytes, resources.limits))
    }
}
