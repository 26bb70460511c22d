//! Crops and resizes in one pass: antialiased bilinear as in PIL, where the triangle's support grows with the scale.

use crate::{
    AxisSpan,
    resize::{Area, Filter, Picture, Resizer},
};

/// Resizes pictures, and reuses its buffers.
#[derive(Debug, Default)]
pub struct Resampler(Resizer);

impl Resampler {
    /// Writes `y.pixels` rows of `x.pixels` RGB pixels to `out`, from a picture of `width` x `height` RGB pixels.
    pub(crate) fn resample(
        &mut self,
        pixels: &[u8],
        [width, height]: [u32; 2],
        x: AxisSpan,
        y: AxisSpan,
        out: &mut [u8],
    ) {
        let (left, area_width) = within(x, x.readable.1 - x.readable.0);
        let (top, area_height) = within(y, y.readable.1 - y.readable.0);
        let area = Area { left, top, width: area_width, height: area_height };
        let picture = Picture { pixels, width, height };
        self.0.resize(picture, [x.readable, y.readable], area, Filter::Bilinear, out, [x.pixels, y.pixels]);
    }

    /// Writes one row of `x.pixels` RGB pixels to `out`, from a row of `width` pixels.
    pub(super) fn resample_row(&mut self, row: &[u8], width: u32, x: AxisSpan, out: &mut [u8]) {
        let whole = AxisSpan { readable: (0, 1), from: 0.0, extent: 1.0, place: 0, pixels: 1, size: 1 };
        self.resample(row, [width, 1], x, whole, out);
    }

    /// Returns the bytes that [`resample`](Self::resample) uses in addition to the picture and the result.
    pub(crate) fn scratch_bytes([width, _]: [u32; 2], [x, y]: [AxisSpan; 2]) -> u64 {
        let weights =
            |span: AxisSpan| (span.extent.max(f64::from(span.pixels)) * 2.0 + 3.0 * f64::from(span.pixels)) as u64 * 10;
        u64::from(width) * u64::from(y.pixels) * 3 + weights(x) + weights(y)
    }

    /// Keeps at most `bytes` for the next picture.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.0.shrink_to(bytes);
    }
}

/// Returns start and length relative to the readable range; rounding never exceeds that range.
pub(super) fn within(span: AxisSpan, readable: u32) -> (f64, f64) {
    let limit = f64::from(readable);
    let from = (span.from - f64::from(span.readable.0)).clamp(0.0, limit);
    let mut extent = span.extent.min(limit - from);
    // The difference can be rounded up so that the sum exceeds the limit by one unit in the last place.
    while from + extent > limit {
        extent = extent.next_down();
    }
    (from, extent)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a span of `pixels` pixels for the part of a side that starts at `from` and is `extent` long.
    pub(in crate::picture) fn span(readable: (u32, u32), from: f64, extent: f64, pixels: u32) -> AxisSpan {
        AxisSpan { readable, from, extent, place: 0, pixels, size: pixels }
    }
}
