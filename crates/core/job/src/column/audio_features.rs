//! The features of sound that an `audio` column can have: how many frames they have, and which keys describe them.

use serde::{Deserialize, Serialize};

use crate::KeyProblem;

/// Bands of most presets.
const DEFAULT_MELS: u32 = 80;
/// Limits of bands, of samples of a transform, and of a rate in Hz, whose frames are at least one sample apart.
const MAX_MELS: u32 = 1024;
const MAX_TRANSFORM: u32 = 1 << 16;
const MIN_RATE: u32 = 100;
/// The rate of Whisper's features, in Hz.
const WHISPER_RATE: u32 = 16_000;
/// Samples from frame to frame of Whisper's features.
const WHISPER_HOP: u64 = 160;

/// The `features` of a job file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FeaturesFile {
    /// Whose features: `whisper` (for 16,000 Hz), `kaldi`, `lhotse` (Kaldi's, of samples from -1 to 1), `nemo`, or `torchaudio`, which
    /// is `MelSpectrogram` without a logarithm.
    pub preset: FeaturesPreset,
    /// The number of bands. Default: 80; for `torchaudio` 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mels: Option<u32>,
    /// For `torchaudio`: samples of the transform, an even number without a prime factor above 5. Default: 400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_fft: Option<u32>,
    /// For `torchaudio`: samples of the window, at most `n_fft`. Default: `n_fft`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub win_length: Option<u32>,
    /// For `torchaudio`: samples from frame to frame. Default: half of `win_length`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop_length: Option<u32>,
    /// For `torchaudio`: 1 for magnitudes, 2 for their squares. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<u8>,
}

/// Whose features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FeaturesPreset {
    /// OpenAI's Whisper.
    Whisper,
    /// Kaldi's `compute-fbank-feats`.
    Kaldi,
    /// Kaldi's, of samples from -1 to 1.
    Lhotse,
    /// NVIDIA NeMo's preprocessor.
    Nemo,
    /// `torchaudio.transforms.MelSpectrogram`.
    Torchaudio,
}

/// The features of an `audio` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioFeatures {
    /// What is computed.
    pub kind: FeaturesKind,
    /// The number of bands.
    pub mels: u32,
}

/// What is computed, with what a preset leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs, reason = "the variants are the presets, and their fields the keys of a job file")]
pub enum FeaturesKind {
    Whisper,
    Kaldi,
    Lhotse,
    Nemo,
    Torchaudio { n_fft: u32, win_length: u32, hop_length: u32, power: u8 },
}

impl AudioFeatures {
    /// Returns how many frames the features of so many samples have, at this rate in Hz.
    #[must_use]
    pub fn frames(&self, samples: u64, rate: u32) -> u64 {
        let milliseconds = |milliseconds: u64| u64::from(rate) * milliseconds / 1000;
        match self.kind {
            _ if samples == 0 => 0,
            FeaturesKind::Whisper => samples / WHISPER_HOP,
            FeaturesKind::Kaldi | FeaturesKind::Lhotse => match samples.checked_sub(milliseconds(25)) {
                Some(rest) => 1 + rest / milliseconds(10),
                None => 0,
            },
            FeaturesKind::Nemo => samples / milliseconds(10),
            FeaturesKind::Torchaudio { hop_length, .. } => samples / u64::from(hop_length) + 1,
        }
    }

    /// Reads the keys, for sound of this rate.
    ///
    /// # Errors
    /// The problem of a key.
    pub(super) fn read(keys: &FeaturesFile, rate: Option<u32>) -> Result<Self, KeyProblem> {
        let FeaturesFile { preset, mels, n_fft, win_length, hop_length, power } = keys.clone();
        let wrong = |problem: String| Err(("features", problem));
        let Some(rate) = rate else {
            return wrong("need `rate`, which says how long their frames are; add rate = 16000".to_owned());
        };
        if rate < MIN_RATE {
            return wrong(format!("are of sound of {MIN_RATE} Hz and more, and `rate` is {rate}"));
        }
        let within = |key: &str, value: u32, least: u32, most: u32| match value {
            value if (least..=most).contains(&value) => Ok(value),
            value => Err(("features", format!("have `{key}` = {value}, not in {least}..={most}"))),
        };
        let sides =
            [("n_fft", n_fft), ("win_length", win_length), ("hop_length", hop_length), ("power", power.map(u32::from))];
        if preset != FeaturesPreset::Torchaudio
            && let Some((key, _)) = sides.into_iter().find(|(_, value)| value.is_some())
        {
            return wrong(format!("have `{key}`, which only the preset `torchaudio` has"));
        }
        let kind = match preset {
            FeaturesPreset::Whisper if rate != WHISPER_RATE => {
                return wrong(format!("of `whisper` are of sound of {WHISPER_RATE} Hz, and `rate` is {rate}"));
            }
            FeaturesPreset::Whisper => FeaturesKind::Whisper,
            FeaturesPreset::Kaldi => FeaturesKind::Kaldi,
            FeaturesPreset::Lhotse => FeaturesKind::Lhotse,
            FeaturesPreset::Nemo => FeaturesKind::Nemo,
            FeaturesPreset::Torchaudio => {
                let n_fft = within("n_fft", n_fft.unwrap_or(400), 2, MAX_TRANSFORM)?;
                if !n_fft.is_multiple_of(2) || !is_smooth(n_fft) {
                    return wrong(format!(
                        "have `n_fft` = {n_fft}, which is odd or has a prime factor above 5; take 400 or 512"
                    ));
                }
                let win_length = within("win_length", win_length.unwrap_or(n_fft), 1, n_fft)?;
                let hop_length = within("hop_length", hop_length.unwrap_or((win_length / 2).max(1)), 1, MAX_TRANSFORM)?;
                let power = power.unwrap_or(2);
                within("power", power.into(), 1, 2)?;
                FeaturesKind::Torchaudio { n_fft, win_length, hop_length, power }
            }
        };
        let usual = if preset == FeaturesPreset::Torchaudio { 128 } else { DEFAULT_MELS };
        Ok(Self { kind, mels: within("mels", mels.unwrap_or(usual), 1, MAX_MELS)? })
    }
}

/// Returns whether no prime factor of a number is above 5.
const fn is_smooth(mut number: u32) -> bool {
    while number.is_multiple_of(2) {
        number /= 2;
    }
    while number.is_multiple_of(3) {
        number /= 3;
    }
    while number.is_multiple_of(5) {
        number /= 5;
    }
    number == 1
}
