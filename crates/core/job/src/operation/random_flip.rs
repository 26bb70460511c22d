//! The operation `random_flip`.

use serde::{Deserialize, Serialize};

use super::{Operation, kind::{check_probability, half}};
use crate::KeyProblem;

/// Mirrors left to right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomFlip {
    /// Probability.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
}

impl Operation for RandomFlip {
    const NAME: &'static str = "random_flip";
    const KEYS: &'static [&'static str] = &["p"];
    const EXAMPLE: &'static str = "{ p = 0.5 }";

    fn only_moves(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), KeyProblem> {
        check_probability(Self::NAME, self.p)
    }
}
