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
