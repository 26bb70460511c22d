//! The operation `noise`.

use serde::{Deserialize, Serialize};
use spdl_types::Draw;

use super::{
    SoundDataset, SoundOperation, SoundStage, SoundStep,
    dataset::{self, SoundDatasetForm},
    kind::{always, check_decibels, happens},
};
use crate::{KeyProblem, NumberOrRange, operation::check_probability};

/// Adds noise at a random distance from the sound: white noise, or a random recording of a dataset. Silence stays silent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// How much weaker the noise is than the sound, in decibels of energy, or its range: the signal-to-noise ratio.
    pub snr: NumberOrRange,
    /// A dataset of noises, of which each sample gets a random one, from a random place on: a longer one is cut, and a shorter one
    /// repeated. Default: none; white noise.
    #[serde(default, deserialize_with = "dataset::read_some", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SoundDatasetForm>")]
    pub dataset: Option<SoundDataset>,
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
    const KEYS: &'static [&'static str] = &["snr", "dataset", "p"];
    const EXAMPLE: &'static str = "[10, 30]";
    const STAGE: SoundStage = SoundStage::Samples;

    fn check(&self) -> Result<(), KeyProblem> {
        check_decibels("snr", self.range(), &self.snr.to_string())?;
        self.dataset.as_ref().map_or(Ok(()), SoundDataset::check)?;
        check_probability(Self::NAME, self.p)
    }

    fn draw(&self, draw: &mut Draw) -> Option<SoundStep> {
        happens(self.p, draw).then(|| {
            let [low, high] = self.range();
            SoundStep::Noise { decibels: draw.between(low.into(), high.into()) as f32 }
        })
    }

    fn dataset(&self) -> Option<&SoundDataset> {
        self.dataset.as_ref()
    }

    fn dataset_mut(&mut self) -> Option<&mut SoundDataset> {
        self.dataset.as_mut()
    }
}
