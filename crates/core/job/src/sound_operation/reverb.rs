//! The operation `reverb`.

use serde::{Deserialize, Serialize};
use spdl_types::Draw;

use super::{
    SoundDataset, SoundOperation, SoundStage, SoundStep,
    dataset::{self, SoundDatasetForm},
    kind::{always, happens},
};
use crate::{KeyProblem, operation::check_probability};

/// Gives the sound a random room: it is convolved with an impulse response of a dataset, which is scaled to an energy of 1 and begins
/// at its strongest sample, so that what is said stays as loud and in its place. What sounds on behind the end is cut off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reverb {
    /// A dataset of impulse responses, of which each sample gets a random one: of at most 960,000 samples at the rate of the sound.
    #[serde(deserialize_with = "dataset::read")]
    #[schemars(with = "SoundDatasetForm")]
    pub dataset: SoundDataset,
    /// Probability.
    #[serde(default = "always")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
}

impl SoundOperation for Reverb {
    const NAME: &'static str = "reverb";
    const KEYS: &'static [&'static str] = &["dataset", "p"];
    const EXAMPLE: &'static str = "\"rooms\"";
    const STAGE: SoundStage = SoundStage::Samples;

    fn check(&self) -> Result<(), KeyProblem> {
        self.dataset.check()?;
        check_probability(Self::NAME, self.p)
    }

    fn draw(&self, draw: &mut Draw) -> Option<SoundStep> {
        happens(self.p, draw).then_some(SoundStep::Reverb)
    }

    fn dataset(&self) -> Option<&SoundDataset> {
        Some(&self.dataset)
    }

    fn dataset_mut(&mut self) -> Option<&mut SoundDataset> {
        Some(&mut self.dataset)
    }
}
