//! The operation `random_perspective`.

use serde::{Deserialize, Serialize};

use super::{
    Fill, Operation, WarpInterpolation,
    kind::{check_probability, half},
};
use crate::KeyProblem;

/// Moves the corners inwards by random amounts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomPerspective {
    /// The farthest move of a corner, as a share of half the width and height.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub distortion_scale: f32,
    /// Probability.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
    /// How values between pixels are made.
    #[serde(default = "WarpInterpolation::bilinear")]
    pub interpolation: WarpInterpolation,
    /// Colour of what lies beyond the picture.
    #[serde(default)]
    pub fill: Fill,
}

impl Operation for RandomPerspective {
    const NAME: &'static str = "random_perspective";
    const KEYS: &'static [&'static str] = &["distortion_scale", "p", "interpolation", "fill"];
    const EXAMPLE: &'static str = "{ distortion_scale = 0.5, p = 0.5 }";

    fn check(&self) -> Result<(), KeyProblem> {
        if !(0.0..=1.0).contains(&self.distortion_scale) {
            return Err(("distortion_scale", format!("is {}, not in 0..1", self.distortion_scale)));
        }
        check_probability(Self::NAME, self.p)
    }
}
