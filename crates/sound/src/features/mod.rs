//! Mel features: the energy of short frames of sound in bands that are as wide as hearing resolves, as models of speech take them.
//!
//! A frame is cut out and windowed (`framing.rs`), its spectrum is summed in bands (`mel.rs`), and the sums are compressed as
//! the preset asks (`compression.rs`). What a preset asks is in `preset.rs`.

mod compression;
mod framing;
mod mel;
mod preset;

use std::{fmt, sync::Arc};

use compression::Compression;
use framing::Framing;
use mel::MelFilters;
pub use preset::FeaturePreset;
use realfft::{RealFftPlanner, RealToComplex};

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
#[derive(Clone)]
pub struct MelFeatures {
    framing: Framing,
    fourier: Arc<dyn RealToComplex<f32>>,
    filters: MelFilters,
    /// The power of a bin's magnitude that is summed: 2 is its energy.
    power: f32,
    compression: Compression,
}

impl fmt::Debug for MelFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MelFeatures")
            .field("framing", &self.framing)
            .field("mels", &self.mels())
            .finish_non_exhaustive()
    }
}

impl MelFeatures {
    /// Prepares the features of a preset for sound of this rate in Hz: window, transform and bands.
    ///
    /// # Errors
    ///
    /// The preset is defined for another rate, or one of its parameters is out of its range.
    pub fn new(preset: &FeaturePreset, rate: u32) -> Result<Self, SoundError> {
        let plan = preset.plan(rate)?;
        let fourier = RealFftPlanner::new().plan_fft_forward(plan.framing.fourier_size);
        let filters = MelFilters::new(&plan.scale, plan.mels, plan.framing.fourier_size, rate, plan.low_hz);
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
        let mut frame = self.fourier.make_input_vec();
        let mut spectrum = self.fourier.make_output_vec();
        let mut scratch = self.fourier.make_scratch_vec();
        let mut powers = vec![0.0; spectrum.len()];
        for (number, out) in out.chunks_exact_mut(self.mels()).enumerate() {
            self.framing.cut(samples, number, &mut frame);
            if self.fourier.process_with_scratch(&mut frame, &mut spectrum, &mut scratch).is_err() {
                unreachable!("the buffers are the transform's own");
            }
            for (power, bin) in powers.iter_mut().zip(&spectrum) {
                *power = bin.re * bin.re + bin.im * bin.im;
            }
            if self.power == 1.0 {
                powers.iter_mut().for_each(|power| *power = power.sqrt());
            }
            self.filters.apply(&powers, out);
            self.compression.compress(out);
        }
        self.compression.finish(out, self.mels());
    }
}
