//! Crops and resizes in one pass: antialiased bilinear as in PIL, where the triangle's support grows with the scale.

use fast_image_resize::{
    FilterType, ResizeAlg, ResizeOptions, Resizer,
    images::{TypedCroppedImage, TypedImage, TypedImageRef},
    pixels::U8x3,
};

use crate::decode::geometry::AxisSpan;

/// Resizes pictures, and reuses its buffers.
#[derive(Default)]
pub(crate) struct Resampler(Resizer);

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
        assert_eq!(pixels.len(), width as usize * height as usize * 3, "bytes of a picture of {width}x{height}");
        assert_eq!(out.len(), x.pixels as usize * y.pixels as usize * 3, "bytes of {}x{}", x.pixels, y.pixels);
        const PLANNED: &str = "a plan lies inside of its picture";
        let picture = TypedImageRef::<U8x3>::from_buffer(width, height, pixels).expect(PLANNED);
        let (readable_width, readable_height) = (x.readable.1 - x.readable.0, y.readable.1 - y.readable.0);
        let readable = TypedCroppedImage::new(picture, x.readable.0, y.readable.0, readable_width, readable_height)
            .expect(PLANNED);
        let (left, extent_x) = within(x, readable_width);
        let (top, extent_y) = within(y, readable_height);
        let mut target = TypedImage::<U8x3>::from_buffer(x.pixels, y.pixels, out).expect(PLANNED);
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .crop(left, top, extent_x, extent_y)
            .use_alpha(false);
        self.0.resize_typed(&readable, &mut target, &options).expect(PLANNED);
    }
}

impl Resampler {
    /// Writes one row of `x.pixels` RGB pixels to `out`, from a row of `width` pixels.
    pub(super) fn resample_row(&mut self, row: &[u8], width: u32, x: AxisSpan, out: &mut [u8]) {
        let whole = AxisSpan { readable: (0, 1), from: 0.0, extent: 1.0, place: 0, pixels: 1, size: 1 };
        self.resample(row, [width, 1], x, whole, out);
    }

    /// Returns the bytes that [`resample`](Self::resample) uses in addition to the picture and the result.
    pub(super) fn scratch_bytes([width, _]: [u32; 2], [x, y]: [AxisSpan; 2]) -> u64 {
        let weights =
            |span: AxisSpan| (span.extent.max(f64::from(span.pixels)) * 2.0 + 3.0 * f64::from(span.pixels)) as u64 * 10;
        u64::from(width) * u64::from(y.pixels) * 3 + weights(x) + weights(y)
    }

    /// Keeps at most `bytes` for the next picture.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        if self.0.size_of_internal_buffers() > bytes {
            self.0.reset_internal_buffers();
        }
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
    pub(in crate::decode::picture) fn span(readable: (u32, u32), from: f64, extent: f64, pixels: u32) -> AxisSpan {
        AxisSpan { readable, from, extent, place: 0, pixels, size: pixels }
    }

    /// Returns a resampler that uses no vector instructions.
    #[allow(unsafe_code)]
    fn portable() -> Resampler {
        let mut resizer = Resizer::new();
        // SAFETY: without extensions only baseline instructions are used, which every processor has.
        unsafe { resizer.set_cpu_extensions(fast_image_resize::CpuExtensions::None) };
        Resampler(resizer)
    }

    #[test]
    fn vector_instructions_do_not_change_the_result() {
        let bytes = include_bytes!("../../../tests/data/chelsea.jpg");
        let picture = image::load_from_memory(bytes).unwrap().to_rgb8();
        for (x, y) in [
            (span((0, 240), 0.0, 240.0, 224), span((0, 160), 0.0, 160.0, 224)),
            (span((0, 240), 0.0, 240.0, 17), span((0, 160), 0.0, 160.0, 5)),
            (span((13, 90), 13.0, 77.0, 224), span((5, 160), 5.0, 155.0, 31)),
            (span((0, 240), 10.3, 100.7, 64), span((0, 160), 1.9, 150.2, 64)),
            (span((7, 8), 7.0, 1.0, 9), span((159, 160), 159.0, 1.0, 3)),
        ] {
            let mut outs = [portable(), Resampler::default()].map(|mut resampler| {
                let mut out = vec![0; (x.pixels * y.pixels * 3) as usize];
                resampler.resample(&picture, [240, 160], x, y, &mut out);
                out
            });
            let [portable, vector] = &mut outs;
            assert!(portable == vector, "{x:?} {y:?}");
        }
    }
}
