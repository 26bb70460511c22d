//! The eight ways a stored picture can lie, as EXIF numbers them.

use image::metadata::Orientation as ExifOrientation;

use crate::decode::geometry::AxisSpan;

/// How a stored picture is turned to be seen upright: its axes exchanged first, then read from their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orientation {
    /// What is seen across is stored down.
    pub(crate) transposed: bool,
    /// The stored picture's columns are read from the last.
    pub(crate) columns_reversed: bool,
    /// The stored picture's rows are read from the last.
    pub(crate) rows_reversed: bool,
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
    /// Width and height as seen, of a picture stored with these.
    pub(crate) const fn seen(self, [width, height]: [u32; 2]) -> [u32; 2] {
        if self.transposed { [height, width] } else { [width, height] }
    }

    /// The same, seen in a mirror that stands left or right of it.
    pub(crate) const fn mirrored(mut self) -> Self {
        if self.transposed {
            self.rows_reversed = !self.rows_reversed;
        } else {
            self.columns_reversed = !self.columns_reversed;
        }
        self
    }

    /// Turns a plan for the picture as seen (across, down) into one for the picture as stored, whose width and height
    /// are given. Places in the result stay places in the result as seen.
    pub(crate) fn stored(self, [x, y]: [AxisSpan; 2], [width, height]: [u32; 2]) -> [AxisSpan; 2] {
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
