//! The operation `gain`.

use serde::{Deserialize, Serialize};
use spdl_types::Draw;

use super::{
    SoundOperation, SoundStage, SoundStep,
    kind::{always, check_decibels, happens},
};
use crate::{KeyProblem, NumberOrRange, operation::check_probability};

/// Makes the samples louder or quieter by a random number of decibels. Nothing is clipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gain {
    /// The decibels, drawn from `[low, high]`; a number is the range from its negative to itself.
    pub decibels: NumberOrRange,
    /// Probability.
    #[serde(default = "always")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
}

impl SoundOperation for Gain {
    const NAME: &'static str = "gain";
    const KEYS: &'static [&'static str] = &["decibels", "p"];
    const EXAMPLE: &'static str = "[-6, 6]";
    const STAGE: SoundStage = SoundStage::Samples;

    fn check(&self) -> Result<(), KeyProblem> {
        check_decibels("decibels", self.decibels.around(0.0, f32::NEG_INFINITY), &self.decibels.to_string())?;
        check_probability(Self::NAME, self.p)
    }

    fn draw(&self, draw: &mut Draw) -> Option<SoundStep> {
        happens(self.p, draw).then(|| {
            let [low, high] = self.decibels.around(0.0, f32::NEG_INFINITY);
            SoundStep::Gain { decibels: draw.between(low.into(), high.into()) as f32 }
        })
    }
}
