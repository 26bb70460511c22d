//! Decodes pictures into the pixels that a plan needs. There are two steps, so that a crop is planned from the header
//! before any pixel is decoded: [`open`] reads the header, [`OpenPicture::render`] writes the planned pixels in place.
//!
//! Most JPEGs, and scalable pictures, are decoded by the crop decoder, which decodes no more than the plan needs. All other pictures are
//! decoded as a whole by a library and then resampled; only a large PNG is resampled row by row and never held as a
//! whole.

mod alpha;
mod bmp;
mod counts;
mod crop;
mod exif;
mod gif;
mod head;
mod indices;
mod jpeg;
mod library;
mod packed;
mod png;
mod resample;
mod rows;
mod tiff;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) use alpha::Alpha;
pub use counts::PictureCounts;
use exif::Upright;
pub use head::ScalableHead;
pub use indices::IndexPng;
pub use packed::PackedPicture;
pub use resample::Resampler;
use spdl_canvas::{AxisSpan, Filter};
use spdl_jpeg::Deviations;

use crate::{
    ChannelFormat, ChannelPicture, Frame, Orientation, PixelWriter,
    channels::{self, RawPicture},
};

/// The limits on pictures that are decoded: a few bytes of a hostile picture can claim gigabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureLimits {
    /// Maximum pixels on a side. Default: 16 384. When raised, a broken header can cost more memory.
    pub side_pixels: u32,
    /// Maximum pixels in all. Default: 2^27, which is 384 MiB as RGB. When raised, a picture that is decoded row by row
    /// can take longer; all others are limited by the memory for decoding.
    pub pixels: u64,
}

impl Default for PictureLimits {
    fn default() -> Self {
        Self { side_pixels: 16_384, pixels: 1 << 27 }
    }
}

/// A picture whose header has been read and whose pixels have not been decoded.
pub struct OpenPicture<'b> {
    /// Harmless deviations from the standard.
    deviations: Deviations,
    /// Whether the picture has EXIF that cannot be read.
    has_broken_exif: bool,
    /// Width and height as stored, each at least 1 and within the limits.
    pub stored: [u32; 2],
    /// Orientation that turns the stored picture upright.
    pub orientation: Orientation,
    /// The colour that shows through transparent pixels; without it, opacity is ignored.
    background: Option<[u8; 3]>,
    source: PixelSource<'b>,
}

/// The decoder of a picture.
enum PixelSource<'b> {
    Crop(crop::CropPicture<'b>),
    Jpeg(Box<jpeg::JpegPicture>),
    Png(Box<png::Png<'b>>),
    Library(library::Library<'b>),
    /// It is decoded already.
    Rgb(&'b [u8]),
    Whole(Box<dyn WholeDecoder + 'b>),
}

/// Decodes a picture that is read by others, all of it at once.
pub trait WholeDecoder {
    /// Returns the bytes that decoding uses in addition to the RGB pixels.
    fn scratch_bytes(&self) -> u64;

    /// Decodes the picture to RGB pixels, row by row without gaps. They are zero before.
    ///
    /// # Errors
    /// [`PictureError`] if it cannot be decoded.
    fn decode(&self, rgb: &mut [u8]) -> Result<(), PictureError>;
}

/// The error of a picture that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    /// The file ends before its pixels.
    #[error("the picture is cut off")]
    Truncated,
    /// The picture is larger than the limits.
    #[error("the picture of {}x{} pixels is larger than the limits", .0[0], .0[1])]
    TooLarge(
        /// Width and height.
        [u32; 2],
    ),
    /// The decoder's message.
    #[error("{0}")]
    Other(String),
}

/// Buffers that are reused for the next picture.
#[derive(Default)]
pub struct PictureScratch {
    crop: spdl_jpeg::Scratch,
    pixels: Vec<u8>,
    resampler: Resampler,
    resampled: Vec<u8>,
}

/// A PNG that is larger than this as RGB is resized while it is decoded. For smaller ones, decoding first is faster.
const ROWS_FROM_BYTES: u64 = 4 << 20;

impl PictureScratch {
    /// Keeps at most about `bytes` for the next picture, so that one huge picture does not occupy memory for ever.
    fn shrink_to(&mut self, bytes: usize) {
        for buffer in [&mut self.pixels, &mut self.resampled] {
            if buffer.capacity() > bytes {
                *buffer = Vec::new();
            }
        }
        self.resampler.shrink_to(bytes);
        self.crop.shrink_to(bytes);
    }
}

/// Reads the header of a picture.
///
/// # Errors
/// [`PictureError`], also where a decoder panics.
pub fn open(bytes: &[u8], limits: PictureLimits) -> Result<OpenPicture<'_>, PictureError> {
    guarded(|| {
        let (stored, upright, deviations, source) =
            if let Some((stored, upright, deviations, picture)) = crop::open(bytes, limits)? {
                (stored, upright, deviations, PixelSource::Crop(picture))
            } else if jpeg::is_jpeg(bytes) {
                let (stored, upright, deviations, jpeg) = jpeg::open(bytes, limits)?;
                (stored, upright, deviations, PixelSource::Jpeg(Box::new(jpeg)))
            } else if png::is_png(bytes) {
                let (stored, upright, png) = png::open(bytes, limits)?;
                (stored, upright, Deviations::NONE, PixelSource::Png(Box::new(png)))
            } else {
                let (stored, upright, library) = library::open(bytes, limits)?;
                (stored, upright, Deviations::NONE, PixelSource::Library(library))
            };
        Ok(OpenPicture {
            deviations,
            has_broken_exif: upright.has_broken_exif,
            stored,
            orientation: upright.orientation,
            background: None,
            source,
        })
    })
}

/// Returns a picture that is decoded already: RGB pixels of this width and height, both at least 1, as they are stored.
///
/// # Panics
/// If there is another number of bytes.
#[must_use]
pub fn of_rgb(rgb: &[u8], stored: [u32; 2], orientation: Orientation) -> OpenPicture<'_> {
    assert_eq!(rgb.len() as u64, rgb_bytes(stored), "bytes of {stored:?} pixels");
    let (deviations, source) = (Deviations::NONE, PixelSource::Rgb(rgb));
    OpenPicture { deviations, has_broken_exif: false, stored, orientation, background: None, source }
}

/// Returns a picture of this width and height, as they are stored, that `decoder` decodes.
///
/// # Errors
/// [`PictureError`] if it has no pixels or is larger than the limits.
pub fn of_decoder(
    decoder: Box<dyn WholeDecoder + '_>,
    [width, height]: [u32; 2],
    orientation: Orientation,
    limits: PictureLimits,
) -> Result<OpenPicture<'_>, PictureError> {
    let (stored, source) = (checked_size(width, height, limits)?, PixelSource::Whole(decoder));
    Ok(OpenPicture {
        deviations: Deviations::NONE,
        has_broken_exif: false,
        stored,
        orientation,
        background: None,
        source,
    })
}

/// Returns the bytes that [`OpenPicture::render`] uses in addition to the result for a picture [of RGB](of_rgb).
#[must_use]
pub fn of_rgb_memory_bytes(stored: [u32; 2], [x, y]: [AxisSpan; 2], (writer, frame): (&PixelWriter, &Frame)) -> u64 {
    Resampler::scratch_bytes(stored, [x, y], Filter::default()) + result_bytes([x, y], (writer, frame))
}

/// Returns the bytes of resampled pixels that are not written to their place at once.
fn result_bytes([x, y]: [AxisSpan; 2], (writer, frame): (&PixelWriter, &Frame)) -> u64 {
    if writer.takes_as_is(frame) { 0 } else { u64::from(x.pixels) * u64::from(y.pixels) * 3 }
}

/// Runs a decoder and turns a panic into an error: the bytes of the sample caused it.
fn guarded<T>(decode: impl FnOnce() -> Result<T, PictureError>) -> Result<T, PictureError> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err(PictureError::Other("the decoder panicked".to_owned())))
}

fn checked_size(width: u32, height: u32, limits: PictureLimits) -> Result<[u32; 2], PictureError> {
    if width == 0 || height == 0 {
        return Err(PictureError::Other(format!("a picture of {width}x{height} pixels")));
    }
    let pixels = u64::from(width) * u64::from(height);
    if width.max(height) > limits.side_pixels || pixels > limits.pixels {
        return Err(PictureError::TooLarge([width, height]));
    }
    Ok([width, height])
}

impl OpenPicture<'_> {
    /// Returns the same picture on a background, which shows through its transparent pixels; without one, opacity is ignored.
    #[must_use]
    pub fn on(self, background: Option<[u8; 3]>) -> Self {
        Self { background, ..self }
    }

    /// Returns the width and height of the upright picture.
    #[must_use]
    pub fn seen(&self) -> [u32; 2] {
        self.orientation.seen(self.stored)
    }

    /// Returns the bytes that [`render`](Self::render) uses in addition to the result, estimated from the header and
    /// never much too low.
    #[must_use]
    pub fn memory_bytes(&self, [x, y]: [AxisSpan; 2], (writer, frame): (&PixelWriter, &Frame)) -> u64 {
        let [width, height] = self.stored;
        let result = result_bytes([x, y], (writer, frame));
        let rgb = rgb_bytes(self.stored);
        let resampled = of_rgb_memory_bytes(self.stored, [x, y], (writer, frame));
        let whole = |scratch: u64| rgb + scratch + resampled;
        match &self.source {
            PixelSource::Crop(picture) => {
                crop::scratch_bytes(picture, [x, y], frame) + if writer.is_rgb() { 0 } else { result }
            }
            PixelSource::Jpeg(jpeg) => whole(jpeg.scratch_bytes(self.stored)),
            PixelSource::Png(png) if self.comes_in_rows(y) => {
                png.scratch_bytes(self.stored) + rows::resample_bytes([width, height], y) + result
            }
            PixelSource::Png(png) => whole(png.scratch_bytes(self.stored)),
            PixelSource::Library(library) => whole(library.scratch_bytes(self.stored)),
            PixelSource::Rgb(_) => resampled,
            PixelSource::Whole(decoder) => whole(decoder.scratch_bytes()),
        }
    }

    /// Returns whether the picture is resized while it is decoded.
    fn comes_in_rows(&self, y: AxisSpan) -> bool {
        let is_reduced = f64::from(y.pixels) <= y.extent;
        matches!(&self.source, PixelSource::Png(png) if !png.is_interlaced())
            && is_reduced
            && rgb_bytes(self.stored) > ROWS_FROM_BYTES
    }

    /// Decodes, resamples and writes the pixels of `frame` to a sample's place. `x` and `y` refer to the picture as
    /// stored. The rest of the result becomes black. At most about `kept_bytes` of the scratch memory are kept.
    ///
    /// # Errors
    /// [`PictureError`], also where a decoder panics.
    pub fn render(
        self,
        [x, y]: [AxisSpan; 2],
        (writer, frame): (&PixelWriter, &Frame),
        (scratch, kept_bytes): (&mut PictureScratch, usize),
        out: &mut [u8],
    ) -> Result<(), PictureError> {
        let outcome = if let PixelSource::Crop(picture) = self.source {
            guarded(|| {
                if writer.is_rgb() {
                    return crop::render(&picture, [x, y], (writer, frame), &mut scratch.crop, out);
                }
                let rgb = PixelWriter::of_rgb(frame.pixels);
                let pixels = &mut scratch.resampled;
                pixels.resize(rgb.bytes(), 0);
                crop::render(&picture, [x, y], (&rgb, &Frame { place: [0, 0], ..*frame }), &mut scratch.crop, pixels)?;
                writer.write(pixels, &Frame { orientation: Orientation::default(), ..*frame }, out);
                Ok(())
            })
        } else if writer.takes_as_is(frame) {
            self.resampled([x, y], scratch, out)
        } else {
            let mut resampled = std::mem::take(&mut scratch.resampled);
            resampled.resize(x.pixels as usize * y.pixels as usize * 3, 0);
            let outcome = self.resampled([x, y], scratch, &mut resampled);
            if outcome.is_ok() {
                writer.write(&resampled, frame, out);
            }
            scratch.resampled = resampled;
            outcome
        };
        scratch.shrink_to(kept_bytes);
        outcome
    }

    /// Returns the bytes that [`render_channels`](Self::render_channels) uses, estimated as by
    /// [`memory_bytes`](Self::memory_bytes).
    #[must_use]
    pub fn channel_memory_bytes(&self, [x, y]: [AxisSpan; 2], (format, frame): (ChannelFormat, &Frame)) -> u64 {
        let pixels = rgb_bytes(self.stored) / 3;
        let decoded = match &self.source {
            PixelSource::Crop(picture) => {
                return crop::scratch_bytes(picture, [x, y], frame) + u64::from(x.pixels) * u64::from(y.pixels) * 3;
            }
            PixelSource::Jpeg(jpeg) => pixels * 3 + jpeg.scratch_bytes(self.stored),
            PixelSource::Png(png) => png.raw_bytes(self.stored),
            PixelSource::Library(library) => pixels * 4 + library.scratch_bytes(self.stored),
            PixelSource::Rgb(_) => pixels * 3,
            PixelSource::Whole(decoder) => pixels * 3 + decoder.scratch_bytes(),
        };
        decoded + channels::resample_bytes(format, self.stored, [x, y], Filter::default())
    }

    /// Decodes, resamples and writes the pixels of `frame` to a picture of floats, whose format they get. `x` and `y` refer to
    /// the picture as stored. At most about `kept_bytes` of the scratch memory are kept.
    ///
    /// # Errors
    /// [`PictureError`], also where a decoder panics.
    pub fn render_channels(
        self,
        [x, y]: [AxisSpan; 2],
        frame: &Frame,
        (scratch, kept_bytes): (&mut PictureScratch, usize),
        out: &mut ChannelPicture,
    ) -> Result<(), PictureError> {
        let ([width, height], background, format) = (self.stored, self.background, out.format);
        let outcome = guarded(|| {
            let raw = match self.source {
                PixelSource::Crop(picture) => {
                    let rgb = PixelWriter::of_rgb(frame.pixels);
                    let pixels = &mut scratch.resampled;
                    pixels.resize(rgb.bytes(), 0);
                    crop::render(
                        &picture,
                        [x, y],
                        (&rgb, &Frame { place: [0, 0], ..*frame }),
                        &mut scratch.crop,
                        pixels,
                    )?;
                    out.place_rgb(pixels, frame);
                    return Ok(());
                }
                PixelSource::Jpeg(jpeg) => {
                    let mut rgb = vec![0; rgb_bytes(self.stored) as usize];
                    jpeg.decode(&mut rgb)?;
                    RawPicture::of_rgb(rgb)
                }
                PixelSource::Png(png) => png.decode_raw()?,
                PixelSource::Library(library) => library.decode_raw(self.stored)?,
                PixelSource::Rgb(rgb) => RawPicture::of_rgb(rgb.to_vec()),
                PixelSource::Whole(decoder) => {
                    let mut rgb = vec![0; rgb_bytes(self.stored) as usize];
                    decoder.decode(&mut rgb)?;
                    RawPicture::of_rgb(rgb)
                }
            };
            if !raw.has_pixels(self.stored) {
                return Err(other(format_args!("fewer samples than {width}x{height} pixels have")));
            }
            raw.check_range(format)?;
            let row_at = |at: usize, row: &mut [f32]| raw.write_row((at, width), format, background, row);
            out.place(&channels::resample(row_at, format, width, [x, y], Filter::default()), frame);
            Ok(())
        });
        scratch.shrink_to(kept_bytes);
        outcome
    }

    /// Decodes and resamples the picture to `y.pixels` rows of `x.pixels` RGB pixels, without gaps.
    fn resampled(
        self,
        [x, y]: [AxisSpan; 2],
        scratch: &mut PictureScratch,
        out: &mut [u8],
    ) -> Result<(), PictureError> {
        let (comes_in_rows, background) = (self.comes_in_rows(y), self.background);
        match self.source {
            PixelSource::Png(mut png) if comes_in_rows => {
                png.background = background;
                guarded(|| rows::resample(&mut *png, self.stored, [x, y], &mut scratch.resampler, out))
            }
            PixelSource::Rgb(rgb) => {
                scratch.resampler.resample(rgb, self.stored, (x, y), Filter::default(), out);
                Ok(())
            }
            source => {
                // A decoder may leave gaps in an odd picture: they must be black and not show the previous picture.
                scratch.pixels.clear();
                scratch.pixels.resize(rgb_bytes(self.stored) as usize, 0);
                let pixels = &mut scratch.pixels;
                guarded(|| match source {
                    PixelSource::Crop(_) | PixelSource::Rgb(_) => unreachable!("its pixels are not decoded here"),
                    PixelSource::Jpeg(jpeg) => jpeg.decode(pixels),
                    PixelSource::Png(mut png) => {
                        png.background = background;
                        png.decode(y.readable.1, pixels)
                    }
                    PixelSource::Library(library) => library.decode(background, pixels),
                    PixelSource::Whole(decoder) => decoder.decode(pixels),
                })?;
                scratch.resampler.resample(&scratch.pixels, self.stored, (x, y), Filter::default(), out);
                Ok(())
            }
        }
    }

    /// Returns whether values of the picture have more than 8 bits.
    #[must_use]
    pub fn is_deep(&self) -> bool {
        match &self.source {
            PixelSource::Crop(_) | PixelSource::Jpeg(_) | PixelSource::Rgb(_) | PixelSource::Whole(_) => false,
            PixelSource::Png(png) => png.is_wide(),
            PixelSource::Library(library) => library.is_deep(),
        }
    }

    /// Returns whether the picture was decoded [before](of_rgb).
    const fn is_of_rgb(&self) -> bool {
        matches!(self.source, PixelSource::Rgb(_))
    }

    /// Returns whether the crop decoder decodes the picture.
    #[must_use]
    pub fn is_cropped(&self) -> bool {
        matches!(self.source, PixelSource::Crop(_))
    }
}

/// Returns the bytes of a picture as RGB.
fn rgb_bytes([width, height]: [u32; 2]) -> u64 {
    u64::from(width) * u64::from(height) * 3
}

/// Returns the nearest 8-bit value of a 16-bit one.
pub(crate) fn nearest(value: u16) -> u8 {
    ((u32::from(value) + 128) / 257) as u8
}

/// Checks that floats are 0 to 1 but for rounding, as whole numbers hold no others. NaN passes: it becomes 0.
pub(crate) fn check_floats(floats: impl Iterator<Item = f32>) -> Result<(), PictureError> {
    let (least, most) = floats.fold((0.0_f32, 1.0_f32), |(least, most), value| (least.min(value), most.max(value)));
    if (least * 255.0).round() >= 0.0 && (most * 255.0).round() <= 255.0 {
        return Ok(());
    }
    Err(other(format_args!(
        "floats of {least} to {most}, and the column's values stand for 0 to 1; `dtype = \"f32\"` without `depth` keeps floats as \
         they are, with operations that only move pixels"
    )))
}

/// Returns the nearest 8-bit value of a float, clipped to 0..=1; NaN becomes 0.
pub(crate) fn nearest_of_float(value: f32) -> u8 {
    (value.clamp(0.0, 1.0) * 255.0).round() as u8
}

fn other(message: impl std::fmt::Display) -> PictureError {
    PictureError::Other(message.to_string())
}
