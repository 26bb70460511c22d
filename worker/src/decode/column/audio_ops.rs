//! The operations of an `audio` column, as they were drawn, on samples and on features.

use spdl_job::{MaskAxis, SoundOp, SoundStage, SoundStep};
use spdl_media::SoundScratch;
use spdl_sound::operations::{add_noise, gain, mask_bands, mask_frames, noise_start, white_noise};
use spdl_types::Draw;

use super::dataset_sounds::TakenDatasetSound;
use crate::decode::cause::ValueResult;

/// Returns whether samples are changed.
pub(super) fn change_samples(ops: &[SoundOp]) -> bool {
    ops.iter().any(|op| op.stage() == SoundStage::Samples)
}

/// Changes samples of so many channels, frame by frame, with the recordings that were drawn for operations.
pub(super) fn on_samples(
    ops: &[SoundOp],
    (samples, channels): (&mut [f32], usize),
    draw: &mut Draw,
    recordings: &[TakenDatasetSound<'_>],
    scratch: &mut SoundScratch,
) -> ValueResult {
    for (number, op) in ops.iter().enumerate().filter(|(_, op)| op.stage() == SoundStage::Samples) {
        if op.dataset().is_some() {
            // None was drawn where the operation does not happen.
            if let Some(recording) = recordings.iter().find(|recording| recording.is_for(number)) {
                recording.apply(samples, channels, scratch)?;
            }
            continue;
        }
        match op.draw(draw) {
            Some(SoundStep::Gain { decibels }) => gain(samples, decibels),
            Some(SoundStep::Noise { decibels }) => {
                let noise = white_noise(samples.len(), draw);
                let start = noise_start(noise.len(), samples.len(), draw);
                add_noise(samples, &noise, start, decibels);
            }
            Some(step @ (SoundStep::Speed(_) | SoundStep::Reverb | SoundStep::Mask { .. })) => {
                unreachable!("{step:?} is not of samples alone")
            }
            None => {}
        }
    }
    Ok(())
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
