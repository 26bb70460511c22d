//! The operation `random_invert`.

use serde::{Deserialize, Serialize};

use super::{Operation, kind::{check_probability, half}};
use crate::KeyProblem;

/// Subtracts each value from 255.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomInvert {
    /// Probability.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
}

impl Operation for RandomInvert {
    const NAME: &'static str = "random_invert";
    const KEYS: &'static [&'static str] = &["p"];
    const EXAMPLE: &'static str = "{ p = 0.5 }";

    fn check(&self) -> Result<(), KeyProblem> {
        check_probability(Self::NAME, self.p)
    }
}
