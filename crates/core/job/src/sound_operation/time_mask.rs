//! The operation `time_mask`.

use serde::{Deserialize, Serialize};
use spdl_types::Draw;

use super::{
    SoundOperation, SoundStage, SoundStep,
    kind::{MaskAxis, check_mask, one},
};
use crate::KeyProblem;

/// Gives random runs of frames of the features one value, as *SpecAugment* does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeMask {
    /// The most frames of a run: its width is drawn from 0 to it, and then its place.
    pub frames: u32,
    /// The number of runs, which can lie on each other.
    #[serde(default = "one")]
    pub count: u32,
    /// The value. Default: none; the mean of the sample's features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f32>,
}

impl SoundOperation for TimeMask {
    const NAME: &'static str = "time_mask";
    const KEYS: &'static [&'static str] = &["frames", "count", "value"];
    const EXAMPLE: &'static str = "{ frames = 100, count = 2 }";
    const STAGE: SoundStage = SoundStage::Features;

    fn check(&self) -> Result<(), KeyProblem> {
        check_mask(("frames", self.frames), self.count, self.value)
    }

    fn draw(&self, _draw: &mut Draw) -> Option<SoundStep> {
        // The places are drawn when they are masked, among as many frames and bands as there are.
        Some(SoundStep::Mask { axis: MaskAxis::Time, widest: self.frames, count: self.count, value: self.value })
    }
}
