//! Decodes TIFFs that the crate `image` refuses although its decoder can read them: those with a palette, and grey ones
//! with 2 or 4 bits, with floats or with an additional channel.

use std::io::Cursor;

use tiff::{
    decoder::{Decoder, DecodingResult, Limits},
    tags::Tag,
};

use super::{
    Orientation, PictureError, PictureLimits, Upright,
    alpha::Alpha,
    check_floats, checked_size,
    exif::{Broken, first_place, first_value},
    other,
};
use crate::channels::{RawPicture, RawSample};

const BITS_PER_SAMPLE: u16 = 258;
const COMPRESSION: u16 = 259;
const PHOTOMETRIC: u16 = 262;
const FILL_ORDER: u16 = 266;
const ORIENTATION: u16 = 274;
const SAMPLES_PER_PIXEL: u16 = 277;
const PLANAR_CONFIGURATION: u16 = 284;
const EXTRA_SAMPLES: u16 = 338;
const SAMPLE_FORMAT: u16 = 339;

/// Values of the photometric interpretation.
const WHITE_IS_0: u32 = 0;
const BLACK_IS_0: u32 = 1;
const PALETTE: u32 = 3;

/// Compressions that the decoder does not have, and what they are called.
const NOT_READ: [(u32, &str); 7] = [
    (2, "CCITT (RLE)"),
    (3, "CCITT (Group 3)"),
    (6, "JPEG in its old form"),
    (34_712, "JPEG 2000"),
    (34_887, "LERC"),
    (34_925, "LZMA"),
    (50_002, "JPEG XL"),
];

/// A TIFF whose header has been read.
pub(super) struct Tiff {
    decoder: Decoder<Cursor<Vec<u8>>>,
    file_bytes: u64,
    width: usize,
    bits: u32,
    samples: usize,
    values: SampleValues,
    alpha: Alpha,
}

/// The meaning of a pixel's first sample.
enum SampleValues {
    Grey { is_inverted: bool },
    Colours(Vec<[u8; 3]>),
}

/// The tags that decide how a picture is decoded.
struct Tags {
    compression: u32,
    photometric: u32,
    bits: u32,
    samples: u32,
    is_float: bool,
    is_planar: bool,
    is_bit_reversed: bool,
    orientation: Option<u32>,
}

impl Tags {
    fn read(bytes: &[u8]) -> Result<Self, Broken> {
        let value = |tag, default| Ok(first_value(bytes, tag)?.unwrap_or(default));
        Ok(Self {
            compression: value(COMPRESSION, 1)?,
            photometric: value(PHOTOMETRIC, u32::MAX)?,
            bits: value(BITS_PER_SAMPLE, 1)?,
            samples: value(SAMPLES_PER_PIXEL, 1)?,
            is_float: value(SAMPLE_FORMAT, 1)? == 3,
            is_planar: value(PLANAR_CONFIGURATION, 1)? == 2,
            is_bit_reversed: value(FILL_ORDER, 1)? == 2,
            orientation: first_value(bytes, ORIENTATION)?,
        })
    }

    /// Returns whether this module decodes the picture, and not the crate `image`.
    fn are_ours(&self) -> bool {
        matches!(
            (self.photometric, self.bits, self.samples, self.is_float),
            (PALETTE, 1 | 2 | 4 | 8, 1, false)
                | (PALETTE, 8, 2, false)
                | (WHITE_IS_0 | BLACK_IS_0, 2 | 4, 1, false)
                | (WHITE_IS_0 | BLACK_IS_0, 8 | 16, 2, false)
                | (WHITE_IS_0 | BLACK_IS_0, 32, 1, true)
        )
    }
}

/// Returns what the additional sample of a TIFF's pixels means.
pub(super) fn alpha(bytes: &[u8]) -> Alpha {
    match first_value(bytes, EXTRA_SAMPLES) {
        Ok(Some(0)) => Alpha::Unspecified,
        Ok(Some(1)) => Alpha::Premultiplied,
        _ => Alpha::Straight,
    }
}

/// Reads the header; returns `None` if the crate `image` decodes the picture, or refuses it with its own error.
pub(super) fn open(bytes: &[u8], limits: PictureLimits) -> Result<Option<([u32; 2], Upright, Tiff)>, PictureError> {
    let Ok(tags) = Tags::read(bytes) else { return Ok(None) };
    if let Some((_, name)) = NOT_READ.iter().find(|(compression, _)| *compression == tags.compression) {
        return Err(other(format_args!(
            "a TIFF that is compressed with {name}, which is not read; Deflate, LZW and ZSTD are"
        )));
    }
    if tags.is_planar && tags.bits > 8 && tags.samples > 1 {
        return Err(other("a TIFF of more than 8 bits whose channels lie apart, which the decoder mixes up"));
    }
    if tags.is_bit_reversed {
        return Err(other(
            "a TIFF whose bits lie in reverse order (`FillOrder` 2), which the decoder does not turn round",
        ));
    }
    if !tags.are_ours() || (tags.is_planar && tags.samples > 1) {
        return Ok(None);
    }
    // The decoder does not support palettes. With the value "black is 0", it returns the samples of any kind unchanged.
    let mut file = bytes.to_vec();
    let place = first_place(bytes, PHOTOMETRIC).ok().flatten();
    let place = place.and_then(|place| file.get_mut(place)).ok_or_else(|| other("a TIFF that is cut off"))?;
    place.fill(0);
    let lowest = if bytes.starts_with(b"II") { 0 } else { place.len() - 1 };
    place[lowest] = BLACK_IS_0 as u8;
    let file_bytes = file.len() as u64;
    // Only stops absurd sizes, as the actual memory is reserved beforehand.
    let most = usize::try_from(limits.pixels.saturating_mul(16)).unwrap_or(usize::MAX);
    let mut allowed = Limits::default();
    (allowed.decoding_buffer_size, allowed.intermediate_buffer_size) = (most, most);
    let mut decoder = Decoder::new(Cursor::new(file)).map_err(other)?.with_limits(allowed);
    let (width, height) = decoder.dimensions().map_err(other)?;
    let stored = checked_size(width, height, limits)?;
    let values = if tags.photometric == PALETTE {
        SampleValues::Colours(colours(&decoder.get_tag_u16_vec(Tag::ColorMap).map_err(other)?, tags.bits)?)
    } else {
        // No other reader inverts floats, whatever the tag contains.
        SampleValues::Grey { is_inverted: tags.photometric == WHITE_IS_0 && !tags.is_float }
    };
    let orientation = tags.orientation.and_then(|number| image::metadata::Orientation::from_exif(number as u8));
    let upright =
        Upright { orientation: orientation.map(Orientation::from).unwrap_or_default(), has_broken_exif: false };
    let (bits, samples) = (tags.bits, tags.samples as usize);
    let (width, alpha) = (width as usize, alpha(bytes));
    Ok(Some((stored, upright, Tiff { decoder, file_bytes, width, bits, samples, values, alpha })))
}

/// Converts a palette of 16-bit values, all reds first; like Pillow, takes their upper half.
fn colours(map: &[u16], bits: u32) -> Result<Vec<[u8; 3]>, PictureError> {
    let count = 1 << bits;
    if map.len() < 3 * count {
        return Err(other(format_args!("a palette of {} values instead of {}", map.len(), 3 * count)));
    }
    Ok((0..count).map(|colour| [0, 1, 2].map(|channel| (map[channel * count + colour] >> 8) as u8)).collect())
}

impl Tiff {
    /// Returns whether values have more than 8 bits.
    pub(super) const fn is_deep(&self) -> bool {
        self.bits > 8
    }

    /// Returns the bytes that decoding uses in addition to the RGB pixels.
    pub(super) fn scratch_bytes(&self, [width, height]: [u32; 2]) -> u64 {
        let decoded = (u64::from(width) * u64::from(self.bits)).div_ceil(8) * self.samples as u64 * u64::from(height);
        // Twice, as a picture of a single strip is held a second time.
        self.file_bytes + 2 * decoded
    }

    /// Decodes the picture to RGB, on this background.
    pub(super) fn decode(mut self, background: Option<[u8; 3]>, pixels: &mut [u8]) -> Result<(), PictureError> {
        let decoded = self.decoder.read_image().map_err(other)?;
        let pixels = pixels.as_chunks_mut::<3>().0;
        let alpha = self.alpha;
        let over = move |color: [u8; 3], opacity: Option<u8>| match (background, opacity) {
            (Some(background), Some(opacity)) => alpha.over(background, color, opacity),
            _ => color,
        };
        match (decoded, &self.values) {
            (DecodingResult::U8(raw), _) => {
                self.write(&raw, pixels, |value, opacity| over(self.colour(value), opacity))
            }
            (DecodingResult::U16(raw), SampleValues::Grey { is_inverted }) => {
                let grey = |value: u16| super::nearest(if *is_inverted { !value } else { value });
                let opacity = |pixel: &[u16]| pixel.get(1).map(|value| super::nearest(*value));
                fill(pixels, raw.chunks(self.samples).map(|pixel| over([grey(pixel[0]); 3], opacity(pixel))))
            }
            (DecodingResult::F32(raw), SampleValues::Grey { .. }) => {
                check_floats(raw.iter().copied())?;
                fill(pixels, raw.iter().map(|value| [super::nearest_of_float(*value); 3]))
            }
            _ => Err(other("samples of another type than the tags name")),
        }
    }

    /// Decodes the picture to its samples.
    pub(super) fn decode_raw(mut self, [width, height]: [u32; 2]) -> Result<RawPicture, PictureError> {
        let (alpha, samples) = (self.alpha, self.samples);
        match (self.decoder.read_image().map_err(other)?, &self.values) {
            (DecodingResult::U8(raw), _) => {
                let mut pixels = vec![[0; 4]; width as usize * height as usize];
                self.write(&raw, &mut pixels, |value, opacity| {
                    let [r, g, b] = self.colour(value);
                    [r, g, b, opacity.unwrap_or(255)]
                })?;
                Ok(RawPicture { bytes: pixels.into_flattened(), sample: RawSample::Byte, samples: 4, alpha })
            }
            (DecodingResult::U16(raw), SampleValues::Grey { is_inverted }) => {
                let value =
                    |(at, value): (usize, u16)| if *is_inverted && at.is_multiple_of(samples) { !value } else { value };
                let values = raw.into_iter().enumerate().map(value);
                let bytes = values.flat_map(u16::to_ne_bytes).collect();
                Ok(RawPicture { bytes, sample: RawSample::Wide, samples, alpha })
            }
            (DecodingResult::F32(raw), SampleValues::Grey { .. }) => {
                let bytes = raw.into_iter().flat_map(f32::to_ne_bytes).collect();
                Ok(RawPicture { bytes, sample: RawSample::Float, samples, alpha })
            }
            _ => Err(other("samples of another type than the tags name")),
        }
    }

    /// Returns the colour of a value of 8 bits or fewer.
    fn colour(&self, value: u8) -> [u8; 3] {
        match &self.values {
            SampleValues::Colours(colours) => colours[usize::from(value)],
            SampleValues::Grey { is_inverted } => {
                let most = (1 << self.bits.min(8)) - 1;
                let value = if *is_inverted { most - u16::from(value) } else { u16::from(value) };
                [(value * (255 / most)) as u8; 3]
            }
        }
    }

    /// Writes samples of 8 bits or fewer. Several small ones share a byte, the first in its upper bits; each row begins
    /// with a new byte.
    /// `colour` makes the colour of a value, and of the opacity beside it.
    fn write<P>(&self, raw: &[u8], pixels: &mut [P], colour: impl Fn(u8, Option<u8>) -> P) -> Result<(), PictureError> {
        if self.bits == 8 {
            return fill(pixels, raw.chunks(self.samples).map(|pixel| colour(pixel[0], pixel.get(1).copied())));
        }
        let (bits, per_byte) = (self.bits as usize, 8 / self.bits as usize);
        let row_bytes = self.width.div_ceil(per_byte);
        let mask = (1_u8 << bits) - 1;
        let row = |row: &[u8]| -> Vec<P> {
            let value = |at: usize| row[at / per_byte] >> (8 - bits - at % per_byte * bits) & mask;
            (0..self.width).map(|at| colour(value(at), None)).collect()
        };
        fill(pixels, raw.chunks_exact(row_bytes).flat_map(row))
    }
}

/// Fills the pixels; fails if there are fewer colours than pixels.
fn fill<P>(pixels: &mut [P], mut colours: impl Iterator<Item = P>) -> Result<(), PictureError> {
    for pixel in pixels {
        *pixel = colours.next().ok_or_else(|| other("a TIFF that has fewer samples than pixels"))?;
    }
    Ok(())
}
