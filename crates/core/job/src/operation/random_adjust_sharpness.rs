//! The operation `random_adjust_sharpness`.

use serde::{Deserialize, Serialize};
use spdl_canvas::PixelOp;

use super::{
    Operation, OperationProblem, PicturePlanner,
    kind::{check_probability, half},
};
use crate::KeyProblem;

/// Sharpens or smooths the picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomAdjustSharpness {
    /// 0 smooths, 1 changes nothing, 2 sharpens.
    #[schemars(range(min = 0, max = 1000))]
    pub sharpness_factor: f32,
    /// Probability.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
}

impl Operation for RandomAdjustSharpness {
    const NAME: &'static str = "random_adjust_sharpness";
    const KEYS: &'static [&'static str] = &["sharpness_factor", "p"];
    const EXAMPLE: &'static str = "{ sharpness_factor = 2 }";

    fn check(&self) -> Result<(), KeyProblem> {
        if !(0.0..=1000.0).contains(&self.sharpness_factor) {
            return Err(("sharpness_factor", format!("is {}, not in 0..1000", self.sharpness_factor)));
        }
        check_probability(Self::NAME, self.p)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        if planner.happens(self.p) {
            planner.change(PixelOp::Sharpness(self.sharpness_factor));
        }
        Ok(())
    }
}
