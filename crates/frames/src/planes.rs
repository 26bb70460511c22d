use spdl_media::VideoColor;

/// A decoded frame: the numbers of its pixels in planes, as the decoder has written them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePlanes<'b> {
    /// Width and height in pixels.
    pub size: [u32; 2],
    /// How its pixels lie in the planes.
    pub format: PlaneFormat,
    /// What the numbers mean, as the packets say it. What they leave open, the track may say.
    pub color: VideoColor,
    /// The planes: luma, blue difference (Cb) and red difference (Cr); of [`PlaneKind::Rgb`], red, green and blue. Those that
    /// the format does not have are empty.
    pub planes: [Plane<'b>; 3],
}

/// How the pixels of a frame lie in its planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneFormat {
    /// What the planes are.
    pub kind: PlaneKind,
    /// Bits of a number, 8 to 16. Numbers of more than 8 bits take two bytes each, the lower one first.
    pub bits: u8,
}

/// What the planes of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaneKind {
    /// Luma alone.
    Grey,
    /// Luma, and colour by two differences. A number of colour is for `1 << shift` pixels: in a row, and of a column. So 4:2:0 is
    /// `[1, 1]`, 4:2:2 `[1, 0]`, and 4:4:4 `[0, 0]`. A plane of colour is rounded up to whole numbers.
    Yuv {
        /// How many bits less the width and the height of a plane of colour have.
        shift: [u8; 2],
    },
    /// Red, green and blue.
    Rgb,
}

/// The numbers of one plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plane<'b> {
    /// Its rows from above to below.
    pub bytes: &'b [u8],
    /// Bytes from the beginning of a row to that of the next one.
    pub stride: usize,
}
