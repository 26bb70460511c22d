//! The definition of an operation on sounds.

use serde::{Serialize, de::DeserializeOwned};
use spdl_types::Draw;

use super::dataset::SoundDataset;
use crate::KeyProblem;

/// An operation on a sound: its keys in a job file, and its draws.
pub trait SoundOperation: Serialize + DeserializeOwned {
    /// Its name in a job file.
    const NAME: &'static str;
    /// Its keys in a job file. The value of the first one may stand for all of them.
    const KEYS: &'static [&'static str];
    /// An example of its value in a job file, for errors.
    const EXAMPLE: &'static str;
    /// What it is done with.
    const STAGE: SoundStage;

    /// Checks the values of its keys.
    fn check(&self) -> Result<(), KeyProblem>;

    /// Makes the operation's draws. Returns what is done; `None` for nothing.
    fn draw(&self, draw: &mut Draw) -> Option<SoundStep>;

    /// Returns the dataset whose recordings it takes, if it takes any.
    fn dataset(&self) -> Option<&SoundDataset> {
        None
    }

    /// Returns the same dataset, to note which one it is.
    fn dataset_mut(&mut self) -> Option<&mut SoundDataset> {
        None
    }
}

/// What an operation is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoundStage {
    /// The file: it is part of the change of its rate.
    Decoding,
    /// The samples of the result.
    Samples,
    /// The features that are computed of these.
    Features,
}

/// What is done with a sound, as it was drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SoundStep {
    /// It is played at this speed, in thousandths.
    Speed(u32),
    /// Its samples become louder.
    Gain {
        /// By so much.
        decibels: f32,
    },
    /// Noise is added, so much weaker than the samples.
    Noise {
        /// The ratio of the signal's energy to the noise's.
        decibels: f32,
    },
    /// The samples are convolved with an impulse response.
    Reverb,
    /// Runs of frames, or of bands, of the features get one value.
    Mask {
        /// Whether frames or bands are masked.
        axis: MaskAxis,
        /// The widest run.
        widest: u32,
        /// The number of runs.
        count: u32,
        /// Their value; the mean of the features if there is none.
        value: Option<f32>,
    },
}

/// What a mask runs along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskAxis {
    /// Frames.
    Time,
    /// Bands.
    Frequency,
}

/// The default of probabilities.
pub(super) const fn always() -> f32 {
    1.0
}

/// The default of the number of masks.
pub(super) const fn one() -> u32 {
    1
}

/// The most masks of an operation.
const MAX_MASKS: u32 = 100;
/// The widest mask.
const MAX_WIDTH: u32 = 1 << 20;

/// Checks the keys of a mask.
pub(super) fn check_mask((key, widest): (&'static str, u32), count: u32, value: Option<f32>) -> Result<(), KeyProblem> {
    if !(1..=MAX_WIDTH).contains(&widest) {
        return Err((key, format!("is {widest}, not in 1..={MAX_WIDTH}")));
    }
    if !(1..=MAX_MASKS).contains(&count) {
        return Err(("count", format!("is {count}, not in 1..={MAX_MASKS}")));
    }
    match value.filter(|value| !value.is_finite()) {
        Some(value) => Err(("value", format!("is {value}"))),
        None => Ok(()),
    }
}

/// Checks a range of decibels.
pub(super) fn check_decibels(key: &'static str, [low, high]: [f32; 2], shown: &str) -> Result<(), KeyProblem> {
    if -120.0 <= low && low <= high && high <= 120.0 {
        return Ok(());
    }
    Err((key, format!("is {shown}; give a number, or [low, high], of decibels in -120..120")))
}

/// Draws whether something of this probability happens. What always happens is not drawn.
pub(super) fn happens(p: f32, draw: &mut Draw) -> bool {
    p >= 1.0 || draw.unit() < f64::from(p)
}
