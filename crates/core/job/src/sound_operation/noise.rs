//! The operation `noise`.

use serde::{Deserialize, Serialize};
use spdl_types::Draw;

use super::{
    SoundOperation, SoundStage, SoundStep,
    kind::{always, check_decibels, happens},
};
use crate::{KeyProblem, NumberOrRange, operation::check_probability};

/// Adds white noise at a random distance from the sound. Silence stays silent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// How much weaker the noise is than the sound, in decibels of energy, or its range: the signal-to-noise ratio.
    pub snr: NumberOrRange,
    /// Probability.
    #[serde(default = "always")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
}

impl Noise {
    /// Returns the range of the ratio.
    const fn range(&self) -> [f32; 2] {
        match self.snr {
            NumberOrRange::Number(snr) => [snr, snr],
            NumberOrRange::Range(range) => range,
        }
    }
}

impl SoundOperation for Noise {
    const NAME: &'static str = "noise";
    const KEYS: &'static [&'static str] = &["snr", "p"];
    const EXAMPLE: &'static str = "[10, 30]";
    const STAGE: SoundStage = SoundStage::Samples;

    fn check(&self) -> Result<(), KeyProblem> {
        check_decibels("snr", self.range(), &self.snr.to_string())?;
        check_probability(Self::NAME, self.p)
    }

    fn draw(&self, draw: &mut Draw) -> Option<SoundStep> {
        happens(self.p, draw).then(|| {
            let [low, high] = self.range();
            SoundStep::Noise { decibels: draw.between(low.into(), high.into()) as f32 }
        })
    }
}
