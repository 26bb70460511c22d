//! The operation `random_resized_crop`.

use serde::{Deserialize, Serialize};

use super::{
    Interpolation, Operation,
    kind::check_size,
    sampling::{antialias, is_default, is_default_antialias},
};
use crate::{KeyProblem, Size};

/// Crops a random rectangle and resizes it to `size` (Szegedy et al., CVPR 2015; torchvision's sampling).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Size of the result.
    pub size: Size,
    /// The range of the crop's area, as a share of the picture's.
    #[serde(default = "scale")]
    pub scale: [f32; 2],
    /// The range of the crop's aspect ratio, width / height.
    #[serde(default = "ratio")]
    pub ratio: [f32; 2],
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

const fn scale() -> [f32; 2] {
    [0.08, 1.0]
}

const fn ratio() -> [f32; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

impl Operation for RandomResizedCrop {
    const NAME: &'static str = "random_resized_crop";
    const KEYS: &'static [&'static str] = &["size", "scale", "ratio", "interpolation", "antialias", "full_decode"];
    const EXAMPLE: &'static str = "{ size = 224 }";

    fn only_moves(&self) -> bool {
        true
    }

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        Some(self.size.height_width())
    }

    fn check(&self) -> Result<(), KeyProblem> {
        let Self { size, scale, ratio, interpolation, antialias, full_decode: _ } = self;
        let ordered = |[low, high]: [f32; 2]| low > 0.0 && low <= high && high.is_finite();
        if !ordered(*scale) || scale[1] > 1.0 {
            return Err(("scale", format!("is {scale:?}; give [low, high] with 0 < low <= high <= 1")));
        }
        if !ordered(*ratio) {
            return Err(("ratio", format!("is {ratio:?}; give [low, high] with 0 < low <= high")));
        }
        interpolation.check(*antialias)?;
        check_size(*size)
    }
}
