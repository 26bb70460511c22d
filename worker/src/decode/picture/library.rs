//! Every format but JPEG by the crate `image`, and its pixel types as 8-bit RGB: alpha is dropped, 16 bits and floats
//! are scaled to 8.

use std::io::Cursor;

use image::{ColorType, ImageDecoder, ImageReader, Limits};

use super::{Failure, PictureLimits, Turn, checked_size, other};

/// A picture whose header is read.
pub(super) struct Library<'b> {
    decoder: Box<dyn ImageDecoder + 'b>,
}

/// Bytes of a decoded pixel that the limits on pixels are meant for: 8-bit RGB with alpha. Where pixels are wider,
/// fewer are allowed.
const BYTES_PER_PIXEL: u64 = 4;

pub(super) fn open(bytes: &[u8], limits: PictureLimits) -> Result<([u32; 2], Turn, Library<'_>), Failure> {
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(other)?;
    if reader.format().is_none() {
        return Err(other("the bytes are of no format that is known"));
    }
    let bytes = limits.pixels.saturating_mul(BYTES_PER_PIXEL);
    let mut allowed = Limits::default();
    // A decoder may hold the picture twice.
    allowed.max_alloc = Some(bytes.saturating_mul(2));
    reader.limits(allowed);
    let mut decoder = reader.into_decoder().map_err(other)?;
    let (width, height) = decoder.dimensions();
    let stored = checked_size(width, height, limits)?;
    if decoder.total_bytes() > bytes {
        return Err(Failure::TooLarge(stored));
    }
    let turn = decoder.orientation().map(Turn::from).unwrap_or_default();
    Ok((stored, turn, Library { decoder: Box::new(decoder) }))
}

impl Library<'_> {
    /// Decodes to RGB.
    pub(super) fn decode(self, pixels: &mut [u8]) -> Result<(), Failure> {
        let color = self.decoder.color_type();
        if color == ColorType::Rgb8 {
            return self.decoder.read_image_boxed(pixels).map_err(other);
        }
        let bytes = pixels.len() / 3 * usize::from(color.bytes_per_pixel());
        let mut raw = vec![0; bytes];
        self.decoder.read_image_boxed(&mut raw).map_err(other)?;
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

/// The nearest 8-bit value of a 16-bit one in native byte order.
fn wide(bytes: &[u8]) -> u8 {
    let value = u16::from_ne_bytes([bytes[0], bytes[1]]);
    ((u32::from(value) + 128) / 257) as u8
}

/// The nearest 8-bit value of a float in 0..=1, clipped to that range; what is no number is 0.
fn float(bytes: &[u8]) -> u8 {
    let value = f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    (value.clamp(0.0, 1.0) * 255.0).round() as u8
}
