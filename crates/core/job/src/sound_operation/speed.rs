//! The operation `speed`.

use serde::{Deserialize, Serialize};
use spdl_types::Draw;

use super::{SoundOperation, SoundStage, SoundStep};
use crate::KeyProblem;

/// Plays the sound at a random speed, as `torchaudio.functional.speed` does: at 1.1 it is shorter and higher. The file is resampled once,
/// to its new rate and speed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// The speeds, one of which is drawn: 0.25 to 4, with up to three decimals.
    pub factors: Vec<f32>,
}

/// The most speeds, each of which has weights of its own.
const MAX_FACTORS: usize = 64;

impl SoundOperation for Speed {
    const NAME: &'static str = "speed";
    const KEYS: &'static [&'static str] = &["factors"];
    const EXAMPLE: &'static str = "[0.9, 1.0, 1.1]";
    const STAGE: SoundStage = SoundStage::Decoding;

    fn check(&self) -> Result<(), KeyProblem> {
        let wrong = |problem: String| Err(("factors", problem));
        if self.factors.is_empty() || self.factors.len() > MAX_FACTORS {
            let count = self.factors.len();
            return wrong(if count == 0 { "is empty".to_owned() } else { format!("has {count} speeds; {MAX_FACTORS} are the most") });
        }
        for factor in &self.factors {
            if !(0.25..=4.0).contains(factor) {
                return wrong(format!("has {factor}, not in 0.25..4"));
            }
            let thousandths = f64::from(*factor) * 1000.0;
            if (thousandths - thousandths.round()).abs() > 1e-3 {
                return wrong(format!("has {factor}; give at most three decimals"));
            }
        }
        Ok(())
    }

    fn draw(&self, draw: &mut Draw) -> Option<SoundStep> {
        let drawn = draw.below(self.factors.len() as u32) as usize;
        Some(SoundStep::Speed((f64::from(self.factors[drawn]) * 1000.0).round() as u32))
    }
}
