//! JPEGs of the kinds that the crop decoder leaves to a library, by zune-jpeg, strictly: what is cut off or broken is an
//! error, never a picture with grey below.

use image::metadata::Orientation;
use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

use super::{Failure, PictureLimits, Turn, checked_size, other};

/// A JPEG whose header is read.
pub(super) struct Jpeg<'b> {
    decoder: JpegDecoder<ZCursor<&'b [u8]>>,
}

pub(super) fn is_jpeg(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xd8, 0xff])
}

pub(super) fn open(bytes: &[u8], limits: PictureLimits) -> Result<([u32; 2], Turn, Jpeg<'_>), Failure> {
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options());
    let is_complete = has_end(bytes);
    decoder.decode_headers().map_err(|error| if is_complete { other(error) } else { Failure::Truncated })?;
    let (width, height) = decoder.dimensions().ok_or_else(|| other("a JPEG without a size"))?;
    let stored = checked_size(width as u32, height as u32, limits)?;
    if !is_complete {
        return Err(Failure::Truncated);
    }
    let turn = decoder.exif().and_then(|chunk| Orientation::from_exif_chunk(chunk)).map(Turn::from).unwrap_or_default();
    Ok((stored, turn, Jpeg { decoder }))
}

/// The size is checked against our own limits, which name it.
fn options() -> DecoderOptions {
    DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX)
        .jpeg_set_out_colorspace(ColorSpace::RGB)
}

impl Jpeg<'_> {
    pub(super) fn decode(mut self, pixels: &mut [u8]) -> Result<(), Failure> {
        self.decoder.decode_into(pixels).map_err(other)
    }
}

/// Whether the picture's end marker is there, wherever the first scan ends up: the decoder takes a picture without it,
/// and fills what is missing of the last row with grey.
fn has_end(bytes: &[u8]) -> bool {
    const END: u8 = 0xd9;
    // Nearly every file ends with its marker, and inside of a scan these two bytes cannot be anything else.
    if bytes.ends_with(&[0xff, END]) {
        return true;
    }
    let mut at = 2;
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == 0xff)) {
        at += found + 1;
        match bytes.get(at) {
            Some(&END) => return true,
            // A fill byte, a stuffed zero, a restart marker or one without a length.
            Some(0xff) => {}
            Some(0x00 | 0x01 | 0xd0..=0xd8) => at += 1,
            // A segment: an end marker inside of it, as in a thumbnail's, is not the picture's.
            Some(_) => match bytes.get(at + 1..at + 3) {
                Some(length) => at += 1 + usize::from(u16::from_be_bytes([length[0], length[1]])),
                None => return false,
            },
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_behind_other_things_and_not_inside_of_segments() {
        let with = |tail: &[u8]| [&[0xff, 0xd8, 0xff, 0xe1, 0, 6, 0xff, 0xd9, 9, 9][..], tail].concat();
        assert!(has_end(&with(&[0xff, 0xda, 0, 2, 1, 0xff, 0, 0xff, 0xd0, 5, 0xff, 0xd9])));
        assert!(has_end(&with(&[0xff, 0xda, 0, 2, 1, 2, 3, 0xff, 0xff, 0xd9, b'x', 0])));
        assert!(!has_end(&with(&[0xff, 0xda, 0, 2, 1, 0xff, 0, 0xd9, 0xff, 0xd0, 5])));
        assert!(!has_end(&with(&[0xff, 0xda, 0])));
        assert!(!has_end(&with(&[0xff])));
        assert!(!has_end(&[0xff, 0xd8]));
    }

    #[test]
    fn vector_instructions_do_not_change_the_result() {
        for bytes in [
            include_bytes!("../../../tests/data/chelsea.jpg").as_slice(),
            include_bytes!("../../../tests/data/coffee_progressive.jpg"),
            include_bytes!("../../../tests/data/coffee_cmyk.jpg"),
            include_bytes!("../../../tests/data/astronaut_444.jpg"),
            include_bytes!("../../../tests/data/astronaut_exif6.jpg"),
        ] {
            let outs = [true, false].map(|vector| {
                let options = options().set_use_unsafe(vector);
                JpegDecoder::new_with_options(ZCursor::new(bytes), options).decode().unwrap()
            });
            assert!(outs[0] == outs[1]);
        }
    }
}
