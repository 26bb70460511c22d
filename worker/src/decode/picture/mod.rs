//! From the bytes of a picture to the pixels that a plan wants. Two steps, so that a crop is planned on the header
//! before anything is decoded: [`open`] reads the header, [`Picture::render`] writes the planned pixels in place.
//!
//! Most JPEGs go to the crop decoder, which decodes what the plan needs and no more. For all other pictures a library
//! decodes the whole, and what the plan needs is resampled from that.

mod counts;
mod crop;
mod jpeg;
mod library;
mod resample;
mod turn;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use counts::PictureCounts;
pub(crate) use crop::Render as CropRender;
pub(crate) use resample::Resampler;
pub(crate) use turn::Turn;

use super::{
    cause::{BadSampleProblem, reason},
    geometry::Span,
    pixels::{Frame, Writer},
};

/// The largest picture that is decoded: a few bytes of a hostile one can claim gigabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureLimits {
    /// Pixels on a side; 16 384 by default. Raised, a broken header can cost more memory.
    pub side_pixels: u32,
    /// Pixels in all; 2^27 by default, 384 MiB as RGB. Raised, each decoding thread can take more memory.
    pub pixels: u64,
}

impl Default for PictureLimits {
    fn default() -> Self {
        Self { side_pixels: 16_384, pixels: 1 << 27 }
    }
}

/// A picture whose header is read and whose pixels are not.
pub(crate) struct Picture<'b> {
    /// Width and height as stored, each at least 1 and within the limits.
    pub(crate) stored: [u32; 2],
    /// How the stored picture has to be turned to be seen upright.
    pub(crate) turn: Turn,
    source: Source<'b>,
}

/// The decoders.
enum Source<'b> {
    Crop(Box<spdl_jpeg::Jpeg<'b>>),
    Jpeg(Box<jpeg::Jpeg<'b>>),
    Library(library::Library<'b>),
}

/// What a decoder says when it gives up.
#[derive(Debug)]
enum Failure {
    Truncated,
    TooLarge([u32; 2]),
    Other(String),
}

/// Memory that is used again for the next picture.
#[derive(Default)]
pub(crate) struct Scratch {
    crop: spdl_jpeg::Scratch,
    pixels: Vec<u8>,
    resampler: Resampler,
    resampled: Vec<u8>,
}

/// A picture's memory is kept for the next one up to this many bytes, so that one giant does not stay for ever.
const KEPT_BYTES: usize = 64 << 20;

/// Reads a picture's header.
pub(crate) fn open<'b>(bytes: &'b [u8], field: &str, limits: PictureLimits) -> Result<Picture<'b>, BadSampleProblem> {
    let outcome = guarded(|| {
        if let Some((stored, turn, jpeg)) = crop::open(bytes, limits)? {
            Ok((stored, turn, Source::Crop(Box::new(jpeg))))
        } else if jpeg::is_jpeg(bytes) {
            jpeg::open(bytes, limits).map(|(stored, turn, jpeg)| (stored, turn, Source::Jpeg(Box::new(jpeg))))
        } else {
            library::open(bytes, limits).map(|(stored, turn, library)| (stored, turn, Source::Library(library)))
        }
    });
    let (stored, turn, source) = outcome.map_err(|failure| failure.of(bytes, field, limits))?;
    Ok(Picture { stored, turn, source })
}

impl Failure {
    fn of(self, bytes: &[u8], field: &str, limits: PictureLimits) -> BadSampleProblem {
        let field = field.to_owned();
        match self {
            Self::Truncated => BadSampleProblem::Truncated { field, bytes: bytes.len() },
            Self::Other(reason) => BadSampleProblem::Undecodable { field, reason },
            Self::TooLarge([width, height]) => {
                let PictureLimits { side_pixels, pixels } = limits;
                BadSampleProblem::TooLarge { field, width, height, side_pixels, pixels }
            }
        }
    }
}

/// A decoder that panics has met bytes it cannot cope with: the sample's fault, not ours.
fn guarded<T>(decode: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| Err(Failure::Other("the decoder panicked".to_owned())))
}

fn checked_size(width: u32, height: u32, limits: PictureLimits) -> Result<[u32; 2], Failure> {
    if width == 0 || height == 0 {
        return Err(Failure::Other(format!("a picture of {width}x{height} pixels")));
    }
    let pixels = u64::from(width) * u64::from(height);
    if width.max(height) > limits.side_pixels || pixels > limits.pixels {
        return Err(Failure::TooLarge([width, height]));
    }
    Ok([width, height])
}

impl Picture<'_> {
    /// Width and height as seen.
    pub(crate) fn seen(&self) -> [u32; 2] {
        self.turn.seen(self.stored)
    }

    /// Decodes, resamples and writes the pixels of `frame` to a sample's place; `x` and `y` are in the picture as
    /// stored. What the frame does not cover becomes black.
    pub(crate) fn render(
        self,
        [x, y]: [Span; 2],
        (writer, frame): (&Writer, &Frame),
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<(), RenderError> {
        let bytes = x.pixels as usize * y.pixels as usize * 3;
        match self.source {
            Source::Crop(jpeg) => {
                let outcome = guarded(|| crop::render(&jpeg, [x, y], (writer, frame), &mut scratch.crop, out));
                outcome.map_err(RenderError)
            }
            source if writer.takes_as_is(frame) => whole(source, self.stored, [x, y], scratch, out),
            source => {
                let mut resampled = std::mem::take(&mut scratch.resampled);
                resampled.resize(bytes, 0);
                let outcome = whole(source, self.stored, [x, y], scratch, &mut resampled);
                if outcome.is_ok() {
                    writer.write(&resampled, frame, out);
                }
                scratch.resampled = resampled;
                outcome
            }
        }
    }

    /// Whether the crop decoder decodes it.
    pub(crate) fn is_cropped(&self) -> bool {
        matches!(self.source, Source::Crop(_))
    }
}

/// Decodes the whole picture, and resamples it to `y.pixels` rows of `x.pixels` RGB pixels, without gaps.
fn whole(
    source: Source<'_>,
    [width, height]: [u32; 2],
    [x, y]: [Span; 2],
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Result<(), RenderError> {
    let bytes = width as usize * height as usize * 3;
    scratch.pixels.truncate(KEPT_BYTES.max(bytes));
    scratch.pixels.shrink_to(KEPT_BYTES.max(bytes));
    // A decoder may leave gaps where a picture is odd: they are black, not what the last picture left there.
    scratch.pixels.clear();
    scratch.pixels.resize(bytes, 0);
    let pixels = &mut scratch.pixels;
    let outcome = guarded(|| match source {
        Source::Crop(_) => unreachable!("its pixels are written as they are decoded"),
        Source::Jpeg(jpeg) => jpeg.decode(pixels),
        Source::Library(library) => library.decode(pixels),
    });
    outcome.map_err(RenderError)?;
    scratch.resampler.resample(&scratch.pixels, [width, height], x, y, out);
    Ok(())
}

/// Why [`Picture::render`] failed.
#[derive(Debug)]
pub(crate) struct RenderError(Failure);

impl RenderError {
    pub(crate) fn of(self, bytes: &[u8], field: &str, limits: PictureLimits) -> BadSampleProblem {
        self.0.of(bytes, field, limits)
    }
}

fn other(message: impl std::fmt::Display) -> Failure {
    Failure::Other(reason(message))
}
