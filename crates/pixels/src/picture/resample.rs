//! Crops and resizes in one pass. The default filter is antialiased bilinear as in PIL: the triangle's support grows
//! with the scale.

use spdl_canvas::{AxisSpan, Filter, ResamplePlan};

use crate::{
    Orientation, PixelWriter,
    resize::{Area, Picture, Resizer},
    span::within,
};

/// Resizes pictures, and reuses its buffers.
#[derive(Debug, Default)]
pub struct Resampler {
    resizer: Resizer,
    /// Buffer for a picture that is resized in width and not yet in height.
    narrowed: Vec<u8>,
}

impl Resampler {
    /// Applies a plan to a decoded picture, RGB of this width and height, and writes the result to `out`.
    pub fn apply(&mut self, plan: &ResamplePlan, rgb: &[u8], size: [u32; 2], out: &mut Vec<u8>) {
        let writer = PixelWriter::of_rgb(plan.size);
        out.clear();
        out.resize(writer.bytes(), 0);
        let Some(([x, y], frame)) = Orientation::default().frame(plan, size) else { return };
        if writer.takes_as_is(&frame) {
            self.resample(rgb, size, (x, y), plan.filter, out);
            return;
        }
        let mut resampled = vec![0; x.pixels as usize * y.pixels as usize * 3];
        self.resample(rgb, size, (x, y), plan.filter, &mut resampled);
        writer.write(&resampled, &frame, out);
    }

    /// Returns the bytes that [`apply`](Self::apply) takes for a picture of this width and height besides the picture
    /// and the result.
    #[must_use]
    pub fn apply_bytes(plan: &ResamplePlan, size: [u32; 2]) -> u64 {
        let (Some(x), Some(y)) = (plan.x, plan.y) else { return 0 };
        Self::scratch_bytes(size, [x, y], plan.filter) + u64::from(x.pixels) * u64::from(y.pixels) * 3
    }

    /// Writes `y.pixels` rows of `x.pixels` RGB pixels to `out`, from a picture of `width` x `height` RGB pixels.
    pub(super) fn resample(
        &mut self,
        pixels: &[u8],
        [width, height]: [u32; 2],
        (x, y): (AxisSpan, AxisSpan),
        filter: Filter,
        out: &mut [u8],
    ) {
        if filter.overshoots() && (x.extent != f64::from(x.pixels)) && (y.extent != f64::from(y.pixels)) {
            return self.resample_width_first(pixels, [width, height], (x, y), filter, out);
        }
        let (left, area_width) = within(x, x.readable.1 - x.readable.0);
        let (top, area_height) = within(y, y.readable.1 - y.readable.0);
        let area = Area { left, top, width: area_width, height: area_height };
        let picture = Picture { pixels, width, height };
        self.resizer.resize(picture, [x.readable, y.readable], area, filter, out, [x.pixels, y.pixels]);
    }

    /// Like `resample`, but resizes the width first, as Pillow does.
    fn resample_width_first(
        &mut self,
        pixels: &[u8],
        size: [u32; 2],
        (x, y): (AxisSpan, AxisSpan),
        filter: Filter,
        out: &mut [u8],
    ) {
        let whole = |pixels: u32| AxisSpan {
            readable: (0, pixels),
            from: 0.0,
            extent: pixels.into(),
            place: 0,
            pixels,
            size: pixels,
        };
        let (first, end) = y.readable;
        let rows = AxisSpan { readable: y.readable, from: first.into(), ..whole(end - first) };
        let mut narrowed = std::mem::take(&mut self.narrowed);
        narrowed.resize(x.pixels as usize * rows.pixels as usize * 3, 0);
        self.resample(pixels, size, (x, rows), filter, &mut narrowed);
        let y = AxisSpan { readable: (0, rows.pixels), from: y.from - f64::from(first), ..y };
        self.resample(&narrowed, [x.pixels, rows.pixels], (whole(x.pixels), y), filter, out);
        self.narrowed = narrowed;
    }

    /// Writes one row of `x.pixels` RGB pixels to `out`, from a row of `width` pixels.
    pub(super) fn resample_row(&mut self, row: &[u8], width: u32, x: AxisSpan, out: &mut [u8]) {
        let whole = AxisSpan { readable: (0, 1), from: 0.0, extent: 1.0, place: 0, pixels: 1, size: 1 };
        self.resample(row, [width, 1], (x, whole), Filter::default(), out);
    }

    /// Returns the bytes that [`resample`](Self::resample) uses in addition to the picture and the result.
    pub(super) fn scratch_bytes([width, height]: [u32; 2], [x, y]: [AxisSpan; 2], filter: Filter) -> u64 {
        let weights = |span: AxisSpan| {
            let of_support = span.extent.max(f64::from(span.pixels)) * 2.0 * filter.support() as f64;
            (of_support + 3.0 * f64::from(span.pixels)) as u64 * 10
        };
        let between = if filter.overshoots() {
            u64::from(x.pixels) * u64::from(height)
        } else {
            u64::from(width) * u64::from(y.pixels)
        };
        between * 3 + weights(x) + weights(y)
    }

    /// Keeps at most `bytes` for the next picture.
    pub fn shrink_to(&mut self, bytes: usize) {
        if self.narrowed.capacity() > bytes {
            self.narrowed = Vec::new();
        }
        self.resizer.shrink_to(bytes);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a span of `pixels` pixels for the part of a side that starts at `from` and is `extent` long.
    pub(in crate::picture) fn span(readable: (u32, u32), from: f64, extent: f64, pixels: u32) -> AxisSpan {
        AxisSpan { readable, from, extent, place: 0, pixels, size: pixels }
    }
}
