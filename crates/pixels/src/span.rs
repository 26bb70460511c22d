//! Which part of a picture becomes which pixels, along one axis.

/// One dimension of a resampling: `extent` from `from` on becomes `pixels` pixels at `place` of `size`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AxisSpan {
    /// Pixels of the picture that may be read: the first one, and one past the last.
    pub readable: (u32, u32),
    /// Start in the picture.
    pub from: f64,
    /// Length in the picture; positive.
    pub extent: f64,
    /// First pixel of the result that shows the picture.
    pub place: u32,
    /// Number of pixels of the result that show the picture; at least 1.
    pub pixels: u32,
    /// Size of the result in pixels.
    pub size: u32,
}

/// Returns start and length relative to the readable range; rounding never exceeds that range.
pub(crate) fn within(span: AxisSpan, readable: u32) -> (f64, f64) {
    let limit = f64::from(readable);
    let from = (span.from - f64::from(span.readable.0)).clamp(0.0, limit);
    let mut extent = span.extent.min(limit - from);
    // The difference can be rounded up so that the sum exceeds the limit by one unit in the last place.
    while from + extent > limit {
        extent = extent.next_down();
    }
    (from, extent)
}
