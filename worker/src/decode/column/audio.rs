//! The kind `audio`: decodes the frames of a sound file that a sample takes, and resamples them.

use std::{ops::Range, sync::Arc};

use spdl_job::{AudioChannels, AudioColumn, AudioFeatures, FeaturesKind};
use spdl_media::{ChannelMix, MediaError, SampleForm, SampleWriter, Sound, SoundScratch};
use spdl_sound::{FeaturePreset, MelFeatures, ResamplerCache, SoundError, SoundResampler};
use spdl_types::{DType, Draw};

use super::{ColumnDecoder, ColumnSample, FieldTarget};
use crate::decode::{
    SampleKey,
    cause::{BadSampleProblem, reason},
    memory::NeverFits,
};

/// The most bytes that decoding needs beside the samples: a packet of FLAC, the largest that its format allows, or the
/// tables of a codec.
const PACKET_BYTES: u64 = 4 << 20;
/// Maximum bytes of resamplers that a column keeps.
const RESAMPLER_BYTES: usize = 8 << 20;

/// Decodes sound files to samples, or to features of these.
pub(super) struct AudioDecoder {
    column: AudioColumn,
    dtype: DType,
    resamplers: ResamplerCache,
    features: Option<MelFeatures>,
}

/// A sound file, and what of it is taken.
pub(super) struct TakenSound<'b> {
    sound: Sound<'b>,
    /// Sample rate of the result.
    pub(super) rate: u32,
    /// The frames of the whole sound after resampling.
    all_frames: u64,
    /// The first frame that is taken, and their number.
    first: u64,
    pub(super) frames: u64,
}

/// The change of a sound's sample rate.
struct Resampling {
    resampler: Arc<SoundResampler>,
    /// The frames of the file that are needed for what is taken.
    source: Range<usize>,
}

impl AudioDecoder {
    pub(super) fn new(column: &AudioColumn, dtype: DType) -> Self {
        let features = column
            .features
            .zip(column.rate)
            .map(|(features, rate)| MelFeatures::new(&preset(features), rate).expect("the features of a valid job"));
        Self { column: column.clone(), dtype, resamplers: ResamplerCache::new(RESAMPLER_BYTES), features }
    }

    /// Reads the head of the file, and chooses what is taken of it.
    pub(super) fn open<'b>(
        &self,
        (field, file): (&str, &'b [u8]),
        (seed, key): (u64, SampleKey),
        scratch: &mut SoundScratch,
    ) -> Result<TakenSound<'b>, BadSampleProblem> {
        let sound_problem = |problem: String| BadSampleProblem::Sound { field: field.to_owned(), problem };
        if file.is_empty() {
            return Err(BadSampleProblem::Empty { field: field.to_owned() });
        }
        let sound = Sound::open(file, scratch).map_err(|error| of_media(field, &error))?;
        if sound.frames() == 0 {
            return Err(sound_problem("has no samples".to_owned()));
        }
        let has = sound.track().channels;
        if let AudioChannels::Count(channels) = self.column.channels
            && channels != has
        {
            return Err(sound_problem(format!("has {has} channels, and `channels` is {channels}")));
        }
        let from = sound.track().rate;
        let rate = self.column.rate.unwrap_or(from);
        let all_frames = u128::from(sound.frames()) * u128::from(rate);
        let all_frames = u64::try_from(all_frames.div_ceil(from.into())).unwrap_or(u64::MAX);
        let most = self.column.max_frames;
        if self.column.segment.is_none() && all_frames > most.into() {
            let problem = format!(
                "has {all_frames} frames of {rate} Hz; `max_seconds` allows {most}: raise it, or take a `segment`"
            );
            return Err(BadSampleProblem::SoundTooLong { field: field.to_owned(), problem });
        }
        let mut draw = Draw::new(seed, key.epoch, key.id.0);
        let (first, frames) = self.column.part(all_frames, || draw.bits());
        if self.column.segment.is_none() && self.column.rows(frames) == 0 {
            return Err(sound_problem(format!("has {frames} frames of {rate} Hz, which give no frame of `features`")));
        }
        Ok(TakenSound { sound, rate, all_frames, first, frames })
    }

    /// Returns what changes the sample rate, if the file has another one.
    fn resampling(&self, taken: &TakenSound<'_>) -> Result<Option<Resampling>, SoundError> {
        let from = taken.sound.track().rate;
        if from == taken.rate {
            return Ok(None);
        }
        debug_assert!(taken.first + taken.frames <= taken.all_frames, "frames of the sound");
        let resampler = self.resamplers.get(from, taken.rate)?;
        let last = to_usize(taken.sound.frames());
        let needed = resampler.input_for(to_usize(taken.first)..to_usize(taken.first + taken.frames));
        Ok(Some(Resampling { source: needed.start.min(last)..needed.end.min(last), resampler }))
    }

    /// Writes the samples of what is taken, and the silence behind it.
    fn write(
        &self,
        taken: &TakenSound<'_>,
        resampling: Option<&Resampling>,
        scratch: &mut SoundScratch,
        out: &mut [u8],
    ) -> Result<(), MediaError> {
        let sound_bytes = taken.frames * self.channels() * self.dtype.bytes() as u64;
        let (out, silence) = out.split_at_mut(to_usize(sound_bytes));
        silence.fill(0);
        let mix = match self.column.channels {
            AudioChannels::Mean => ChannelMix::Mean,
            AudioChannels::First => ChannelMix::First,
            AudioChannels::Count(_) => ChannelMix::Keep,
        };
        let mut writer = SampleWriter::new(self.form(), out);
        let Some(Resampling { resampler, source }) = resampling else {
            let frames = taken.first..taken.first + taken.frames;
            return taken.sound.decode(frames, mix, scratch, |samples| writer.write(samples));
        };
        let source_frames = source.start as u64..source.end as u64;
        let mut channels = taken.sound.decode_channels(source_frames, mix, scratch)?;
        for channel in &mut channels {
            let mut resampled = vec![0.0; to_usize(taken.frames)];
            resampler.resample_range(channel, source.start, to_usize(taken.first), &mut resampled);
            *channel = resampled;
        }
        writer.write_channels(&channels);
        Ok(())
    }

    /// Returns the rows of the result that are sound.
    pub(super) fn rows(&self, taken: &TakenSound<'_>) -> u64 {
        self.column.rows(taken.frames)
    }

    /// Returns the number of channels that are decoded.
    fn channels(&self) -> u64 {
        match self.column.channels {
            AudioChannels::Mean | AudioChannels::First => 1,
            AudioChannels::Count(channels) => channels.into(),
        }
    }

    /// Returns whether samples are decoded into the slot.
    const fn is_in_place(&self) -> bool {
        self.column.segment.is_some() && self.features.is_none()
    }

    const fn form(&self) -> SampleForm {
        match self.dtype {
            DType::I16 => SampleForm::I16,
            _ => SampleForm::F32,
        }
    }

    /// Returns the bytes that decoding takes beside the place of a fixed column.
    fn memory_bytes(&self, taken: &TakenSound<'_>, resampling: Option<&Resampling>, samples_bytes: u64) -> u64 {
        let resampled = resampling.map_or(0, |Resampling { source, .. }| {
            // Each channel before and after it is resampled.
            4 * self.channels() * ((source.end - source.start) as u64 + taken.frames)
        });
        let features = self.features.as_ref().map_or(0, |features| {
            // The samples as numbers, and what is made of them.
            samples_bytes + 4 * self.column.rows(samples_bytes / 4) * features.mels() as u64
        });
        PACKET_BYTES + resampled + features + if self.is_in_place() { 0 } else { samples_bytes }
    }
}

impl ColumnDecoder for AudioDecoder {
    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        let ColumnSample { field, content, seed, key, resources, scratch, .. } = sample;
        let file = content.into_file();
        let scratch = &mut scratch.sound;
        let taken = self.open((field, &file), (seed, key), scratch)?;
        let frames = self.column.segment.map_or(taken.frames, |segment| segment.frames.into());
        let samples_bytes = frames * self.channels() * self.dtype.bytes() as u64;
        let resampling = self.resampling(&taken);
        let resampling =
            resampling.map_err(|error| BadSampleProblem::Sound { field: field.to_owned(), problem: reason(error) })?;
        let needed_bytes = self.memory_bytes(&taken, resampling.as_ref(), samples_bytes);
        let _permit = resources.memory.take(needed_bytes).map_err(|NeverFits { max_bytes }| {
            BadSampleProblem::SoundMemory { field: field.to_owned(), needed_bytes, max_bytes }
        })?;
        let write = |scratch, out: &mut [u8]| {
            self.write(&taken, resampling.as_ref(), scratch, out).map_err(|error| of_media(field, &error))
        };
        if self.is_in_place() {
            return write(scratch, target.fixed());
        }
        let mut value = vec![0; to_usize(samples_bytes)];
        write(scratch, &mut value)?;
        if let Some(features) = &self.features {
            value = features_of(features, &value);
        }
        match &self.column.segment {
            Some(_) => target.fixed().copy_from_slice(&value),
            None => *target.ragged() = value.into(),
        }
        Ok(())
    }
}

/// Computes the features of samples of 4 bytes each.
fn features_of(features: &MelFeatures, samples: &[u8]) -> Vec<u8> {
    let samples: Vec<f32> = samples.as_chunks().0.iter().map(|sample| f32::from_le_bytes(*sample)).collect();
    let mut values = vec![0.0; features.frames(samples.len()) * features.mels()];
    features.compute(&samples, &mut values);
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// Returns the features of a job's column as the crate of sounds calls them.
fn preset(AudioFeatures { kind, mels }: AudioFeatures) -> FeaturePreset {
    let mels = mels as usize;
    match kind {
        FeaturesKind::Whisper => FeaturePreset::Whisper { mels },
        FeaturesKind::Kaldi => FeaturePreset::Kaldi { mels, full_scale: 32_768.0 },
        FeaturesKind::Lhotse => FeaturePreset::Kaldi { mels, full_scale: 1.0 },
        FeaturesKind::Nemo => FeaturePreset::Nemo { mels },
        FeaturesKind::Torchaudio { n_fft, win_length, hop_length, power } => {
            let [n_fft, win_length, hop_length] = [n_fft, win_length, hop_length].map(|samples| samples as usize);
            FeaturePreset::Torchaudio { n_fft, win_length, hop_length, mels, power }
        }
    }
}

/// Returns the problem of a sound in a field.
fn of_media(field: &str, error: &MediaError) -> BadSampleProblem {
    BadSampleProblem::Sound { field: field.to_owned(), problem: reason(error) }
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
