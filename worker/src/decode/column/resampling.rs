//! The change of a sound's sample rate and speed.

use std::{ops::Range, sync::Arc};

use spdl_sound::{ResamplerCache, SoundError, SoundResampler, greatest_common_divisor};

/// What the head of a sound file says.
#[derive(Clone, Copy, Debug)]
pub(super) struct SoundHead {
    pub(super) rate: u32,
    pub(super) channels: u16,
    pub(super) frames: u64,
}

/// The change of the sample rate of a part of a sound.
pub(super) struct Resampling {
    pub(super) resampler: Arc<SoundResampler>,
    /// The frames of the file that are needed for what is taken.
    pub(super) source: Range<usize>,
}

impl SoundHead {
    /// Returns the frames of the whole sound at a rate and a speed in thousandths.
    pub(super) fn frames_at(self, rate: u32, speed: u32) -> u64 {
        let frames = u128::from(self.frames) * u128::from(rate) * 1000;
        let frames = frames.div_ceil(u128::from(self.rate) * u128::from(speed));
        u64::try_from(frames).unwrap_or(u64::MAX)
    }

    /// Returns what gives frames `taken` of the sound at a rate and a speed in thousandths; `None` if these are the file's own.
    pub(super) fn resampling(
        self,
        resamplers: &ResamplerCache,
        (rate, speed): (u32, u32),
        taken: Range<u64>,
    ) -> Result<Option<Resampling>, SoundError> {
        let (from, to) = at_speed(self.rate, rate, speed);
        if from == to {
            return Ok(None);
        }
        debug_assert!(taken.end <= self.frames_at(rate, speed), "frames of the sound");
        let resampler = resamplers.get(from, to)?;
        let last = to_usize(self.frames);
        let needed = resampler.input_for(to_usize(taken.start)..to_usize(taken.end));
        Ok(Some(Resampling { source: needed.start.min(last)..needed.end.min(last), resampler }))
    }
}

impl Resampling {
    /// Returns the frames of the file that are needed.
    pub(super) const fn frames(&self) -> Range<u64> {
        self.source.start as u64..self.source.end as u64
    }

    /// Resamples a channel, which has the frames that are needed, to frames of the result.
    pub(super) fn resample(&self, channel: &[f32], taken: Range<u64>) -> Vec<f32> {
        let mut resampled = vec![0.0; to_usize(taken.end - taken.start)];
        self.resampler.resample_range(channel, self.source.start, to_usize(taken.start), &mut resampled);
        resampled
    }
}

/// Returns the rates between which a file of rate `from` is resampled to be of rate `to` at a speed in thousandths.
fn at_speed(from: u32, to: u32, speed: u32) -> (u32, u32) {
    if speed == 1000 {
        return (from, to);
    }
    let (from, to) = (u64::from(from) * u64::from(speed), u64::from(to) * 1000);
    let divisor = greatest_common_divisor(from, to);
    // A rate that is too high is refused when a resampler is made for it.
    let [from, to] = [from, to].map(|rate| u32::try_from(rate / divisor).unwrap_or(u32::MAX));
    (from, to)
}

pub(super) fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
