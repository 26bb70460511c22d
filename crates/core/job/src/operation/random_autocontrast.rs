//! The operation `random_autocontrast`.

use serde::{Deserialize, Serialize};

use super::{Operation, kind::{check_probability, half}};
use crate::KeyProblem;

/// Stretches each channel, so that its least value becomes 0 and its greatest one 255.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomAutocontrast {
    /// Probability.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
}

impl Operation for RandomAutocontrast {
    const NAME: &'static str = "random_autocontrast";
    const KEYS: &'static [&'static str] = &["p"];
    const EXAMPLE: &'static str = "{ p = 0.5 }";

    fn check(&self) -> Result<(), KeyProblem> {
        check_probability(Self::NAME, self.p)
    }
}
