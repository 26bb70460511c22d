//! Which pixels of a picture become which pixels of the result.

use super::AxisSpan;

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
}

/// How pixels are weighted, as in PIL. Where the picture becomes smaller, the filter's support grows with the scale.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Filter {
    /// Takes the pixel at the middle of each pixel of the result, without weights.
    Nearest,
    /// Weights all pixels in the area of a pixel of the result equally.
    Box,
    /// A triangle, called bilinear in PIL.
    #[default]
    Bilinear,
    /// A triangle over the four nearest pixels, however much smaller the picture becomes.
    PlainBilinear,
    /// A cosine window with the support of a triangle.
    Hamming,
    /// A cubic spline, called bicubic in PIL; sharper.
    CatmullRom,
    /// A sinc over three pixels on each side, called Lanczos in PIL; the sharpest.
    Lanczos3,
}

impl Filter {
    /// All filters.
    pub const ALL: [Self; 7] = [
        Self::Nearest,
        Self::Box,
        Self::Bilinear,
        Self::PlainBilinear,
        Self::Hamming,
        Self::CatmullRom,
        Self::Lanczos3,
    ];

    /// Returns whether the filter has negative weights. Its values can exceed the range and are cut off, so the result
    /// depends on which axis is resized first.
    #[must_use]
    pub const fn overshoots(self) -> bool {
        matches!(self, Self::CatmullRom | Self::Lanczos3)
    }

    /// Returns half the width of the filter's support, in pixels of the larger of the picture and the result; at least
    /// 1.
    #[must_use]
    pub const fn support(self) -> u64 {
        match self {
            Self::Nearest | Self::Box | Self::Bilinear | Self::PlainBilinear | Self::Hamming => 1,
            Self::CatmullRom => 2,
            Self::Lanczos3 => 3,
        }
    }
}
