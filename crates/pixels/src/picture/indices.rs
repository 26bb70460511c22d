//! Decodes PNGs whose pixels are numbers, such as masks of classes: the number is the index of a palette's colour, or
//! the grey value as it is stored. No value is scaled.

use std::io::Cursor;

use png::{BitDepth, ColorType, Transformations};

use super::{PictureError, PictureLimits, checked_size, guarded, other, png::is_png};

/// A PNG of numbers whose header has been read.
pub struct IndexPng<'b> {
    reader: png::Reader<Cursor<&'b [u8]>>,
    /// Width and height, each at least 1 and within the limits.
    pub size: [u32; 2],
    bits: usize,
}

/// Memory for inflating: its window and its input buffer.
const INFLATE_BYTES: u64 = 256 << 10;

impl<'b> IndexPng<'b> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`PictureError`] if the bytes are not a PNG, or one with colours or with alpha; also where the decoder panics.
    pub fn open(bytes: &'b [u8], limits: PictureLimits) -> Result<Self, PictureError> {
        if !is_png(bytes) {
            return Err(other("it is no PNG"));
        }
        guarded(|| {
            let allowed = usize::try_from(limits.pixels.saturating_mul(2)).unwrap_or(usize::MAX);
            let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: allowed });
            decoder.set_ignore_text_chunk(true);
            let info = decoder.read_header_info().map_err(other)?;
            let size = checked_size(info.width, info.height, limits)?;
            decoder.set_transformations(Transformations::IDENTITY);
            let reader = decoder.read_info().map_err(other)?;
            let (color, depth) = reader.output_color_type();
            match color {
                ColorType::Indexed | ColorType::Grayscale => {}
                ColorType::Rgb | ColorType::Rgba => {
                    return Err(other(
                        "a PNG of colours: it needs a palette, whose indices are the values, or grey values",
                    ));
                }
                ColorType::GrayscaleAlpha => return Err(other("a PNG of grey values with alpha")),
            }
            let bits = match depth {
                BitDepth::One => 1,
                BitDepth::Two => 2,
                BitDepth::Four => 4,
                BitDepth::Eight => 8,
                BitDepth::Sixteen => 16,
            };
            Ok(Self { reader, size, bits })
        })
    }

    /// Returns the bytes that [`decode`](Self::decode) uses, including the result.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let [width, height] = self.size.map(u64::from);
        let row = width * 2;
        let rows = if self.reader.info().interlaced { height } else { 4 };
        width * height * 2 + row * rows + INFLATE_BYTES
    }

    /// Writes the numbers row by row to `out`, and returns the greatest of them.
    ///
    /// # Errors
    /// [`PictureError`], also where the decoder panics.
    pub fn decode(mut self, out: &mut Vec<u16>) -> Result<u16, PictureError> {
        out.clear();
        out.reserve(self.size[0] as usize * self.size[1] as usize);
        guarded(|| {
            let (bits, width, height) = (self.bits, self.size[0] as usize, self.size[1] as usize);
            if self.reader.info().interlaced {
                let bytes = self.reader.output_buffer_size().ok_or_else(|| other("a picture beyond all memory"))?;
                let mut raw = vec![0; bytes];
                self.reader.next_frame(&mut raw).map_err(other)?;
                raw.chunks_exact(bytes / height).for_each(|row| unpack(row, bits, width, out));
            } else {
                for _ in 0..height {
                    let row = self.reader.next_row().map_err(other)?.ok_or_else(|| other("rows are missing"))?;
                    unpack(row.data(), bits, width, out);
                }
            }
            Ok(out.iter().copied().max().unwrap_or(0))
        })
    }
}

/// Appends the numbers of a row. Several small ones share a byte, the first in its upper bits; wide ones are big-endian.
fn unpack(row: &[u8], bits: usize, width: usize, out: &mut Vec<u16>) {
    match bits {
        16 => out.extend(row.as_chunks().0.iter().take(width).map(|value| u16::from_be_bytes(*value))),
        8 => out.extend(row.iter().take(width).map(|value| u16::from(*value))),
        _ => {
            let (per_byte, mask) = (8 / bits, (1_u8 << bits) - 1);
            let value = |at: usize| row[at / per_byte] >> (8 - bits - at % per_byte * bits) & mask;
            out.extend((0..width).map(|at| u16::from(value(at))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PictureLimits = PictureLimits { side_pixels: 100, pixels: 1000 };

    fn png(color: ColorType, depth: BitDepth, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 5, 2);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == ColorType::Indexed {
            encoder.set_palette((0..=255).flat_map(|at: u8| [255 - at; 3]).collect::<Vec<u8>>());
        }
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        bytes
    }

    fn decoded(bytes: &[u8]) -> Result<(Vec<u16>, u16), String> {
        let mut out = vec![7; 3];
        let picture = IndexPng::open(bytes, LIMITS).map_err(|error| error.to_string())?;
        assert_eq!(picture.size, [5, 2]);
        let most = picture.decode(&mut out).map_err(|error| error.to_string())?;
        Ok((out, most))
    }

    #[test]
    fn indices_and_grey_values_of_every_depth_are_as_they_are_stored() {
        use {BitDepth::*, ColorType::*};
        for color in [Indexed, Grayscale] {
            let eight = [0, 1, 2, 254, 255, 9, 8, 7, 6, 5];
            assert_eq!(decoded(&png(color, Eight, &eight)).unwrap(), (eight.map(u16::from).to_vec(), 255));
            let four = decoded(&png(color, Four, &[0x01, 0x2f, 0xe0, 0x98, 0x76, 0x50]));
            assert_eq!(four.unwrap(), (vec![0, 1, 2, 15, 14, 9, 8, 7, 6, 5], 15));
            let two = decoded(&png(color, Two, &[0b0001_1011, 0b0100_0000, 0b1111_1111, 0]));
            assert_eq!(two.unwrap(), (vec![0, 1, 2, 3, 1, 3, 3, 3, 3, 0], 3));
            let one = decoded(&png(color, One, &[0b0110_1000, 0b1001_0000]));
            assert_eq!(one.unwrap(), (vec![0, 1, 1, 0, 1, 1, 0, 0, 1, 0], 1));
        }
        let wide: Vec<u16> = vec![0, 1, 256, 65535, 300, 5, 6, 7, 8, 9];
        let bytes: Vec<u8> = wide.iter().flat_map(|value| value.to_be_bytes()).collect();
        assert_eq!(decoded(&png(Grayscale, Sixteen, &bytes)).unwrap(), (wide, 65535));
    }

    #[test]
    fn what_has_no_numbers_is_refused() {
        use {BitDepth::*, ColorType::*};
        for (bytes, expected) in [
            (png(Rgb, Eight, &[0; 30]), "a PNG of colours: it needs a palette"),
            (png(Rgba, Eight, &[0; 40]), "a PNG of colours"),
            (png(GrayscaleAlpha, Eight, &[0; 20]), "grey values with alpha"),
            (b"\xff\xd8\xff".to_vec(), "it is no PNG"),
        ] {
            let error = decoded(&bytes).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let whole = png(Grayscale, Eight, &[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]);
        // The last bytes are checksums and the end's mark.
        for length in 0..whole.len() - 28 {
            assert!(decoded(&whole[..length]).is_err(), "{length}");
        }
        let limits = PictureLimits { side_pixels: 4, pixels: 1000 };
        assert_eq!(IndexPng::open(&whole, limits).err(), Some(PictureError::TooLarge([5, 2])));
    }
}
