//! Changes the sampling rate by a windowed sinc, one set of weights for each phase.
//!
//! The filter is that of `torchaudio.functional.resample` with its defaults: a sinc that is cut off at 0.99 of the lower Nyquist
//! frequency and has 6 zero crossings on each side, under a Hann window (J. O. Smith, *Digital Audio Resampling*). torchaudio
//! convolves with one row of weights that spans all phases and is mostly zeros; a phase here has only the weights that are not.

mod apply;
mod cache;
mod kernel;

use std::ops::Range;

use apply::apply;
pub use cache::ResamplerCache;
use fearless_simd::{Level, dispatch};
use kernel::PhaseWeights;
pub use kernel::greatest_common_divisor;

use crate::SoundError;

/// Changes the sampling rate of one channel. Making one computes its weights; [`ResamplerCache`] keeps them.
///
/// ```
/// use spdl_sound::SoundResampler;
///
/// let resampler = SoundResampler::new(44_100, 16_000)?;
/// let second = vec![0.5; 44_100];
/// let mut out = vec![0.0; resampler.frames(second.len())];
/// resampler.resample(&second, &mut out);
/// assert_eq!(out.len(), 16_000);
/// # Ok::<(), spdl_sound::SoundError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SoundResampler {
    /// None if the rates are equal.
    weights: Option<PhaseWeights>,
}

impl SoundResampler {
    /// Makes a resampler between two rates in Hz.
    ///
    /// # Errors
    ///
    /// A rate is 0, or the ratio of the rates needs more than 4 Mi weights (16 MiB). The number is some 12 times the larger rate
    /// after both are divided by their greatest common divisor, so all whole rates up to 300 kHz are within the limit.
    pub fn new(from: u32, to: u32) -> Result<Self, SoundError> {
        if from == 0 || to == 0 {
            return Err(SoundError::NoRate);
        }
        Ok(Self { weights: if from == to { None } else { Some(PhaseWeights::new(from, to)?) } })
    }

    /// Returns how many frames come of this many: the number that the ratio of the rates gives, rounded up.
    #[must_use]
    pub fn frames(&self, input_frames: usize) -> usize {
        let Some(weights) = &self.weights else { return input_frames };
        let frames = (input_frames as u128 * weights.to as u128).div_ceil(weights.from as u128);
        usize::try_from(frames).unwrap_or(usize::MAX)
    }

    /// Returns which input frames a range of output frames depends on.
    ///
    /// The range can end after the input's last frame: frames before and after the input count as zeros.
    #[must_use]
    pub fn input_for(&self, output: Range<usize>) -> Range<usize> {
        let Some(weights) = &self.weights else { return output };
        if output.is_empty() {
            return 0..0;
        }
        // Later frames start at the same or a later input frame.
        let first = weights.first_frame(output.start);
        let end = weights.first_frame(output.end - 1).saturating_add(weights.row as i64);
        first.max(0) as usize..end.max(0) as usize
    }

    /// Resamples a whole channel, or its beginning: writes `out.len()` frames, of which [`Self::frames`] gives all.
    pub fn resample(&self, input: &[f32], out: &mut [f32]) {
        self.resample_range(input, 0, 0, out);
    }

    /// Writes `out.len()` frames of the resampled channel, from frame `output_start` on, bit for bit those that
    /// [`Self::resample`] gives for the whole channel.
    ///
    /// `input` has the channel's frames from `input_start` on: at least those that [`Self::input_for`] names, as far as the
    /// channel has them. Frames that are not in `input` count as zeros.
    pub fn resample_range(&self, input: &[f32], input_start: usize, output_start: usize, out: &mut [f32]) {
        let Some(weights) = &self.weights else {
            for (number, sample) in out.iter_mut().enumerate() {
                *sample = output_start
                    .checked_add(number)
                    .and_then(|at| at.checked_sub(input_start))
                    .map_or(0.0, |at| input.get(at).copied().unwrap_or_default());
            }
            return;
        };
        dispatch!(Level::new(), simd => apply(simd, weights, input, input_start, output_start, out));
    }

    /// Returns the bytes of the weights.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.weights.as_ref().map_or(0, PhaseWeights::memory_bytes)
    }
}

#[cfg(test)]
mod tests {
    use spdl_types::Draw;

    use super::*;

    /// A channel of noise.
    fn noise(frames: usize) -> Vec<f32> {
        let mut draw = Draw::new(5, 0, frames as u64);
        (0..frames).map(|_| draw.between(-1.0, 1.0) as f32).collect()
    }

    fn resampled(resampler: &SoundResampler, input: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; resampler.frames(input.len())];
        resampler.resample(input, &mut out);
        out
    }

    #[test]
    fn a_range_of_a_file_resamples_to_the_frames_of_the_whole_file() {
        let input = noise(5_003);
        for (from, to) in
            [(44_100, 16_000), (16_000, 44_100), (48_000, 16_000), (8_000, 16_000), (11_127, 16_000), (7, 7)]
        {
            let resampler = SoundResampler::new(from, to).unwrap();
            let whole = resampled(&resampler, &input);
            for start in [0, 1, 40, 777, whole.len() / 2, whole.len() - 30, whole.len()] {
                for frames in [0, 1, 30, 700] {
                    let end = (start + frames).min(whole.len());
                    let needed = resampler.input_for(start..end);
                    let needed = needed.start.min(input.len())..needed.end.min(input.len());
                    let mut out = vec![9.0; end - start];
                    resampler.resample_range(&input[needed.clone()], needed.start, start, &mut out);
                    assert_eq!(out, whole[start..end], "{from} to {to}, frames {start}..{end} of input {needed:?}");
                }
            }
        }
    }

    #[test]
    fn no_frame_outside_of_the_named_range_changes_an_output_frame() {
        for (from, to) in [(44_100, 16_000), (16_000, 22_050), (96_000, 44_100)] {
            let resampler = SoundResampler::new(from, to).unwrap();
            let mut input = noise(3_000);
            let whole = resampled(&resampler, &input);
            let range = 300..340;
            let needed = resampler.input_for(range.clone());
            input[..needed.start].fill(f32::NAN);
            input[needed.end..].fill(f32::NAN);
            assert_eq!(resampled(&resampler, &input)[range.clone()], whole[range]);
        }
    }

    #[test]
    fn as_many_frames_as_the_ratio_gives_rounded_up() {
        let resampler = SoundResampler::new(44_100, 16_000).unwrap();
        for (input, output) in [(0, 0), (1, 1), (2, 1), (3, 2), (44_100, 16_000), (44_101, 16_001)] {
            assert_eq!(resampler.frames(input), output);
        }
        // A length that a hostile file claims.
        assert_eq!(SoundResampler::new(1, 48_000).unwrap().frames(usize::MAX), usize::MAX);
    }

    #[test]
    fn a_tone_keeps_its_frequency_and_strength() {
        for (from, to) in [(44_100_u32, 16_000_u32), (8_000, 16_000), (48_000, 44_100)] {
            let tone = |rate: u32, frames: usize| -> Vec<f32> {
                (0..frames).map(|n| (n as f64 * 700.0 * std::f64::consts::TAU / f64::from(rate)).sin() as f32).collect()
            };
            let resampler = SoundResampler::new(from, to).unwrap();
            let out = resampled(&resampler, &tone(from, from as usize));
            let expected = tone(to, to as usize);
            let error = out
                .iter()
                .zip(&expected)
                .skip(100)
                .take(to as usize - 200)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f32::max);
            assert!(error < 2e-3, "{from} to {to}: off by {error}");
        }
    }

    #[test]
    fn a_tone_above_the_new_nyquist_frequency_is_removed() {
        let input: Vec<f32> =
            (0..48_000).map(|n| (f64::from(n) * 12_000.0 * std::f64::consts::TAU / 48_000.0).sin() as f32).collect();
        let out = resampled(&SoundResampler::new(48_000, 16_000).unwrap(), &input);
        let loudest = out[50..out.len() - 50].iter().fold(0.0, |most: f32, sample| most.max(sample.abs()));
        assert!(loudest < 2e-3, "{loudest} is left");
    }

    #[test]
    fn equal_rates_copy() {
        let input = noise(100);
        let resampler = SoundResampler::new(16_000, 16_000).unwrap();
        assert_eq!(resampled(&resampler, &input), input);
        assert_eq!(resampler.input_for(3..17), 3..17);
        let mut out = [1.0; 4];
        resampler.resample_range(&input[..5], 0, 3, &mut out);
        assert_eq!(out, [input[3], input[4], 0.0, 0.0]);
    }

    #[test]
    fn rates_that_cannot_be_resampled_are_named() {
        assert_eq!(SoundResampler::new(0, 16_000).unwrap_err(), SoundError::NoRate);
        assert_eq!(SoundResampler::new(16_000, 0).unwrap_err(), SoundError::NoRate);
        assert_eq!(SoundResampler::new(0, 0).unwrap_err(), SoundError::NoRate);
        for (from, to) in [(u32::MAX, 16_000), (16_000, u32::MAX), (u32::MAX, 1), (1, u32::MAX), (400_009, 16_000)] {
            let error = SoundResampler::new(from, to).unwrap_err().to_string();
            assert!(error.contains(&format!("from {from} Hz to {to} Hz")), "{error}");
        }
        assert!(SoundResampler::new(300_007, 16_000).unwrap().memory_bytes() <= 17 << 20);
    }
}
