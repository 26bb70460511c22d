//! Decodes every format but JPEG and PNG. The crate `image` decodes most of them; its pixel types become 8-bit RGB: 16
//! bits and floats are scaled to 8, and alpha is dropped if there is no background. The modules beside this one decode
//! what the crate does not support or decodes differently from Pillow.

use std::io::Cursor;

use image::{ColorType, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::{
    Orientation, PictureError, PictureLimits, Upright,
    alpha::Alpha,
    bmp, check_floats, checked_size,
    exif::{is_big_tiff, upright},
    gif, other, tiff,
};
use crate::channels::{RawPicture, RawSample};

/// A picture whose header has been read.
pub(super) enum Library<'b> {
    /// A picture that the crate `image` decodes, and the meaning of its alpha.
    Image(Box<dyn ImageDecoder + 'b>, Alpha),
    /// A run-length encoded BMP; the crate would make skipped pixels black.
    Runs(bmp::RunLengthBmp<'b>),
    /// A GIF; the crate would leave its canvas black.
    Gif(Box<gif::Gif<'b>>),
    /// A TIFF of a kind that the crate does not support.
    Tiff(Box<tiff::Tiff>),
}

/// Bytes per pixel of a decoder's internal copy, in addition to its output.
const INNER_PIXEL_BYTES: u64 = 4;

pub(super) fn open(bytes: &[u8], limits: PictureLimits) -> Result<([u32; 2], Upright, Library<'_>), PictureError> {
    if let Some((stored, bmp)) = bmp::open(bytes, limits)? {
        return Ok((stored, Upright::default(), Library::Runs(bmp)));
    }
    if gif::is_gif(bytes) {
        let (stored, upright, gif) = gif::open(bytes, limits)?;
        return Ok((stored, upright, Library::Gif(Box::new(gif))));
    }
    if let Some((stored, upright, tiff)) = tiff::open(bytes, limits)? {
        return Ok((stored, upright, Library::Tiff(Box::new(tiff))));
    }
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(other)?;
    if is_big_tiff(bytes) {
        reader.set_format(ImageFormat::Tiff);
    }
    let Some(format) = reader.format() else {
        return Err(other("the bytes are of no format that is known"));
    };
    let mut allowed = Limits::default();
    // A decoder may hold the picture twice, with up to 16 bytes per pixel. The actual memory is reserved beforehand.
    allowed.max_alloc = Some(limits.pixels.saturating_mul(32));
    reader.limits(allowed);
    let mut decoder = reader.into_decoder().map_err(other)?;
    let (width, height) = decoder.dimensions();
    let stored = checked_size(width, height, limits)?;
    let (exif, xmp) = (decoder.exif_metadata().ok().flatten(), decoder.xmp_metadata().ok().flatten());
    let mut upright = upright(exif.as_deref(), xmp.as_deref());
    if exif.is_none() && upright.orientation == Orientation::default() {
        // A TIFF has the tag among its own.
        upright.orientation = decoder.orientation().map(Orientation::from).unwrap_or_default();
    }
    let alpha = if format == ImageFormat::Tiff { tiff::alpha(bytes) } else { Alpha::Straight };
    Ok((stored, upright, Library::Image(Box::new(decoder), alpha)))
}

impl Library<'_> {
    /// Decodes a picture of this width and height to its samples.
    pub(super) fn decode_raw(self, [width, height]: [u32; 2]) -> Result<RawPicture, PictureError> {
        let pixels = width as usize * height as usize;
        let (decoder, alpha) = match self {
            Self::Image(decoder, alpha) => (decoder, alpha),
            Self::Runs(bmp) => {
                let mut rgb = vec![0; pixels * 3];
                bmp.decode(&mut rgb)?;
                return Ok(RawPicture::of_rgb(rgb));
            }
            Self::Gif(gif) => return gif.decode_raw([width, height]),
            Self::Tiff(tiff) => return tiff.decode_raw([width, height]),
        };
        let color = decoder.color_type();
        let sample = match color {
            ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8 => RawSample::Byte,
            ColorType::L16 | ColorType::La16 | ColorType::Rgb16 | ColorType::Rgba16 => RawSample::Wide,
            ColorType::Rgb32F | ColorType::Rgba32F => RawSample::Float,
            unknown => return Err(other(format_args!("pixels of type {unknown:?}"))),
        };
        let mut bytes = vec![0; pixels * usize::from(color.bytes_per_pixel())];
        decoder.read_image_boxed(&mut bytes).map_err(other)?;
        Ok(RawPicture { bytes, sample, samples: color.channel_count().into(), alpha })
    }

    /// Returns whether values have more than 8 bits.
    pub(super) fn is_deep(&self) -> bool {
        match self {
            Self::Image(decoder, _) => {
                let color = decoder.color_type();
                color.bytes_per_pixel() > color.channel_count()
            }
            Self::Runs(_) | Self::Gif(_) => false,
            Self::Tiff(tiff) => tiff.is_deep(),
        }
    }

    /// Returns the bytes that decoding uses in addition to the RGB pixels.
    pub(super) fn scratch_bytes(&self, [width, height]: [u32; 2]) -> u64 {
        let decoder = match self {
            Self::Image(decoder, _) => decoder,
            Self::Runs(_) => return 0,
            Self::Gif(gif) => return gif.scratch_bytes(),
            Self::Tiff(tiff) => return tiff.scratch_bytes([width, height]),
        };
        let raw = if decoder.color_type() == ColorType::Rgb8 { 0 } else { decoder.total_bytes() };
        raw + u64::from(width) * u64::from(height) * INNER_PIXEL_BYTES
    }

    /// Decodes the picture to RGB, on this background.
    pub(super) fn decode(self, background: Option<[u8; 3]>, pixels: &mut [u8]) -> Result<(), PictureError> {
        let (decoder, alpha) = match self {
            Self::Image(decoder, alpha) => (decoder, alpha),
            Self::Runs(bmp) => return bmp.decode(pixels),
            Self::Gif(gif) => return gif.decode(background, pixels),
            Self::Tiff(tiff) => return tiff.decode(background, pixels),
        };
        let color = decoder.color_type();
        if color == ColorType::Rgb8 {
            return decoder.read_image_boxed(pixels).map_err(other);
        }
        let bytes = pixels.len() / 3 * usize::from(color.bytes_per_pixel());
        let mut raw = vec![0; bytes];
        decoder.read_image_boxed(&mut raw).map_err(other)?;
        if matches!(color, ColorType::Rgb32F | ColorType::Rgba32F) {
            check_floats(raw.as_chunks().0.iter().map(|value| f32::from_ne_bytes(*value)))?;
        }
        if let Some(background) = background.filter(|_| color.has_alpha()) {
            let over = |color: [u8; 3], opacity: u8| alpha.over(background, color, opacity);
            match color {
                ColorType::La8 => convert(&raw, pixels, |[l, a]: [u8; 2]| over([l; 3], a)),
                ColorType::Rgba8 => convert(&raw, pixels, |[r, g, b, a]: [u8; 4]| over([r, g, b], a)),
                ColorType::La16 => convert(&raw, pixels, |p: [u8; 4]| over([wide(&p); 3], wide(&p[2..]))),
                ColorType::Rgba16 => {
                    convert(&raw, pixels, |p: [u8; 8]| over([wide(&p), wide(&p[2..]), wide(&p[4..])], wide(&p[6..])));
                }
                ColorType::Rgba32F => convert(&raw, pixels, |p: [u8; 16]| {
                    over([float(&p), float(&p[4..]), float(&p[8..])], float(&p[12..]))
                }),
                unknown => return Err(other(format_args!("pixels of type {unknown:?}"))),
            }
            return Ok(());
        }
        match color {
            ColorType::L8 => convert(&raw, pixels, |[l]: [u8; 1]| [l; 3]),
            ColorType::La8 => convert(&raw, pixels, |[l, _]: [u8; 2]| [l; 3]),
            ColorType::Rgba8 => convert(&raw, pixels, |[r, g, b, _]: [u8; 4]| [r, g, b]),
            ColorType::L16 => convert(&raw, pixels, |l: [u8; 2]| [wide(&l); 3]),
            ColorType::La16 => convert(&raw, pixels, |la: [u8; 4]| [wide(&la); 3]),
            ColorType::Rgb16 => convert(&raw, pixels, |p: [u8; 6]| [wide(&p), wide(&p[2..]), wide(&p[4..])]),
            ColorType::Rgba16 => convert(&raw, pixels, |p: [u8; 8]| [wide(&p), wide(&p[2..]), wide(&p[4..])]),
            ColorType::Rgb32F => convert(&raw, pixels, |p: [u8; 12]| [float(&p), float(&p[4..]), float(&p[8..])]),
            ColorType::Rgba32F => convert(&raw, pixels, |p: [u8; 16]| [float(&p), float(&p[4..]), float(&p[8..])]),
            unknown => return Err(other(format_args!("pixels of type {unknown:?}"))),
        }
        Ok(())
    }
}

fn convert<const N: usize>(raw: &[u8], pixels: &mut [u8], rgb: impl Fn([u8; N]) -> [u8; 3]) {
    let (raw, rest) = raw.as_chunks::<N>();
    debug_assert!(rest.is_empty());
    let (pixels, _) = pixels.as_chunks_mut::<3>();
    for (pixel, raw) in pixels.iter_mut().zip(raw) {
        *pixel = rgb(*raw);
    }
}

/// Returns the nearest 8-bit value of a 16-bit one in native byte order.
fn wide(bytes: &[u8]) -> u8 {
    super::nearest(u16::from_ne_bytes([bytes[0], bytes[1]]))
}

/// Returns the nearest 8-bit value of a float in native byte order.
fn float(bytes: &[u8]) -> u8 {
    super::nearest_of_float(f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}
