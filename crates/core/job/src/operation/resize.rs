//! The operation `resize`.

use serde::{Deserialize, Serialize};

use super::{
    Interpolation, Operation, OperationProblem, PicturePlanner,
    kind::check_size,
    sampling::{antialias, is_default, is_default_antialias},
};
use crate::{KeyProblem, Size};

/// Resizes. One number is the length of the shorter side and keeps the aspect ratio; `[height, width]` is exact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Size of the result.
    pub size: Size,
    /// How pixels are weighted, as in Pillow and torchvision. All but `bilinear` work on the decoded picture or crop,
    /// which takes longer: a JPEG is then decoded in full size. Default: `bilinear`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interpolation: Interpolation,
    /// Whether the weights of a picture that becomes smaller take in all of its pixels. `false`, with `bilinear`,
    /// weights only the four pixels around, as OpenCV does. Default: `true`.
    #[serde(default = "antialias", skip_serializing_if = "is_default_antialias")]
    pub antialias: bool,
    /// Whether a JPEG is decoded in full size before it is resized, for torchvision's pixels. Decoding then takes
    /// longer: several times where pictures are much larger than the result. Default: `false`.
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

impl Operation for Resize {
    const NAME: &'static str = "resize";
    const KEYS: &'static [&'static str] = &["size", "interpolation", "antialias", "full_decode"];
    const EXAMPLE: &'static str = "{ size = 256 }";
    const ONLY_MOVES: bool = true;

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

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        let size = match self.size {
            Size::Square(short) => shorter_side(planner.size(), short),
            Size::HeightWidth(size) => size,
        };
        planner.resize(size, self.interpolation, self.antialias, self.full_decode);
        Ok(())
    }
}

/// Computes the size that torchvision's `resize` gives for one number: the longer side is rounded down.
fn shorter_side([width, height]: [u32; 2], short: u32) -> [u32; 2] {
    let long = |long: u32, side: u32| {
        let pixels = u64::from(short) * u64::from(long) / u64::from(side);
        u32::try_from(pixels).expect("both factors are bounded by the limits on pictures and sizes")
    };
    if width <= height { [long(height, width), short] } else { [short, long(width, height)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_side_is_torchvisions() {
        assert_eq!(shorter_side([500, 375], 256), [256, 341]);
        assert_eq!(shorter_side([375, 500], 256), [341, 256]);
        assert_eq!(shorter_side([1, 16_384], 16_384), [268_435_456, 16_384]);
    }
}
