//! The operation `resize`.

use serde::{Deserialize, Serialize};

use super::{Interpolation, Operation,
    kind::{NumberedOperation, check_size}, sampling::{antialias, is_default, is_default_antialias}};
use crate::{KeyProblem, Size};

/// Resizes: one number gives the shorter side and keeps the aspect ratio, two give height and width.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Size of the result.
    pub size: Size,
    /// How pixels are weighted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interpolation: Interpolation,
    /// Whether the weights of a picture that becomes smaller take in all of its pixels.
    #[serde(default = "antialias", skip_serializing_if = "is_default_antialias")]
    pub antialias: bool,
    /// Whether a JPEG is decoded in full size before it is resized, as torchvision does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full_decode: bool,
}

impl Resize {
    /// Resizes with the default weights.
    #[must_use]
    pub const fn to(size: Size) -> Self {
        Self { size, interpolation: Interpolation::Bilinear, antialias: true, full_decode: false }
    }
}

impl From<Size> for Resize {
    fn from(size: Size) -> Self {
        Self::to(size)
    }
}

impl NumberedOperation for Resize {
    type Form = Size;

    fn form(&self) -> Option<Size> {
        (*self == Self::to(self.size)).then_some(self.size)
    }
}

impl Operation for Resize {
    const NAME: &'static str = "resize";
    const SINCE: &'static str = "0.1.0";
    const KEYS: &'static [&'static str] = &["size", "interpolation", "antialias", "full_decode"];
    const EXAMPLE: &'static str = "{ size = 256 }";

    fn only_moves(&self) -> bool {
        true
    }

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        match self.size {
            Size::HeightWidth(size) => Some(size),
            Size::Square(_) => None,
        }
    }

    fn check(&self) -> Result<(), KeyProblem> {
        self.interpolation.check(self.antialias)?;
        check_size(self.size)
    }
}
