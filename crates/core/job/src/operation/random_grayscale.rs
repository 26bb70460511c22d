//! The operation `random_grayscale`.

use serde::{Deserialize, Serialize};
use spdl_canvas::PixelOp;

use super::{Operation, OperationProblem, PicturePlanner, kind::check_probability};
use crate::KeyProblem;

/// Makes the picture grey; it still has three channels, which are equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomGrayscale {
    /// Probability.
    #[serde(default = "tenth")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
}

const fn tenth() -> f32 {
    0.1
}

impl Operation for RandomGrayscale {
    const NAME: &'static str = "random_grayscale";
    const KEYS: &'static [&'static str] = &["p"];
    const EXAMPLE: &'static str = "{ p = 0.1 }";

    fn check(&self) -> Result<(), KeyProblem> {
        check_probability(Self::NAME, self.p)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        if planner.happens(self.p) {
            planner.change(PixelOp::Grayscale);
        }
        Ok(())
    }
}
