//! The operation `random_solarize`.

use serde::{Deserialize, Serialize};
use spdl_canvas::PixelOp;

use super::{
    Operation, OperationProblem, PicturePlanner,
    kind::{check_probability, half},
};
use crate::KeyProblem;

/// Inverts all values of at least `threshold`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomSolarize {
    /// The lowest value that is inverted.
    #[schemars(range(min = 0, max = 255))]
    pub threshold: f32,
    /// Probability.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
}

impl Operation for RandomSolarize {
    const NAME: &'static str = "random_solarize";
    const KEYS: &'static [&'static str] = &["threshold", "p"];
    const EXAMPLE: &'static str = "{ threshold = 128 }";

    fn check(&self) -> Result<(), KeyProblem> {
        if !(0.0..=255.0).contains(&self.threshold) {
            return Err(("threshold", format!("is {}, not in 0..255", self.threshold)));
        }
        check_probability(Self::NAME, self.p)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        if planner.happens(self.p) {
            planner.change(PixelOp::Solarize(self.threshold));
        }
        Ok(())
    }
}
