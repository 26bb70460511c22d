//! Mel features: the energy of short frames of sound in bands that are as wide as hearing resolves, as models of speech take them.
//!
//! A frame is cut out and windowed (`framing.rs`), its spectrum (`fourier.rs`) is summed in bands (`mel.rs`), and the sums are compressed as
//! the preset asks (`compression.rs`). What a preset asks is in `preset.rs`.

mod compression;
mod fourier;
mod framing;
mod mel;
mod preset;

use compression::BandCompression;
use fearless_simd::{Level, Simd, dispatch};
use fourier::{FrameFourier, LANES};
use framing::Framing;
use mel::MelFilters;
pub use preset::FeaturePreset;

use crate::SoundError;

/// Computes the mel features of one channel.
///
/// ```
/// use spdl_sound::{FeaturePreset, MelFeatures};
///
/// let features = MelFeatures::new(&FeaturePreset::Whisper { mels: 80 }, 16_000)?;
/// let second = vec![0.0; 16_000];
/// let mut out = vec![0.0; features.frames(second.len()) * features.mels()];
/// features.compute(&second, &mut out);
/// assert_eq!(out.len(), 100 * 80);
/// # Ok::<(), spdl_sound::SoundError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MelFeatures {
    framing: Framing,
    fourier: FrameFourier,
    filters: MelFilters,
    /// The power of a bin's magnitude that is summed: 2 is its energy.
    power: u8,
    compression: BandCompression,
}

impl MelFeatures {
    /// Prepares the features of a preset for sound of this rate in Hz: window, transform and bands.
    ///
    /// # Errors
    ///
    /// The preset is defined for another rate, or one of its parameters is out of its range.
    pub fn new(preset: &FeaturePreset, rate: u32) -> Result<Self, SoundError> {
        let plan = preset.plan(rate)?;
        let size = plan.framing.fourier_size;
        let fourier = FrameFourier::new(size).ok_or(SoundError::TransformSize { size })?;
        let filters = MelFilters::new(&plan.scale, plan.mels, size, rate, plan.low_hz);
        Ok(Self { framing: plan.framing, fourier, filters, power: plan.power, compression: plan.compression })
    }

    /// Returns the number of bands.
    #[must_use]
    pub fn mels(&self) -> usize {
        self.filters.mels()
    }

    /// Returns how many frames this many samples give.
    #[must_use]
    pub fn frames(&self, samples: usize) -> usize {
        self.framing.frames(samples)
    }

    /// Computes the features of all samples: writes [`Self::mels`] values for each frame, one frame after the other.
    ///
    /// # Panics
    ///
    /// If `out` does not have room for exactly the values of [`Self::frames`].
    pub fn compute(&self, samples: &[f32], out: &mut [f32]) {
        let frames = self.frames(samples.len());
        assert_eq!(out.len(), frames * self.mels(), "room for {frames} frames of {} bands", self.mels());
        dispatch!(Level::new(), simd => self.compute_frames(simd, samples, out));
        self.compression.finish(out, self.mels());
    }

    /// Writes the features of each frame, without what needs all frames.
    #[inline(always)]
    fn compute_frames<S: Simd>(&self, simd: S, samples: &[f32], out: &mut [f32]) {
        let mels = self.mels();
        let mut buffers = self.fourier.buffers();
        let mut frame = vec![0.0; self.framing.fourier_size];
        let mut bands = vec![[0.0; LANES]; mels];
        for (number, out) in out.chunks_mut(LANES * mels).enumerate() {
            // Lanes for which there is no frame keep what they had, and nothing reads it.
            for lane in 0..out.len() / mels {
                self.framing.cut(samples, number * LANES + lane, &mut frame);
                for (pair, samples) in buffers.pairs.iter_mut().zip(frame.as_chunks::<2>().0) {
                    (pair[0][lane], pair[1][lane]) = (samples[0], samples[1]);
                }
            }
            self.fourier.transform(simd, &mut buffers);
            if self.power == 1 {
                buffers.energies.as_flattened_mut().iter_mut().for_each(|energy| *energy = energy.sqrt());
            }
            self.filters.apply(simd, &buffers.energies, &mut bands);
            self.compression.compress(bands.as_flattened_mut());
            for (lane, frame) in out.chunks_exact_mut(mels).enumerate() {
                frame.iter_mut().zip(&bands).for_each(|(value, band)| *value = band[lane]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use spdl_types::Draw;

    use super::*;

    fn noise(samples: usize) -> Vec<f32> {
        let mut draw = Draw::new(4, 0, 0);
        (0..samples).map(|_| draw.between(-0.5, 0.5) as f32).collect()
    }

    #[test]
    fn all_kinds_of_vectors_give_the_same_bits() {
        let samples = noise(20_000);
        for preset in [
            FeaturePreset::Whisper { mels: 80 },
            FeaturePreset::Kaldi { mels: 80, full_scale: 32_768.0 },
            FeaturePreset::Nemo { mels: 80 },
            FeaturePreset::Torchaudio { n_fft: 480, win_length: 400, hop_length: 160, mels: 64, power: 1 },
        ] {
            let features = MelFeatures::new(&preset, 16_000).unwrap();
            let values = features.frames(samples.len()) * features.mels();
            let (mut best, mut baseline) = (vec![0.0; values], vec![1.0; values]);
            dispatch!(Level::new(), simd => features.compute_frames(simd, &samples, &mut best));
            dispatch!(Level::baseline(), simd => features.compute_frames(simd, &samples, &mut baseline));
            assert!(
                best.iter().zip(&baseline).all(|(best, baseline)| best.to_bits() == baseline.to_bits()),
                "{preset:?}"
            );
        }
    }

    #[test]
    fn a_frame_is_the_same_beside_every_other_frame() {
        let preset = FeaturePreset::Kaldi { mels: 80, full_scale: 1.0 };
        let features = MelFeatures::new(&preset, 16_000).unwrap();
        let samples = noise(16_000);
        let mut all = vec![0.0; features.frames(16_000) * 80];
        features.compute(&samples, &mut all);
        for (frame, expected) in all.chunks_exact(80).enumerate() {
            let mut alone = [0.0; 80];
            features.compute(&samples[frame * 160..][..400], &mut alone);
            assert_eq!(alone, expected, "frame {frame}");
        }
    }
}
