//! The operation `random_erasing`.

use serde::{Deserialize, Serialize};

use super::{
    Fill, Operation,
    kind::{check_probability, half},
};
use crate::KeyProblem;

/// Paints a random rectangle (Zhong et al., AAAI 2020; torchvision's sampling).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomErasing {
    /// Probability.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
    /// The range of the rectangle's area, as a share of the picture's, 0 to 1.
    #[serde(default = "scale")]
    pub scale: [f32; 2],
    /// The range of the rectangle's aspect ratio, height / width.
    #[serde(default = "ratio")]
    pub ratio: [f32; 2],
    /// Colour of the rectangle.
    #[serde(default)]
    pub value: Fill,
}

const fn scale() -> [f32; 2] {
    [0.02, 0.33]
}

const fn ratio() -> [f32; 2] {
    [0.3, 3.3]
}

impl Operation for RandomErasing {
    const NAME: &'static str = "random_erasing";
    const KEYS: &'static [&'static str] = &["p", "scale", "ratio", "value"];
    const EXAMPLE: &'static str = "{ p = 0.25 }";

    fn check(&self) -> Result<(), KeyProblem> {
        let Self { p, scale, ratio, .. } = self;
        if !(0.0 <= scale[0] && scale[0] <= scale[1] && scale[1] <= 1.0) {
            return Err(("scale", format!("is {scale:?}; give [low, high] with 0 <= low <= high <= 1")));
        }
        if !(1e-6 <= ratio[0] && ratio[0] <= ratio[1] && ratio[1] <= 1e6) {
            return Err(("ratio", format!("is {ratio:?}; give [low, high] with 0 < low <= high")));
        }
        check_probability(Self::NAME, *p)
    }
}
