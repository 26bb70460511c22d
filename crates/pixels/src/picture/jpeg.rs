//! Decodes the JPEGs that the crop decoder does not support, with zune-jpeg in strict mode: a truncated or broken
//! picture is an error, never a picture that is grey at the bottom. `sanitised` removes the deviations from the standard
//! that libjpeg ignores.

use spdl_jpeg::{Deviations, sanitised};
use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

use super::{PictureError, PictureLimits, Upright, checked_size, exif::upright, other};

/// A JPEG whose header has been read.
pub(super) struct JpegPicture {
    decoder: JpegDecoder<ZCursor<Vec<u8>>>,
    file_bytes: u64,
    kept_coefficients: u64,
}

pub(super) fn is_jpeg(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xd8, 0xff])
}

pub(super) fn open(
    bytes: &[u8],
    limits: PictureLimits,
) -> Result<([u32; 2], Upright, Deviations, JpegPicture), PictureError> {
    let sanitised = sanitised(bytes)?;
    let (file_bytes, kept_coefficients) = (sanitised.bytes.len() as u64, sanitised.kept_coefficients);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(sanitised.bytes), options());
    decoder.decode_headers().map_err(other)?;
    let (width, height) = decoder.dimensions().ok_or_else(|| other("a JPEG without a size"))?;
    let stored = checked_size(width as u32, height as u32, limits)?;
    let upright = upright(sanitised.exif, sanitised.xmp);
    Ok((stored, upright, sanitised.deviations, JpegPicture { decoder, file_bytes, kept_coefficients }))
}

/// Disables the library's size limits, as our own limits are checked and their error names the size.
fn options() -> DecoderOptions {
    DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX)
        .jpeg_set_out_colorspace(ColorSpace::RGB)
}

impl JpegPicture {
    /// Returns the bytes that decoding uses in addition to the RGB pixels; for a picture in several scans they include
    /// all coefficients.
    pub(super) fn scratch_bytes(&self, [width, _]: [u32; 2]) -> u64 {
        // The last term is the rows of a few MCUs, as coefficients and as samples.
        self.file_bytes + self.kept_coefficients * 2 + u64::from(width.next_multiple_of(32)) * 32 * 4 * 4
    }

    pub(super) fn decode(mut self, pixels: &mut [u8]) -> Result<(), PictureError> {
        self.decoder.decode_into(pixels).map_err(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_instructions_do_not_change_the_result() {
        for bytes in [
            include_bytes!("../../../../assets/jpegs/chelsea.jpg").as_slice(),
            include_bytes!("../../../../assets/jpegs/coffee_progressive.jpg"),
            include_bytes!("../../../../assets/jpegs/coffee_cmyk.jpg"),
            include_bytes!("../../../../assets/jpegs/astronaut_444.jpg"),
            include_bytes!("../../../../assets/jpegs/astronaut_exif6.jpg"),
        ] {
            let outs = [true, false].map(|vector| {
                let options = options().set_use_unsafe(vector);
                JpegDecoder::new_with_options(ZCursor::new(bytes), options).decode().unwrap()
            });
            assert!(outs[0] == outs[1]);
        }
    }
}
