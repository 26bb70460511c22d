//! Which pixels of a picture become which pixels of the result.

use crate::{AxisSpan, Frame, Orientation, PixelWriter, Resampler, resize::Filter};

/// Crops, a change of size, padding and mirroring, in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResamplePlan {
    /// The horizontal span; `None` in either dimension means that the result is all black.
    pub x: Option<AxisSpan>,
    /// The vertical span.
    pub y: Option<AxisSpan>,
    /// Whether the result is mirrored left to right.
    pub mirrored: bool,
    /// Whether the result is mirrored top to bottom.
    pub flipped: bool,
    /// Width and height of the result.
    pub size: [u32; 2],
    /// The filter with which a decoded picture is resampled. Pictures resampled while they are decoded always get the
    /// default.
    pub filter: Filter,
}

impl ResamplePlan {
    /// Returns the spans in the picture as stored, and where their pixels are in the result; `None` if the result is black.
    #[must_use]
    pub fn frame(&self, orientation: Orientation, stored: [u32; 2]) -> Option<([AxisSpan; 2], Frame)> {
        let (x, y) = (self.x?, self.y?);
        let spans = orientation.stored([x, y], stored);
        let orientation = if self.mirrored { orientation.mirrored() } else { orientation };
        let orientation = if self.flipped { orientation.flipped() } else { orientation };
        let left = if self.mirrored { x.size - x.place - x.pixels } else { x.place };
        let top = if self.flipped { y.size - y.place - y.pixels } else { y.place };
        Some((spans, Frame { place: [left, top], pixels: [x.pixels, y.pixels], orientation }))
    }

    /// Returns whether the plan changes nothing of a picture of this width and height.
    #[must_use]
    pub fn is_identity(&self, size: [u32; 2]) -> bool {
        let is_whole = |span: Option<AxisSpan>, side: u32| {
            let whole = AxisSpan {
                readable: (0, side),
                from: 0.0,
                extent: f64::from(side),
                place: 0,
                pixels: side,
                size: side,
            };
            span == Some(whole)
        };
        is_whole(self.x, size[0]) && is_whole(self.y, size[1]) && !self.mirrored && !self.flipped
    }

    /// Applies the plan to a decoded picture, RGB of this width and height, and writes the result to `out`.
    pub fn resample(&self, rgb: &[u8], size: [u32; 2], resampler: &mut Resampler, out: &mut Vec<u8>) {
        let writer = PixelWriter::of_rgb(self.size);
        out.clear();
        out.resize(writer.bytes(), 0);
        let Some(([x, y], frame)) = self.frame(Orientation::default(), size) else { return };
        if writer.takes_as_is(&frame) {
            resampler.resample(rgb, size, (x, y), self.filter, out);
            return;
        }
        let mut resampled = vec![0; x.pixels as usize * y.pixels as usize * 3];
        resampler.resample(rgb, size, (x, y), self.filter, &mut resampled);
        writer.write(&resampled, &frame, out);
    }

    /// Returns the bytes that [`resample`](Self::resample) takes for a picture of this width and height besides the picture
    /// and the result.
    #[must_use]
    pub fn scratch_bytes(&self, size: [u32; 2]) -> u64 {
        let (Some(x), Some(y)) = (self.x, self.y) else { return 0 };
        Resampler::scratch_bytes(size, [x, y], self.filter) + u64::from(x.pixels) * u64::from(y.pixels) * 3
    }
}
