//! The operations of an `audio` column, as they were drawn, on samples and on features.

use spdl_job::{MaskAxis, SoundOp, SoundStage, SoundStep};
use spdl_sound::operations::{add_noise, gain, mask_bands, mask_frames, white_noise};
use spdl_types::Draw;

/// Returns whether samples are changed.
pub(super) fn change_samples(ops: &[SoundOp]) -> bool {
    ops.iter().any(|op| op.stage() == SoundStage::Samples)
}

/// Changes samples.
pub(super) fn on_samples(ops: &[SoundOp], samples: &mut [f32], draw: &mut Draw) {
    for op in ops.iter().filter(|op| op.stage() == SoundStage::Samples) {
        match op.draw(draw) {
            Some(SoundStep::Gain { decibels }) => gain(samples, decibels),
            Some(SoundStep::Noise { decibels }) => {
                let noise = white_noise(samples.len(), draw);
                add_noise(samples, &noise, decibels, draw);
            }
            Some(step @ (SoundStep::Speed(_) | SoundStep::Mask { .. })) => unreachable!("{step:?} is not of samples"),
            None => {}
        }
    }
}

/// Changes features of so many bands.
pub(super) fn on_features(ops: &[SoundOp], features: &mut [f32], bands: usize, draw: &mut Draw) {
    for op in ops.iter().filter(|op| op.stage() == SoundStage::Features) {
        let Some(SoundStep::Mask { axis, widest, count, value }) = op.draw(draw) else { continue };
        let value = value.unwrap_or_else(|| mean(features));
        for _ in 0..count {
            match axis {
                MaskAxis::Time => mask_frames(features, bands, widest as usize, value, draw),
                MaskAxis::Frequency => mask_bands(features, bands, widest as usize, value, draw),
            }
        }
    }
}

/// Returns the mean; 0 of nothing.
fn mean(values: &[f32]) -> f32 {
    let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
    if values.is_empty() { 0.0 } else { (sum / values.len() as f64) as f32 }
}
