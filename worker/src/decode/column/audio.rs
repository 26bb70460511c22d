//! The kind `audio`: decodes the frames of a sound file that a sample takes, and resamples them.

use std::ops::Range;

use bytes::Bytes;
use spdl_job::{
    AudioChannels, AudioColumn, AudioFeatures, AudioSpan, DrawnSound, FeaturesKind, VideoClip, drawn_speed,
};
use spdl_media::{ChannelMix, MediaError, SampleForm, SampleWriter, Sound, SoundScratch, SoundTable};
use spdl_pixels::PictureLimits;
use spdl_sound::{FeaturePreset, MelFeatures, ResamplerCache, SoundError};
use spdl_types::{DType, Draw};

use super::{
    ColumnDecoder, ColumnSample, ColumnSetup, FieldTarget, audio_ops, audio_span,
    clip_sound::{HeardFrames, SoundFile, followed_clip},
    dataset_sounds::{TakenDatasetSound, drawn, may_take},
    resampling::{Resampling, SoundHead, to_usize},
};
use crate::decode::{
    DecodeScratch, SampleKey,
    cause::{BadSampleProblem, ValueResult, reason},
    memory::NeverFits,
    record::SampleRecord,
};

/// The most bytes that decoding needs beside the samples: a packet of FLAC, the largest that its format allows, or the
/// tables of a codec.
const PACKET_BYTES: u64 = 4 << 20;
/// Maximum bytes of resamplers that a column keeps.
const RESAMPLER_BYTES: usize = 8 << 20;

/// Decodes sound files to samples, or to features of these.
pub(super) struct AudioDecoder {
    column: AudioColumn,
    /// The clip whose sound it is.
    clip: Option<VideoClip>,
    dtype: DType,
    resamplers: ResamplerCache,
    features: Option<MelFeatures>,
}

/// A sound file, and what of it is taken.
struct TakenSound<'b> {
    sound: Sound<'b>,
    part: SoundPart,
}

/// The file whose head was read last, for the other columns of the sample.
#[derive(Debug)]
pub(in crate::decode) struct HeardFile {
    file: Bytes,
    head: SoundHead,
}

/// What is taken of a sound.
pub(super) struct SoundPart {
    /// Sample rate of the result.
    pub(super) rate: u32,
    /// The frames of silence before what is taken.
    silence: u64,
    /// The first frame that is taken of the whole sound after resampling, and their number.
    first: u64,
    frames: u64,
    /// The speed at which it is played, in thousandths.
    speed: u32,
    /// What the operations that follow draw from.
    draw: Draw,
}

impl AudioDecoder {
    pub(super) fn new(column: &AudioColumn, dtype: DType, setup: &ColumnSetup<'_>) -> Self {
        let clip = column.follows.as_deref().map(|follows| followed_clip(follows, setup.columns));
        let features = column
            .features
            .zip(column.rate)
            .map(|(features, rate)| MelFeatures::new(&preset(features), rate).expect("the features of a valid job"));
        Self { column: column.clone(), clip, dtype, resamplers: ResamplerCache::new(RESAMPLER_BYTES), features }
    }

    /// Returns whether it is the sound of a clip.
    pub(super) const fn is_of_clip(&self) -> bool {
        self.clip.is_some()
    }

    /// Returns the sound in the file of a field.
    pub(super) fn sound_file(
        &self,
        (field, file): (&str, Bytes),
        of: (u64, SampleKey),
        context: (&SampleRecord<'_>, PictureLimits),
    ) -> Result<SoundFile, BadSampleProblem> {
        SoundFile::of(field, file, self.clip.as_ref(), of, context)
    }

    /// Reads the head of the file, and chooses what is taken of it.
    fn open<'b>(
        &self,
        (field, file): (&str, &'b SoundFile),
        record: &SampleRecord<'_>,
        seed: (u64, SampleKey),
        scratch: &mut DecodeScratch,
    ) -> Result<TakenSound<'b>, BadSampleProblem> {
        let sound = opened(field, &file.bytes, scratch)?;
        let head = scratch.heard.as_ref().expect("the head of the file that was opened").head;
        Ok(TakenSound { sound, part: self.part(field, (head, file.clip), record, seed)? })
    }

    /// Chooses what is taken of a file. Its head is not read again if another column of the sample has read it.
    pub(super) fn part_of(
        &self,
        (field, file): (&str, &SoundFile),
        record: &SampleRecord<'_>,
        seed: (u64, SampleKey),
        scratch: &mut DecodeScratch,
    ) -> Result<SoundPart, BadSampleProblem> {
        if !scratch.heard.as_ref().is_some_and(|heard| heard.is(&file.bytes)) {
            opened(field, &file.bytes, scratch)?;
        }
        let head = scratch.heard.as_ref().expect("the head of the file, which was opened if it was another").head;
        self.part(field, (head, file.clip), record, seed)
    }

    /// Chooses what is taken of a file with this head, and of the sound of a clip that begins and ends then.
    fn part(
        &self,
        field: &str,
        (head, clip): (SoundHead, Option<[i128; 2]>),
        record: &SampleRecord<'_>,
        (seed, key): (u64, SampleKey),
    ) -> Result<SoundPart, BadSampleProblem> {
        let sound_problem = |problem: String| BadSampleProblem::Sound { field: field.to_owned(), problem };
        if head.frames == 0 {
            return Err(sound_problem("has no samples".to_owned()));
        }
        let has = head.channels;
        if let AudioChannels::Count(channels) = self.column.channels
            && channels != has
        {
            return Err(sound_problem(format!("has {has} channels, and `channels` is {channels}")));
        }
        let rate = self.column.rate.unwrap_or(head.rate);
        let mut draw = Draw::new(seed, key.epoch, key.id.0);
        let speed = drawn_speed(&self.column.ops, &mut draw);
        let all_frames = head.frames_at(rate, speed);
        let sound_frames = match &self.column.span {
            Some(span) => audio_span::frames(span, record, all_frames, f64::from(rate) * 1000.0 / f64::from(speed))?,
            None => 0..all_frames,
        };
        let of_clip =
            clip.map(|span| HeardFrames::of(span, rate, all_frames, self.column.segment.map(|segment| segment.frames)));
        let (silence, sound_frames) =
            of_clip.map_or((0, sound_frames), |HeardFrames { silence, frames }| (silence, frames));
        let has = silence + (sound_frames.end - sound_frames.start);
        let most = self.column.max_frames;
        if self.column.segment.is_none() && has > most.into() {
            let problem =
                format!("has {has} frames of {rate} Hz; `max_seconds` allows {most}: raise it, or take a `segment`");
            return Err(BadSampleProblem::SoundTooLong { field: field.to_owned(), problem });
        }
        let (first, frames) = match clip {
            Some(_) => (0, has - silence),
            None => self.column.part(has, || draw.bits()),
        };
        if clip.is_some() && self.column.segment.is_none() && has == 0 {
            return Err(sound_problem("has no sound while the clip is shown".to_owned()));
        }
        if self.column.segment.is_none() && self.column.rows(silence + frames) == 0 {
            return Err(sound_problem(format!("has {has} frames of {rate} Hz, which give no frame of `features`")));
        }
        Ok(SoundPart { rate, silence, first: sound_frames.start + first, frames, speed, draw })
    }

    /// Returns what changes the sample rate of a part of a file, if that has another one.
    fn resampling(&self, head: SoundHead, part: &SoundPart) -> Result<Option<Resampling>, SoundError> {
        // Nothing is taken of a sound that is not heard while a clip is shown.
        if part.frames == 0 {
            Ok(None)
        } else {
            head.resampling(&self.resamplers, (part.rate, part.speed), part.taken())
        }
    }

    /// Writes the samples of what is taken, and the silence behind it.
    fn write(
        &self,
        taken: &TakenSound<'_>,
        resampling: Option<&Resampling>,
        scratch: &mut SoundScratch,
        out: &mut [u8],
    ) -> Result<(), MediaError> {
        let bytes_of = |frames: u64| to_usize(frames * self.channels() * self.dtype.bytes() as u64);
        let (before, out) = out.split_at_mut(bytes_of(taken.part.silence));
        let (out, behind) = out.split_at_mut(bytes_of(taken.part.frames));
        before.fill(0);
        behind.fill(0);
        let mix = match self.column.channels {
            AudioChannels::Mean => ChannelMix::Mean,
            AudioChannels::First => ChannelMix::First,
            AudioChannels::Count(_) => ChannelMix::Keep,
        };
        let mut writer = SampleWriter::new(self.form(), out);
        let Some(resampling) = resampling else {
            return taken.sound.decode(taken.part.taken(), mix, scratch, |samples| writer.write(samples));
        };
        let mut channels = taken.sound.decode_channels(resampling.frames(), mix, scratch)?;
        for channel in &mut channels {
            *channel = resampling.resample(channel, taken.part.taken());
        }
        writer.write_channels(&channels);
        Ok(())
    }

    /// Opens the recordings that operations take for a sample of which a part is taken.
    fn recordings<'s>(
        &'s self,
        part: &SoundPart,
        record: &SampleRecord<'s>,
        seed: (u64, SampleKey),
        scratch: &mut SoundScratch,
    ) -> Result<Vec<TakenDatasetSound<'s>>, BadSampleProblem> {
        let opened = drawn(&self.column.ops, seed).map(|drawn| {
            let name = self.column.ops[drawn.operation].name();
            TakenDatasetSound::open((name, drawn), record, (part.rate, part.length()), &self.resamplers, scratch)
        });
        opened.collect()
    }

    /// Makes the operations on the samples that are sound.
    fn change_samples(
        &self,
        part: &mut SoundPart,
        recordings: &[TakenDatasetSound<'_>],
        scratch: &mut SoundScratch,
        out: &mut [u8],
    ) -> ValueResult {
        if !audio_ops::change_samples(&self.column.ops) {
            return Ok(());
        }
        let out = &mut out[..to_usize(part.length() * self.channels()) * size_of::<f32>()];
        let mut samples = samples_of(out);
        let channels = to_usize(self.channels());
        audio_ops::on_samples(&self.column.ops, (&mut samples, channels), &mut part.draw, recordings, scratch)?;
        for (out, sample) in out.as_chunks_mut().0.iter_mut().zip(samples) {
            *out = sample.to_le_bytes();
        }
        Ok(())
    }

    /// Returns the rows of the result that are sound.
    pub(super) fn rows(&self, part: &SoundPart) -> u64 {
        self.column.rows(part.length())
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
    fn memory_bytes(
        &self,
        taken: &TakenSound<'_>,
        resampling: Option<&Resampling>,
        recordings: &[TakenDatasetSound<'_>],
        samples_bytes: u64,
    ) -> u64 {
        let resampled = resampling.map_or(0, |Resampling { source, .. }| {
            // Each channel before and after it is resampled.
            4 * self.channels() * ((source.end - source.start) as u64 + taken.part.frames)
        });
        let features = self.features.as_ref().map_or(0, |features| {
            // The samples as numbers, and what is made of them.
            samples_bytes + 4 * self.column.rows(samples_bytes / 4) * features.mels() as u64
        });
        let changed = if audio_ops::change_samples(&self.column.ops) { 2 * samples_bytes } else { 0 };
        let of_recordings = recordings.iter().map(|taken| taken.memory_bytes(samples_bytes / 4)).sum::<u64>();
        let own = if self.is_in_place() { 0 } else { samples_bytes };
        PACKET_BYTES + resampled + features + changed + of_recordings + own
    }
}

impl ColumnDecoder for AudioDecoder {
    fn fields(&self) -> Vec<&str> {
        let at = self.clip.iter().filter_map(|clip| clip.at.as_deref());
        self.column.span.iter().flat_map(AudioSpan::fields).chain(at).collect()
    }

    fn reads_sound_parts(&self) -> bool {
        !self.is_of_clip() && (self.column.segment.is_some() || self.column.span.is_some())
    }

    fn sound_frames(
        &self,
        (field, table): (&str, &SoundTable<'_>),
        seed: (u64, SampleKey),
        record: &SampleRecord<'_>,
    ) -> Option<Range<u64>> {
        let head = head_of_table(table);
        let taken = match self.part(field, (head, None), record, seed) {
            Ok(part) => self.resampling(head, &part).map(|resampling| part.source(resampling.as_ref())).ok(),
            Err(BadSampleProblem::Missing { .. }) => return None,
            // The head is enough to say what is wrong.
            Err(_) => None,
        };
        Some(taken.unwrap_or_default())
    }

    fn drawn_sounds(&self, seed: (u64, SampleKey)) -> Vec<DrawnSound<'_>> {
        drawn(&self.column.ops, seed).collect()
    }

    fn drawn_frames(&self, drawn: &DrawnSound<'_>, table: &SoundTable<'_>) -> Option<Range<u64>> {
        let most = self.column.segment.map_or(self.column.max_frames, |segment| segment.frames);
        may_take(drawn, head_of_table(table), (self.column.rate?, most), &self.resamplers)
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let ColumnSample { field, content, seed, key, record, resources, scratch } = sample;
        let file = content.into_file();
        let file_bytes = file.len() as u64;
        let file = self.sound_file((field, file), (seed, key), (record, resources.limits))?;
        let mut taken = self.open((field, &file), record, (seed, key), scratch)?;
        let scratch = &mut scratch.sound;
        let recordings = self.recordings(&taken.part, record, (seed, key), scratch)?;
        let frames = self.column.segment.map_or(taken.part.length(), |segment| segment.frames.into());
        let samples_bytes = frames * self.channels() * self.dtype.bytes() as u64;
        let resampling = self.resampling(head_of(&taken.sound), &taken.part);
        let resampling =
            resampling.map_err(|error| BadSampleProblem::Sound { field: field.to_owned(), problem: reason(error) })?;
        let read_bytes = taken.sound.bytes_of(&taken.part.source(resampling.as_ref()));
        record.note_unread(file_bytes.saturating_sub(read_bytes));
        let copy_bytes = taken.sound.copy_bytes();
        let needed_bytes = copy_bytes + self.memory_bytes(&taken, resampling.as_ref(), &recordings, samples_bytes);
        let _permit = resources.memory.take(needed_bytes).map_err(|NeverFits { max_bytes }| {
            BadSampleProblem::SoundMemory { field: field.to_owned(), needed_bytes, max_bytes }
        })?;
        let mut write = |scratch: &mut SoundScratch, out: &mut [u8]| {
            self.write(&taken, resampling.as_ref(), scratch, out).map_err(|error| of_media(field, &error))?;
            self.change_samples(&mut taken.part, &recordings, scratch, out)
        };
        if self.is_in_place() {
            return write(scratch, target.fixed());
        }
        let mut value = vec![0; to_usize(samples_bytes)];
        write(scratch, &mut value)?;
        if let Some(features) = &self.features {
            let mut of_sound = features_of(features, &value);
            audio_ops::on_features(&self.column.ops, &mut of_sound, features.mels(), &mut taken.part.draw);
            value = of_sound.into_iter().flat_map(f32::to_le_bytes).collect();
        }
        match &self.column.segment {
            Some(_) => target.fixed().copy_from_slice(&value),
            None => *target.ragged() = value.into(),
        }
        Ok(())
    }
}

/// Opens a file, and keeps its head.
fn opened<'b>(field: &str, file: &'b Bytes, scratch: &mut DecodeScratch) -> Result<Sound<'b>, BadSampleProblem> {
    if file.is_empty() {
        return Err(BadSampleProblem::Empty { field: field.to_owned() });
    }
    let sound = Sound::open(file, &mut scratch.sound).map_err(|error| of_media(field, &error))?;
    scratch.heard = Some(HeardFile { file: file.clone(), head: head_of(&sound) });
    Ok(sound)
}

impl SoundPart {
    /// Returns the frames that are taken of the sound after resampling.
    const fn taken(&self) -> Range<u64> {
        self.first..self.first + self.frames
    }

    /// Returns the frames of the result before the silence behind them.
    const fn length(&self) -> u64 {
        self.silence + self.frames
    }

    /// Returns the frames of the file that are needed.
    fn source(&self, resampling: Option<&Resampling>) -> Range<u64> {
        resampling.map_or_else(|| self.taken(), Resampling::frames)
    }
}

impl HeardFile {
    /// Returns whether these are the bytes of the file: they are not freed while this is kept.
    fn is(&self, file: &Bytes) -> bool {
        (self.file.as_ptr(), self.file.len()) == (file.as_ptr(), file.len())
    }
}

/// Computes the features of samples of 4 bytes each.
fn features_of(features: &MelFeatures, samples: &[u8]) -> Vec<f32> {
    let samples = samples_of(samples);
    let mut values = vec![0.0; features.frames(samples.len()) * features.mels()];
    features.compute(&samples, &mut values);
    values
}

fn samples_of(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|sample| f32::from_le_bytes(*sample)).collect()
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

fn head_of(sound: &Sound<'_>) -> SoundHead {
    SoundHead { rate: sound.track().rate, channels: sound.track().channels, frames: sound.frames() }
}

fn head_of_table(table: &SoundTable<'_>) -> SoundHead {
    SoundHead { rate: table.track().rate, channels: table.track().channels, frames: table.frames() }
}

/// Returns the problem of a sound in a field.
fn of_media(field: &str, error: &MediaError) -> BadSampleProblem {
    BadSampleProblem::Sound { field: field.to_owned(), problem: reason(error) }
}
