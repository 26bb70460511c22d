//! The eight orientations of a stored picture, as EXIF numbers them.

use image::metadata::Orientation as ExifOrientation;
use spdl_canvas::{AxisSpan, ResamplePlan};

use crate::Frame;

/// The transformation that turns a stored picture upright: the axes are exchanged first, then read from their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orientation {
    /// Whether the upright picture's rows are the stored picture's columns.
    pub transposed: bool,
    /// Whether the stored picture's columns are read from the last one.
    pub columns_reversed: bool,
    /// Whether the stored picture's rows are read from the last one.
    pub rows_reversed: bool,
}

impl From<ExifOrientation> for Orientation {
    fn from(orientation: ExifOrientation) -> Self {
        let (transposed, columns_reversed, rows_reversed) = match orientation {
            ExifOrientation::NoTransforms => (false, false, false),
            ExifOrientation::FlipHorizontal => (false, true, false),
            ExifOrientation::Rotate180 => (false, true, true),
            ExifOrientation::FlipVertical => (false, false, true),
            ExifOrientation::Rotate90FlipH => (true, false, false),
            ExifOrientation::Rotate90 => (true, false, true),
            ExifOrientation::Rotate270FlipH => (true, true, true),
            ExifOrientation::Rotate270 => (true, true, false),
        };
        Self { transposed, columns_reversed, rows_reversed }
    }
}

impl Orientation {
    /// Returns the upright width and height of a picture with this stored width and height.
    pub const fn seen(self, [width, height]: [u32; 2]) -> [u32; 2] {
        if self.transposed { [height, width] } else { [width, height] }
    }

    /// Returns the orientation of the picture mirrored left to right.
    pub const fn mirrored(mut self) -> Self {
        if self.transposed {
            self.rows_reversed = !self.rows_reversed;
        } else {
            self.columns_reversed = !self.columns_reversed;
        }
        self
    }

    /// Returns the orientation of the picture mirrored top to bottom.
    pub const fn flipped(mut self) -> Self {
        if self.transposed {
            self.columns_reversed = !self.columns_reversed;
        } else {
            self.rows_reversed = !self.rows_reversed;
        }
        self
    }

    /// Returns the spans of a plan in the picture as stored, and where their pixels are in the result; `None` if the result is black.
    #[must_use]
    pub fn frame(self, plan: &ResamplePlan, stored: [u32; 2]) -> Option<([AxisSpan; 2], Frame)> {
        let (x, y) = (plan.x?, plan.y?);
        let spans = self.stored([x, y], stored);
        let orientation = if plan.mirrored { self.mirrored() } else { self };
        let orientation = if plan.flipped { orientation.flipped() } else { orientation };
        let left = if plan.mirrored { x.size - x.place - x.pixels } else { x.place };
        let top = if plan.flipped { y.size - y.place - y.pixels } else { y.place };
        Some((spans, Frame { place: [left, top], pixels: [x.pixels, y.pixels], orientation }))
    }

    /// Converts a plan for the upright picture (horizontal, vertical) into one for the stored picture, whose width and
    /// height are given. Places in the result still refer to the upright result.
    pub fn stored(self, [x, y]: [AxisSpan; 2], [width, height]: [u32; 2]) -> [AxisSpan; 2] {
        let [x, y] = if self.transposed { [y, x] } else { [x, y] };
        [
            if self.columns_reversed { reversed(x, width) } else { x },
            if self.rows_reversed { reversed(y, height) } else { y },
        ]
    }
}

fn reversed(span: AxisSpan, size: u32) -> AxisSpan {
    AxisSpan {
        readable: (size - span.readable.1, size - span.readable.0),
        from: f64::from(size) - (span.from + span.extent),
        ..span
    }
}
