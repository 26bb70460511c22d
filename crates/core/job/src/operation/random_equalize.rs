//! The operation `random_equalize`.

use serde::{Deserialize, Serialize};

use super::{Operation, kind::{check_probability, half}};
use crate::KeyProblem;

/// Equalizes the histogram of each channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomEqualize {
    /// Probability.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
}

impl Operation for RandomEqualize {
    const NAME: &'static str = "random_equalize";
    const KEYS: &'static [&'static str] = &["p"];
    const EXAMPLE: &'static str = "{ p = 0.5 }";

    fn check(&self) -> Result<(), KeyProblem> {
        check_probability(Self::NAME, self.p)
    }
}
