//! The operation `random_flip`.

use serde::{Deserialize, Serialize};

use super::Operation;
use crate::job::KeyProblem;

/// Mirrors left to right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomFlip {
    /// Probability.
    #[serde(default = "half")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub p: f32,
}

const fn half() -> f32 {
    0.5
}

impl Operation for RandomFlip {
    const NAME: &'static str = "random_flip";
    const SINCE: &'static str = "0.1.0";
    const KEYS: &'static [&'static str] = &["p"];
    const EXAMPLE: &'static str = "{ p = 0.5 }";

    fn output_size(&self, before: Option<[u32; 2]>) -> Option<[u32; 2]> {
        before
    }

    fn check(&self) -> Result<(), KeyProblem> {
        if (0.0..=1.0).contains(&self.p) {
            return Ok(());
        }
        Err((Self::NAME, format!("has p = {}, not in 0..1", self.p)))
    }
}
