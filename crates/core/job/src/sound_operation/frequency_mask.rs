//! The operation `frequency_mask`.

use serde::{Deserialize, Serialize};
use spdl_types::Draw;

use super::{
    SoundOperation, SoundStage, SoundStep,
    kind::{MaskAxis, check_mask, one},
};
use crate::KeyProblem;

/// Gives random runs of bands of the features one value in all frames, as *SpecAugment* does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrequencyMask {
    /// The most bands of a run: its width is drawn from 0 to it, and then its place.
    pub bands: u32,
    /// The number of runs, which can lie on each other.
    #[serde(default = "one")]
    pub count: u32,
    /// The value. Default: none; the mean of the sample's features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f32>,
}

impl SoundOperation for FrequencyMask {
    const NAME: &'static str = "frequency_mask";
    const KEYS: &'static [&'static str] = &["bands", "count", "value"];
    const EXAMPLE: &'static str = "{ bands = 27, count = 2 }";
    const STAGE: SoundStage = SoundStage::Features;

    fn check(&self) -> Result<(), KeyProblem> {
        check_mask(("bands", self.bands), self.count, self.value)
    }

    fn draw(&self, _draw: &mut Draw) -> Option<SoundStep> {
        // The places are drawn when they are masked, among as many frames and bands as there are.
        Some(SoundStep::Mask { axis: MaskAxis::Frequency, widest: self.bands, count: self.count, value: self.value })
    }
}
