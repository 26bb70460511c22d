//! The operation `random_resized_crop`.

use serde::{Deserialize, Serialize};

use super::{Operation, kind::check_size};
use crate::job::{KeyProblem, Size};

/// Crops a random rectangle and resizes it (Szegedy et al., CVPR 2015; torchvision's sampling).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Size of the result.
    pub size: Size,
    /// Range of the crop's area as a fraction of the picture's.
    #[serde(default = "scale")]
    pub scale: [f32; 2],
    /// Range of the crop's aspect ratio (width / height).
    #[serde(default = "ratio")]
    pub ratio: [f32; 2],
}

const fn scale() -> [f32; 2] {
    [0.08, 1.0]
}

const fn ratio() -> [f32; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

impl Operation for RandomResizedCrop {
    const NAME: &'static str = "random_resized_crop";
    const SINCE: &'static str = "0.1.0";
    const KEYS: &'static [&'static str] = &["size", "scale", "ratio"];
    const EXAMPLE: &'static str = "{ size = 224 }";

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        Some(self.size.height_width())
    }

    fn check(&self) -> Result<(), KeyProblem> {
        let Self { size, scale, ratio } = self;
        let ordered = |[low, high]: [f32; 2]| low > 0.0 && low <= high && high.is_finite();
        if !ordered(*scale) || scale[1] > 1.0 {
            return Err(("scale", format!("is {scale:?}; give [low, high] with 0 < low <= high <= 1")));
        }
        if !ordered(*ratio) {
            return Err(("ratio", format!("is {ratio:?}; give [low, high] with 0 < low <= high")));
        }
        check_size(*size)
    }
}
