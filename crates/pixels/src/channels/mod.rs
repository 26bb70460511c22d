//! Pictures whose pixels are floats: those with alpha, and those of more than 8 bits. Decoding to floats is slower than
//! to 8-bit RGB, so only columns that need it use this module.

mod convert;
mod taps;
mod writer;

use spdl_canvas::{AxisSpan, Filter, ResamplePlan};
use spdl_types::{ImageColor, ImageDepth};

pub(crate) use convert::{RawPicture, RawSample};
use taps::{PixelTaps, taps};
pub use writer::ChannelWriter;

use crate::{Frame, Orientation};

/// The channels of pictures, and what their values mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelFormat {
    /// The channels, in their order.
    pub color: ImageColor,
    /// The bits of a value.
    pub depth: ImageDepth,
}

impl ChannelFormat {
    /// Returns the number of channels.
    #[must_use]
    pub const fn channels(self) -> usize {
        self.color.channels() as usize
    }

    /// Returns the value of white, and of full opacity.
    #[must_use]
    pub const fn full(self) -> f32 {
        match self.depth {
            ImageDepth::Bits8 => 255.0,
            ImageDepth::Bits16 => 65_535.0,
            ImageDepth::Bits32 => 1.0,
        }
    }

    /// Returns the values of an opaque pixel of this colour. Values beyond the channels of the format are 0.
    #[must_use]
    pub fn of_rgb(self, rgb: [u8; 3]) -> [f32; 4] {
        self.of_pixel(rgb.map(|value| f32::from(value) * (self.full() / 255.0)), self.full())
    }

    /// Returns the values of a pixel of this colour and opacity.
    fn of_pixel(self, [r, g, b]: [f32; 3], alpha: f32) -> [f32; 4] {
        // The weights of Pillow's `L`. Grey values stay as they are.
        let gray = if r == g && g == b { r } else { (19_595.0 * r + 38_470.0 * g + 7_471.0 * b) / 65_536.0 };
        match self.color {
            ImageColor::Rgb => [r, g, b, 0.0],
            ImageColor::Bgr => [b, g, r, 0.0],
            ImageColor::Rgba => [r, g, b, alpha],
            ImageColor::Gray => [gray, 0.0, 0.0, 0.0],
            ImageColor::GrayAlpha => [gray, alpha, 0.0, 0.0],
        }
    }
}

/// A picture whose pixels are floats.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelPicture {
    /// The values, pixel by pixel and row by row.
    pub values: Vec<f32>,
    /// Width and height.
    pub size: [u32; 2],
    /// The channels.
    pub format: ChannelFormat,
}

impl ChannelPicture {
    /// Makes a picture whose values are all 0: black, and transparent if it can be.
    #[must_use]
    pub fn new(format: ChannelFormat, size: [u32; 2]) -> Self {
        let values = vec![0.0; size[0] as usize * size[1] as usize * format.channels()];
        Self { values, size, format }
    }

    /// Returns the bytes of a picture of this size.
    #[must_use]
    pub fn bytes(format: ChannelFormat, [width, height]: [u32; 2]) -> u64 {
        u64::from(width) * u64::from(height) * (format.channels() * size_of::<f32>()) as u64
    }

    /// Returns the picture resampled by a plan.
    #[must_use]
    pub fn resampled(&self, plan: &ResamplePlan) -> Self {
        let mut result = Self::new(self.format, plan.size);
        let Some((spans, frame)) = Orientation::default().frame(plan, self.size) else { return result };
        let row_values = self.size[0] as usize * self.format.channels();
        let rows = |at: usize, row: &mut [f32]| row.copy_from_slice(&self.values[at * row_values..][..row_values]);
        let resampled = resample(rows, self.format, self.size[0], spans, plan.filter);
        result.place(&resampled, &frame);
        result
    }

    /// Returns the bytes that [`resampled`](Self::resampled) uses for a picture of this format and size besides the picture.
    #[must_use]
    pub fn resample_bytes(format: ChannelFormat, size: [u32; 2], plan: &ResamplePlan) -> u64 {
        let spans = plan.x.zip(plan.y).map_or(0, |(x, y)| resample_bytes(format, size, [x, y], plan.filter));
        Self::bytes(format, plan.size) + spans
    }

    /// Writes the upright 8-bit RGB pixels of a frame to their place.
    pub(crate) fn place_rgb(&mut self, rgb: &[u8], frame: &Frame) {
        let format = self.format;
        let values = |rgb: &[u8; 3]| format.of_rgb(*rgb).into_iter().take(format.channels());
        let values: Vec<f32> = rgb.as_chunks().0.iter().flat_map(values).collect();
        self.place(&values, &Frame { orientation: Orientation::default(), ..*frame });
    }

    /// Writes the resampled pixels of a frame to their place.
    pub(crate) fn place(&mut self, resampled: &[f32], frame: &Frame) {
        let (channels, width) = (self.format.channels(), self.size[0] as usize);
        let [columns, rows] = frame.pixels.map(|side| side as usize);
        let [left, top] = frame.place.map(|place| place as usize);
        for y in 0..rows {
            let source = crate::writer::OutputRow::new(frame.orientation, [columns, rows], y, channels);
            let row = &mut self.values[((top + y) * width + left) * channels..][..columns * channels];
            for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
                pixel.copy_from_slice(&resampled[source.at(x)..][..channels]);
            }
        }
    }
}

/// Resamples a picture that is `width` pixels wide, whose rows `row_at` writes. Colours are weighted by their opacity.
/// Values are summed in one order, so that the result has the same bits on every machine.
pub(crate) fn resample(
    mut row_at: impl FnMut(usize, &mut [f32]),
    format: ChannelFormat,
    width: u32,
    [x, y]: [AxisSpan; 2],
    filter: Filter,
) -> Vec<f32> {
    let (columns, rows) = (taps(x, filter), taps(y, filter));
    let channels = format.channels();
    let is_weighted = format.color.has_alpha() && columns.iter().chain(&rows).any(|taps| taps.weights.len() > 1);
    let first = rows.iter().map(|taps| taps.first).min().unwrap_or(0);
    let end = rows.iter().map(|taps| taps.first + taps.weights.len()).max().unwrap_or(0);
    let mut row = vec![0.0; width as usize * channels];
    let narrow_values = columns.len() * channels;
    let mut narrowed = vec![0.0; (end - first) * narrow_values];
    for (at, narrow) in (first..end).zip(narrowed.chunks_exact_mut(narrow_values)) {
        row_at(at, &mut row);
        if is_weighted {
            row.chunks_exact_mut(channels).for_each(|pixel| multiply(pixel, format.full()));
        }
        for (pixel, PixelTaps { first, weights }) in narrow.chunks_exact_mut(channels).zip(&columns) {
            for (from, weight) in row[first * channels..].chunks_exact(channels).zip(weights) {
                pixel.iter_mut().zip(from).for_each(|(sum, value)| *sum += value * weight);
            }
        }
    }
    cut_off(&mut narrowed, format);
    let mut out = vec![0.0; rows.len() * narrow_values];
    for (row, taps) in out.chunks_exact_mut(narrow_values).zip(&rows) {
        let from = narrowed[(taps.first - first) * narrow_values..].chunks_exact(narrow_values);
        for (from, weight) in from.zip(&taps.weights) {
            row.iter_mut().zip(from).for_each(|(sum, value)| *sum += value * weight);
        }
    }
    if is_weighted {
        out.chunks_exact_mut(channels).for_each(|pixel| divide(pixel, format.full()));
    }
    cut_off(&mut out, format);
    out
}

/// Clamps values that filters with negative weights bring beyond the range, after each direction as Pillow does.
/// Formats of floats have no range.
fn cut_off(values: &mut [f32], format: ChannelFormat) {
    if format.depth != ImageDepth::Bits32 {
        values.iter_mut().for_each(|value| *value = value.clamp(0.0, format.full()));
    }
}

/// Returns the bytes that [`resample`] uses, with its result.
pub(crate) fn resample_bytes(
    format: ChannelFormat,
    [width, height]: [u32; 2],
    [x, y]: [AxisSpan; 2],
    filter: Filter,
) -> u64 {
    let taps = |span: AxisSpan| {
        let of_support = span.extent.max(f64::from(span.pixels)) * 2.0 * filter.support() as f64;
        // A weight is computed in 8 bytes and kept in 4; each pixel has a list of its weights.
        of_support as u64 * 12 + u64::from(span.pixels) * 64
    };
    let pixels = u64::from(x.pixels) * (u64::from(height) + u64::from(y.pixels)) + u64::from(width);
    pixels * (format.channels() * size_of::<f32>()) as u64 + taps(x) + taps(y)
}

/// Multiplies the colours of a pixel by its opacity.
fn multiply(pixel: &mut [f32], full: f32) {
    let (alpha, colors) = pixel.split_last_mut().expect("a channel of opacity");
    colors.iter_mut().for_each(|color| *color *= *alpha / full);
}

/// Divides the colours of a pixel by its opacity; the colours of a transparent pixel become 0.
fn divide(pixel: &mut [f32], full: f32) {
    let (alpha, colors) = pixel.split_last_mut().expect("a channel of opacity");
    let factor = if *alpha > 0.0 { full / *alpha } else { 0.0 };
    colors.iter_mut().for_each(|color| *color *= factor);
}
