//! Converts the stored samples of a picture to the channels of a column.

use super::ChannelFormat;
use spdl_types::ImageDepth;

use crate::{
    PictureError,
    picture::{Alpha, check_floats, nearest, nearest_of_float},
};

/// The type of a picture's stored samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawSample {
    /// Bytes.
    Byte,
    /// 16 bits, big-endian.
    WideBigEndian,
    /// 16 bits in the processor's byte order.
    Wide,
    /// Floats in the processor's byte order.
    Float,
}

/// A decoded picture with the samples that are stored.
pub(crate) struct RawPicture {
    /// The samples, pixel by pixel and row by row.
    pub(crate) bytes: Vec<u8>,
    pub(crate) sample: RawSample,
    /// Samples of a pixel: grey, grey and alpha, RGB, or RGB and alpha.
    pub(crate) samples: usize,
    /// The meaning of the last sample, where there are two or four.
    pub(crate) alpha: Alpha,
}

impl RawSample {
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::WideBigEndian | Self::Wide => 2,
            Self::Float => 4,
        }
    }
}

impl RawPicture {
    /// Makes a picture of RGB of 8 bits.
    pub(crate) const fn of_rgb(bytes: Vec<u8>) -> Self {
        Self { bytes, sample: RawSample::Byte, samples: 3, alpha: Alpha::Unspecified }
    }

    /// Returns whether there are samples for all pixels of a picture of this width and height.
    pub(crate) fn has_pixels(&self, [width, height]: [u32; 2]) -> bool {
        let pixel_bytes = (self.samples * self.sample.bytes()) as u64;
        self.bytes.len() as u64 >= u64::from(width) * u64::from(height) * pixel_bytes
    }

    /// Checks that a format can hold the values of the picture.
    pub(crate) fn check_range(&self, format: ChannelFormat) -> Result<(), PictureError> {
        if self.sample != RawSample::Float || format.depth == ImageDepth::Bits32 {
            return Ok(());
        }
        check_floats(self.bytes.as_chunks().0.iter().map(|value| f32::from_ne_bytes(*value)))
    }

    /// Writes row `at` of a picture that is `width` pixels wide in the channels of a format, on a background.
    ///
    /// # Panics
    /// If the picture has fewer rows.
    pub(crate) fn write_row(
        &self,
        (at, width): (usize, u32),
        format: ChannelFormat,
        background: Option<[u8; 3]>,
        row: &mut [f32],
    ) {
        let row_bytes = width as usize * self.samples * self.sample.bytes();
        let bytes = &self.bytes[at * row_bytes..][..row_bytes];
        let background = background.map(|color| color.map(|value| f32::from(value) * (format.full() / 255.0)));
        let put = |at: usize, value: f32, samples: &mut [f32; 4]| samples[at % self.samples] = value;
        let mut pixels = row.chunks_exact_mut(format.channels());
        let mut samples = [0.0; 4];
        let mut sample = |at: usize, value: f32| {
            put(at, value, &mut samples);
            if at % self.samples + 1 == self.samples
                && let Some(pixel) = pixels.next()
            {
                pixel.copy_from_slice(&self.pixel(samples, format, background)[..format.channels()]);
            }
        };
        let full = format.full();
        // Values of fewer bits become those of more exactly, and those of more the nearest ones.
        match self.sample {
            RawSample::Byte => {
                let values = bytes.iter().map(|value| f32::from(*value) * (full / 255.0));
                values.enumerate().for_each(|(at, value)| sample(at, value));
            }
            RawSample::WideBigEndian => {
                let values = bytes.as_chunks().0.iter().map(|value| of_wide(u16::from_be_bytes(*value), full));
                values.enumerate().for_each(|(at, value)| sample(at, value));
            }
            RawSample::Wide => {
                let values = bytes.as_chunks().0.iter().map(|value| of_wide(u16::from_ne_bytes(*value), full));
                values.enumerate().for_each(|(at, value)| sample(at, value));
            }
            RawSample::Float => {
                let values = bytes.as_chunks().0.iter().map(|value| of_float(f32::from_ne_bytes(*value), full));
                values.enumerate().for_each(|(at, value)| sample(at, value));
            }
        }
    }

    /// Returns the channels of a pixel with these samples.
    fn pixel(&self, samples: [f32; 4], format: ChannelFormat, background: Option<[f32; 3]>) -> [f32; 4] {
        let full = format.full();
        let (mut color, alpha) = match self.samples {
            1 => ([samples[0]; 3], full),
            2 => ([samples[0]; 3], samples[1]),
            3 => ([samples[0], samples[1], samples[2]], full),
            _ => ([samples[0], samples[1], samples[2]], samples[3]),
        };
        if self.alpha == Alpha::Premultiplied && format.color.has_alpha() && alpha > 0.0 {
            color = color.map(|value| (value * full / alpha).min(full));
        }
        if let Some(background) = background {
            let share = (alpha / full).clamp(0.0, 1.0);
            let over = |channel: usize| match self.alpha {
                Alpha::Straight => color[channel] * share + background[channel] * (1.0 - share),
                Alpha::Premultiplied => color[channel] + background[channel] * (1.0 - share),
                Alpha::Unspecified => color[channel],
            };
            color = [0, 1, 2].map(over);
        }
        format.of_pixel(color, alpha)
    }
}

/// Returns a value of 16 bits in the range of a format whose white is `full`.
fn of_wide(value: u16, full: f32) -> f32 {
    if full == 255.0 {
        f32::from(nearest(value))
    } else if full == 1.0 {
        f32::from(value) / 65_535.0
    } else {
        f32::from(value)
    }
}

/// Returns a float in the range of a format whose white is `full`; for formats of whole numbers, floats are clamped to
/// 0 to 1.
fn of_float(value: f32, full: f32) -> f32 {
    if full == 255.0 {
        f32::from(nearest_of_float(value))
    } else if full == 1.0 {
        value
    } else {
        // NaN becomes 0.
        f32::from((value.clamp(0.0, 1.0) * full).round() as u16)
    }
}
