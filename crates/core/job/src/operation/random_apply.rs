//! The operation `random_apply`.

use serde::{Deserialize, Serialize};

use super::{
    ImageOp, Operation, OperationProblem, PicturePlanner,
    kind::{check_nested, check_probability, half},
    step,
};
use crate::KeyProblem;

/// Applies all `transforms` or none of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomApply {
    /// The operations, in order, nested up to 4 deep; not `crop_box`, `five_crop` and `ten_crop`.
    #[serde(deserialize_with = "step::read_all")]
    #[schemars(with = "Vec<step::StepFile>")]
    pub transforms: Vec<ImageOp>,
    /// Probability.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
}

impl Operation for RandomApply {
    const NAME: &'static str = "random_apply";
    const KEYS: &'static [&'static str] = &["transforms", "p"];
    const EXAMPLE: &'static str = "{ transforms = [{ gaussian_blur = 23 }], p = 0.5 }";

    fn only_moves(&self) -> bool {
        self.transforms.iter().all(ImageOp::only_moves)
    }

    fn output_size(&self, before: Option<[u32; 2]>) -> Option<[u32; 2]> {
        let after = self.transforms.iter().fold(before, |size, op| op.output_size(size));
        after.filter(|_| after == before)
    }

    fn check(&self) -> Result<(), KeyProblem> {
        check_nested(&self.transforms)?;
        check_probability(Self::NAME, self.p)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        if planner.happens(self.p) { planner.add(&self.transforms) } else { Ok(()) }
    }
}
