//! What each preset asks for, after the code of its source.

use super::{
    compression::BandCompression,
    framing::{FramePlaces, Framing, Preparation, WindowShape},
    mel::MelScale,
};
use crate::SoundError;

/// Which features are computed: those of a family of models, with the values that its own code computes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FeaturePreset {
    /// Those of OpenAI's Whisper, for sound at 16 kHz: frames of 25 ms each 10 ms, decimal logarithms that are limited to 8 below
    /// the greatest of the sound, and scaled.
    ///
    /// Whisper's own code first pads or cuts the sound to 480,000 samples. Since the greatest value counts, only the same samples
    /// give the same features.
    Whisper {
        /// Bands: 80, or 128 for `large-v3`.
        mels: usize,
    },
    /// Those of Kaldi's `compute-fbank-feats` without dither: frames of 25 ms each 10 ms that lie whole in the sound, and natural
    /// logarithms. Bands begin at 20 Hz.
    Kaldi {
        /// Bands: Kaldi's default is 23, and most recipes take 80.
        mels: usize,
        /// What a full-scale sample counts as: 32,768 in Kaldi, and 1 in code that gives it samples from -1 to 1, as Lhotse does.
        full_scale: f32,
    },
    /// Those of NVIDIA NeMo's `AudioToMelSpectrogramPreprocessor` with windows of 25 ms and without dither: natural logarithms,
    /// each band with a mean of 0 and a standard deviation of 1 over the sound. Frames that NeMo adds as padding are left out.
    Nemo {
        /// Bands: 80 for most models, 128 for newer ones.
        mels: usize,
    },
    /// Those of `torchaudio.transforms.MelSpectrogram`, without a logarithm.
    Torchaudio {
        /// Samples of the transform: an even number without a prime factor above 5. torchaudio's default is 400.
        n_fft: usize,
        /// Samples of the window, at most `n_fft`; torchaudio's default is `n_fft`.
        win_length: usize,
        /// Samples from frame to frame; torchaudio's default is half of `win_length`.
        hop_length: usize,
        /// Bands; torchaudio's default is 128.
        mels: usize,
        /// 1 for magnitudes or 2 for their squares, torchaudio's default.
        power: u8,
    },
}

/// What a preset means at a rate.
#[derive(Debug)]
pub(super) struct FeaturePlan {
    pub(super) framing: Framing,
    pub(super) scale: MelScale,
    pub(super) mels: usize,
    /// The lower end of the lowest band.
    pub(super) low_hz: f64,
    pub(super) power: u8,
    pub(super) compression: BandCompression,
}

/// Samples of the largest transform.
const MOST_SAMPLES: usize = 1 << 16;
/// The most bands.
const MOST_MELS: usize = 1 << 10;

impl FeaturePreset {
    /// Checks the parameters and returns what they mean at a rate in Hz.
    pub(super) fn plan(&self, rate: u32) -> Result<FeaturePlan, SoundError> {
        if rate == 0 {
            return Err(SoundError::NoRate);
        }
        match *self {
            Self::Whisper { mels } => {
                if rate != 16_000 {
                    return Err(SoundError::OtherRate { preset: "whisper", needed: 16_000, rate });
                }
                Ok(FeaturePlan {
                    framing: Framing::new(
                        FramePlaces::CenteredReflected { last: false },
                        WindowShape::Hann,
                        400,
                        400,
                        160,
                    ),
                    scale: MelScale::Slaney,
                    mels: within("mels", mels, 1, MOST_MELS)?,
                    low_hz: 0.0,
                    power: 2,
                    compression: BandCompression::Whisper,
                })
            }
            Self::Kaldi { mels, full_scale } => {
                let window = milliseconds(rate, 25)?;
                let framing = Framing::new(
                    FramePlaces::Inside,
                    WindowShape::Povey,
                    window.next_power_of_two(),
                    window,
                    milliseconds(rate, 10)?,
                );
                Ok(FeaturePlan {
                    framing: framing.prepare(Preparation::EachFrame { full_scale }),
                    scale: MelScale::Kaldi,
                    mels: within("mels", mels, 1, MOST_MELS)?,
                    low_hz: 20.0,
                    power: 2,
                    compression: BandCompression::Floored { floor: f32::EPSILON },
                })
            }
            Self::Nemo { mels } => {
                let window = milliseconds(rate, 25)?;
                let framing = Framing::new(
                    FramePlaces::CenteredZeros,
                    WindowShape::SymmetricHann,
                    window.next_power_of_two(),
                    window,
                    milliseconds(rate, 10)?,
                );
                Ok(FeaturePlan {
                    framing: framing.prepare(Preparation::Emphasis),
                    scale: MelScale::Slaney,
                    mels: within("mels", mels, 1, MOST_MELS)?,
                    low_hz: 0.0,
                    power: 2,
                    compression: BandCompression::Standardised { added: 1.0 / (1 << 24) as f32 },
                })
            }
            Self::Torchaudio { n_fft, win_length, hop_length, mels, power } => {
                within("n_fft", n_fft, 2, MOST_SAMPLES)?;
                within("win_length", win_length, 1, n_fft)?;
                within("hop_length", hop_length, 1, MOST_SAMPLES)?;
                within("power", power.into(), 1, 2)?;
                let places = FramePlaces::CenteredReflected { last: true };
                Ok(FeaturePlan {
                    framing: Framing::new(places, WindowShape::Hann, n_fft, win_length, hop_length),
                    scale: MelScale::Htk,
                    mels: within("mels", mels, 1, MOST_MELS)?,
                    low_hz: 0.0,
                    power,
                    compression: BandCompression::None,
                })
            }
        }
    }
}

/// Returns the samples of a duration, rounded down as Kaldi and NeMo do.
fn milliseconds(rate: u32, milliseconds: u32) -> Result<usize, SoundError> {
    let samples = (u64::from(rate) * u64::from(milliseconds) / 1000) as usize;
    // 100 Hz is the lowest rate at which a frame begins later than the one before.
    within("rate", rate as usize, 100, MOST_SAMPLES * 1000 / 25).map(|_| samples)
}

/// Returns a parameter if it is in its range.
fn within(parameter: &'static str, value: usize, least: usize, most: usize) -> Result<usize, SoundError> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(SoundError::Parameter { parameter, value: value as f64, least: least as f64, most: most as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_out_of_their_range_are_named() {
        let torchaudio = |n_fft, win_length, hop_length, mels, power| FeaturePreset::Torchaudio {
            n_fft,
            win_length,
            hop_length,
            mels,
            power,
        };
        for (preset, rate, word) in [
            (FeaturePreset::Whisper { mels: 80 }, 22_050, "`whisper` are of sound at 16000 Hz, not at 22050 Hz"),
            (FeaturePreset::Whisper { mels: 0 }, 16_000, "`mels` is 0, and must be from 1 to 1024"),
            (FeaturePreset::Kaldi { mels: 80, full_scale: 1.0 }, 0, "a sampling rate of 0 Hz"),
            (FeaturePreset::Kaldi { mels: 80, full_scale: 1.0 }, 99, "`rate` is 99"),
            (FeaturePreset::Nemo { mels: 5_000 }, 16_000, "`mels` is 5000"),
            (FeaturePreset::Nemo { mels: 80 }, u32::MAX, "`rate` is 4294967295"),
            (torchaudio(usize::MAX, 400, 200, 80, 2), 16_000, "`n_fft` is"),
            (torchaudio(400, 401, 200, 80, 2), 16_000, "`win_length` is 401, and must be from 1 to 400"),
            (torchaudio(400, 400, 0, 80, 2), 16_000, "`hop_length` is 0"),
            (torchaudio(400, 400, 200, 80, 3), 16_000, "`power` is 3"),
        ] {
            let error = preset.plan(rate).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
