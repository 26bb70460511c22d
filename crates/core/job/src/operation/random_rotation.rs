//! The operation `random_rotation`.

use serde::{Deserialize, Serialize};

use super::{Fill, NumberOrRange, Operation, OperationProblem, PicturePlanner, WarpInterpolation, kind::check_degrees};
use crate::KeyProblem;

/// Rotates round the middle by a random angle, counter-clockwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomRotation {
    /// The range of the angle in degrees, counter-clockwise, -3600 to 3600. A number `n` is `[-n, n]`.
    pub degrees: NumberOrRange,
    /// How values between pixels are made.
    #[serde(default)]
    pub interpolation: WarpInterpolation,
    /// Whether the result is as large as the rotated picture needs, and not as large as the picture.
    #[serde(default)]
    pub expand: bool,
    /// Colour of what lies beyond the picture.
    #[serde(default)]
    pub fill: Fill,
}

impl Operation for RandomRotation {
    const NAME: &'static str = "random_rotation";
    const KEYS: &'static [&'static str] = &["degrees", "interpolation", "expand", "fill"];
    const EXAMPLE: &'static str = "{ degrees = 15 }";

    fn output_size(&self, before: Option<[u32; 2]>) -> Option<[u32; 2]> {
        if self.expand { None } else { before }
    }

    fn check(&self) -> Result<(), KeyProblem> {
        check_degrees("degrees", self.degrees)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        let [low, high] = self.degrees.around(0.0, f32::NEG_INFINITY);
        let angle = planner.draw.between(low.into(), high.into());
        planner.rotate(angle, self.expand, self.interpolation, Some(self.fill.0));
        Ok(())
    }
}
