//! Decodes JPEGs and scalable pictures with the crop decoder, which decodes no more than the plan needs.

use spdl_canvas::AxisSpan;
use spdl_jpeg::{Axis, Deviations, Error, Jpeg, Limits, Output, PictureRequest, Scratch, scalable::ScalablePicture};

use super::{Orientation, PictureError, PictureLimits, Upright, exif::upright, other};
use crate::writer::{Frame, PixelWriter, RenderTo};

/// Size, orientation and deviations of a picture, and the picture.
type Opened<'b> = ([u32; 2], Upright, Deviations, CropPicture<'b>);

/// A picture of which the crop decoder decodes a part.
pub(super) enum CropPicture<'b> {
    Jpeg(Box<Jpeg<'b>>),
    Scalable(Box<ScalablePicture<'b>>),
}

impl CropPicture<'_> {
    fn render(&self, request: &PictureRequest, scratch: &mut Scratch, output: &mut impl Output) -> Result<(), Error> {
        match self {
            Self::Jpeg(jpeg) => jpeg.render(request, scratch, output),
            Self::Scalable(picture) => picture.render(request, scratch, output),
        }
    }

    fn render_bytes(&self, request: &PictureRequest) -> u64 {
        match self {
            Self::Jpeg(jpeg) => jpeg.render_bytes(request),
            Self::Scalable(picture) => picture.render_bytes(request),
        }
    }
}

/// Reads the header; returns `None` if a library has to decode the picture.
pub(super) fn open(bytes: &[u8], limits: PictureLimits) -> Result<Option<Opened<'_>>, PictureError> {
    if ScalablePicture::is_packed(bytes) {
        let picture = ScalablePicture::open(bytes, limits.into())?;
        let upright = upright(picture.exif(), picture.xmp());
        return Ok(Some((picture.size(), upright, picture.deviations(), CropPicture::Scalable(Box::new(picture)))));
    }
    if !super::jpeg::is_jpeg(bytes) {
        return Ok(None);
    }
    let jpeg = match Jpeg::open(bytes, limits.into()) {
        Ok(jpeg) => jpeg,
        // If the header is odd, the library decides whether the picture is bad.
        Err(Error::Unsupported(_) | Error::Corrupt(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some((jpeg.size(), upright(jpeg.exif(), jpeg.xmp()), jpeg.deviations(), CropPicture::Jpeg(Box::new(jpeg)))))
}

impl From<PictureLimits> for Limits {
    fn from(PictureLimits { side_pixels, pixels }: PictureLimits) -> Self {
        Self { side_pixels, pixels }
    }
}

impl From<Error> for PictureError {
    fn from(error: Error) -> Self {
        match error {
            Error::Truncated => Self::Truncated,
            Error::TooLarge { width, height } => Self::TooLarge([width, height]),
            error => other(error),
        }
    }
}

/// Decodes, resamples and writes the picture; `x` and `y` refer to the picture as stored.
pub(super) fn render(
    picture: &CropPicture<'_>,
    [x, y]: [AxisSpan; 2],
    (writer, frame): (&PixelWriter, &Frame),
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Result<(), PictureError> {
    Ok(writer.render(frame, out, Render { picture, request: request([x, y], frame), scratch })?)
}

/// Returns what is asked of the decoder; `x` and `y` refer to the picture as stored.
pub(super) fn request([x, y]: [AxisSpan; 2], frame: &Frame) -> PictureRequest {
    let Orientation { transposed, columns_reversed, rows_reversed } = frame.orientation;
    PictureRequest { x: axis(x, columns_reversed), y: axis(y, rows_reversed), transposed }
}

/// Returns the bytes that decoding uses.
pub(super) fn scratch_bytes(picture: &CropPicture<'_>, spans: [AxisSpan; 2], frame: &Frame) -> u64 {
    picture.render_bytes(&request(spans, frame))
}

fn axis(span: AxisSpan, reversed: bool) -> Axis {
    // A reversed span can begin a rounding error before the picture.
    let from = span.from.max(f64::from(span.readable.0));
    Axis { readable: span.readable, from, extent: span.extent, pixels: span.pixels, reversed }
}

struct Render<'r, 'b> {
    picture: &'r CropPicture<'b>,
    request: PictureRequest,
    scratch: &'r mut Scratch,
}

impl RenderTo for Render<'_, '_> {
    fn render_to(self, output: &mut impl Output) -> Result<(), Error> {
        self.picture.render(&self.request, self.scratch, output)
    }
}
