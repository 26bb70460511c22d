//! The recordings of datasets that operations of an `audio` column take: which ones, and what is done with them.

use std::ops::Range;

use spdl_job::{DrawnSound, SoundOp, SoundStep, redact};
use spdl_media::{ChannelMix, Sound, SoundScratch};
use spdl_sound::{
    ResamplerCache,
    operations::{ImpulseResponse, add_noise, noise_start},
};

use super::resampling::{Resampling, SoundHead, to_usize};
use crate::decode::{
    SampleKey,
    cause::{BadSampleProblem, ValueResult, reason},
    record::SampleRecord,
};

/// Draws the recordings that operations take for a sample.
pub(super) fn drawn(ops: &[SoundOp], (seed, key): (u64, SampleKey)) -> impl Iterator<Item = DrawnSound<'_>> {
    ops.iter().enumerate().filter_map(move |(number, op)| op.draw_sound(number, (seed, key.epoch, key.id.0)))
}

/// Returns the frames of a recording's file that an operation may take for a sample of at most so many frames of a rate; `None` if it takes
/// all of them.
///
/// Of a shorter sample, noise begins later and ends earlier: so these frames have it, whatever the length of the sample is.
pub(super) fn may_take(
    drawn: &DrawnSound<'_>,
    head: SoundHead,
    (rate, most): (u32, u32),
    resamplers: &ResamplerCache,
) -> Option<Range<u64>> {
    let (all, most) = (head.frames_at(rate, 1000), u64::from(most));
    let SoundStep::Noise { .. } = drawn.step else { return None };
    if all <= most {
        return None;
    }
    let start = noise_start(to_usize(all), to_usize(most), &mut drawn.draw.clone()) as u64;
    let taken = start..start + most;
    let resampling = head.resampling(resamplers, (rate, 1000), taken.clone()).ok()?;
    Some(resampling.map_or(taken, |resampling| resampling.frames()))
}

/// A recording that an operation takes, and what of it.
pub(super) struct TakenDatasetSound<'s> {
    name: &'static str,
    drawn: DrawnSound<'s>,
    key: &'s str,
    sound: Sound<'s>,
    /// The frames that are taken, at the rate of the samples.
    frames: Range<u64>,
    /// Where noise begins in what is taken.
    start: usize,
    resampling: Option<Resampling>,
}

impl<'s> TakenDatasetSound<'s> {
    /// Opens the recording that was drawn for an operation on so many frames of a rate.
    pub(super) fn open(
        (name, mut drawn): (&'static str, DrawnSound<'s>),
        record: &SampleRecord<'s>,
        (rate, frames): (u32, u64),
        resamplers: &ResamplerCache,
        scratch: &mut SoundScratch,
    ) -> Result<Self, BadSampleProblem> {
        let Some(read) = record.dataset_sound(drawn.dataset, drawn.sample) else {
            return Err(wrong(name, &drawn, "", "was not read".to_owned()));
        };
        let key = read.key.as_str();
        let file = read.file.as_ref().map_err(|problem| wrong(name, &drawn, key, problem.clone()))?;
        let sound = Sound::open(file, scratch).map_err(|error| wrong(name, &drawn, key, reason(error)))?;
        let head = SoundHead { rate: sound.track().rate, channels: sound.track().channels, frames: sound.frames() };
        let all = head.frames_at(rate, 1000);
        if all == 0 {
            return Err(wrong(name, &drawn, key, "has no samples".to_owned()));
        }
        let (mut taken, mut start) = (0..all, 0);
        if let SoundStep::Noise { .. } = drawn.step {
            start = noise_start(to_usize(all), to_usize(frames), &mut drawn.draw);
            if all > frames {
                (taken, start) = (start as u64..start as u64 + frames, 0);
            }
        } else if all > ImpulseResponse::MOST_SAMPLES as u64 {
            let most = ImpulseResponse::MOST_SAMPLES;
            let problem = format!("has {all} samples at {rate} Hz; an impulse response has at most {most}");
            return Err(wrong(name, &drawn, key, problem));
        }
        let resampling = head.resampling(resamplers, (rate, 1000), taken.clone());
        let resampling = resampling.map_err(|error| wrong(name, &drawn, key, reason(error)))?;
        Ok(Self { name, drawn, key, sound, frames: taken, start, resampling })
    }

    /// Returns whether it is for this operation of the list.
    pub(super) const fn is_for(&self, operation: usize) -> bool {
        self.drawn.operation == operation
    }

    /// Returns the bytes of memory that it takes to do the operation on so many samples.
    pub(super) fn memory_bytes(&self, samples: u64) -> u64 {
        let taken = self.frames.end - self.frames.start;
        let resampled = self.resampling.as_ref().map_or(0, |resampling| resampling.source.len() as u64);
        let step = match self.drawn.step {
            SoundStep::Reverb => ImpulseResponse::memory_bytes(to_usize(taken), to_usize(samples)) as u64,
            _ => 4 * samples,
        };
        4 * (taken + resampled) + step
    }

    /// Does the operation on samples of so many channels, frame by frame.
    pub(super) fn apply(&self, samples: &mut [f32], channels: usize, scratch: &mut SoundScratch) -> ValueResult {
        let wrong = |problem: String| wrong(self.name, &self.drawn, self.key, problem);
        let recording = self.decode(scratch).map_err(wrong)?;
        match self.drawn.step {
            SoundStep::Noise { decibels } if channels == 1 => add_noise(samples, &recording, self.start, decibels),
            SoundStep::Noise { decibels } => {
                let of_frames = recording.iter().cycle().skip(self.start).take(samples.len() / channels);
                let noise: Vec<f32> = of_frames.flat_map(|sample| std::iter::repeat_n(*sample, channels)).collect();
                add_noise(samples, &noise, 0, decibels);
            }
            SoundStep::Reverb => {
                let response = ImpulseResponse::new(&recording).map_err(|error| wrong(reason(error)))?;
                for channel in 0..channels {
                    let mut of_channel: Vec<f32> = samples.iter().skip(channel).step_by(channels).copied().collect();
                    response.apply(&mut of_channel);
                    for (sample, changed) in samples.iter_mut().skip(channel).step_by(channels).zip(of_channel) {
                        *sample = changed;
                    }
                }
            }
            SoundStep::Speed(_) | SoundStep::Gain { .. } | SoundStep::Mask { .. } => {
                unreachable!("{:?} takes no recording", self.drawn.step)
            }
        }
        Ok(())
    }

    /// Decodes what is taken, as one channel, or returns what is wrong with it.
    fn decode(&self, scratch: &mut SoundScratch) -> Result<Vec<f32>, String> {
        let source = self.resampling.as_ref().map_or_else(|| self.frames.clone(), Resampling::frames);
        let channels = self.sound.decode_channels(source, ChannelMix::Mean, scratch).map_err(reason)?;
        let channel = channels.into_iter().next().unwrap_or_default();
        Ok(match &self.resampling {
            Some(resampling) => resampling.resample(&channel, self.frames.clone()),
            None => channel,
        })
    }
}

/// Returns the problem of the recording that was drawn for an operation.
fn wrong(operation: &'static str, drawn: &DrawnSound<'_>, key: &str, problem: String) -> BadSampleProblem {
    let dataset = redact(&drawn.dataset.url).into_owned();
    let key = if key.is_empty() { format!("sample {}", drawn.sample) } else { key.to_owned() };
    BadSampleProblem::DatasetSound { operation, dataset, key, problem }
}
