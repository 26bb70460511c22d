//! How operations make values between pixels, as users write it.

use serde::{Deserialize, Serialize};

use crate::KeyProblem;

/// How pixels are weighted in a resize, as PIL and torchvision call it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// The nearest pixel, which is torchvision's `NEAREST_EXACT`.
    Nearest,
    /// A triangle.
    #[default]
    Bilinear,
    /// A cubic spline.
    Bicubic,
    /// A sinc over three pixels on each side.
    Lanczos,
    /// The mean of the pixels in the area.
    Box,
    /// A cosine window.
    Hamming,
}

impl Interpolation {
    /// Checks it together with `antialias`.
    pub(super) fn check(self, antialias: bool) -> Result<(), KeyProblem> {
        if antialias || matches!(self, Self::Nearest | Self::Bilinear) {
            return Ok(());
        }
        Err(("antialias", "is false; only `nearest` and `bilinear` have no antialiasing".to_owned()))
    }
}

/// The default of `antialias`.
pub(super) const fn antialias() -> bool {
    true
}

/// Returns whether a value is the default of `antialias`, which is not written.
pub(super) const fn is_default_antialias(antialias: &bool) -> bool {
    *antialias
}

/// Returns whether a value is the default of `interpolation`, which is not written.
pub(super) const fn is_default(interpolation: &Interpolation) -> bool {
    matches!(interpolation, Interpolation::Bilinear)
}

/// How a value between pixels is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WarpInterpolation {
    /// The nearest pixel.
    #[default]
    Nearest,
    /// The four pixels around.
    Bilinear,
}

impl WarpInterpolation {
    /// The default of `random_perspective`.
    pub(super) const fn bilinear() -> Self {
        Self::Bilinear
    }
}
