//! The operation `random_posterize`.

use serde::{Deserialize, Serialize};
use spdl_canvas::PixelOp;

use super::{
    Operation, OperationProblem, PicturePlanner,
    kind::{check_probability, half},
};
use crate::KeyProblem;

/// Keeps the highest `bits` of each value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomPosterize {
    /// The number of bits to keep.
    #[schemars(range(min = 0, max = 8))]
    pub bits: u32,
    /// Probability.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
}

impl Operation for RandomPosterize {
    const NAME: &'static str = "random_posterize";
    const KEYS: &'static [&'static str] = &["bits", "p"];
    const EXAMPLE: &'static str = "{ bits = 4 }";

    fn check(&self) -> Result<(), KeyProblem> {
        if self.bits > 8 {
            return Err(("bits", format!("is {}, not in 0..=8", self.bits)));
        }
        check_probability(Self::NAME, self.p)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        if planner.happens(self.p) {
            planner.change(PixelOp::Posterize(self.bits));
        }
        Ok(())
    }
}
