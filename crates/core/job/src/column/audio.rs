//! The kind `audio`: the samples of a sound file.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Unexpected, Visitor},
};

use super::{
    AudioFeatures, AudioSpan, ColumnKind, FeaturesFile, Kind, SpanFile,
    kind::{keys, not_of_kind},
    video::followed_video,
};
use crate::{
    KeyProblem, SoundOp, SoundStage, check::MAX_SAMPLE_BYTES, described::described, operation::step, sound_operation,
};
use spdl_types::{DType, SampleShape};

/// The highest sample rate, in Hz.
const MAX_RATE: u32 = 384_000;
/// The most channels that a column can have.
const MAX_CHANNELS: u16 = 64;
const DEFAULT_MAX_SECONDS: u32 = 60;
/// The rate of the result for which `max_seconds` counts where the files have different ones, in Hz.
const USUAL_RATE: u32 = 48_000;

keys! {
    /// The keys of an `audio` column in a job file.
    AudioKeys {
        /// For audio: the sample rate of the result, in Hz, 1 to 384000. Files of another rate are resampled, with the filter of
        /// `torchaudio.functional.resample`. Default: none; each file keeps its own.
        rate: Option<u32>,
        /// For audio: the channels of the result: `mean` for one channel, the mean of those of the file; `first` for the first
        /// one; or their number, 1 to 64, which every file then has to have. Default: `mean`.
        channels: Option<AudioChannels>,
        /// For audio: the name of a `video` column with a `clip`, whose sound it is: the first track of sound in the same file, from when the
        /// first frame of the clip is shown until its last one is no longer, or for the length of a `segment`. Default: none; files of sounds.
        follows: Option<String>,
        /// For audio: the part of each sound that is taken, as `{ seconds = 10.0, pick = "random" }`. Needs `rate`. Of a file of
        /// which only a part is wanted, only that part is decoded. Default: none; the whole sound.
        segment: Option<SegmentFile>,
        /// For audio: the part of each file that is the sound, where files are long recordings of which records name parts, as
        /// `{ start = "offset", seconds = "duration" }`: fields with numbers of seconds. What else is said of the sound, such as
        /// `segment`, is of this part, and only it is decoded. Default: none; the whole file.
        span: Option<SpanFile>,
        /// For audio: the length of the longest sound without `segment`, in seconds of the result, or of 48,000 frames without
        /// `rate`. A longer one is a bad sample. It reserves no memory. Default: 60.
        max_seconds: Option<u32>,
        /// For audio: the operations, in order: `speed` first, those on samples before those on features. Default: none.
        #[serde(deserialize_with = "step::read_all")]
        #[schemars(with = "Vec<step::StepFile<SoundOp>>")]
        ops: Vec<SoundOp>,
        /// For audio: features in place of samples, as `{ preset = "kaldi", mels = 80 }`: energies of bands in frames of some 25 ms, as
        /// models of speech take them. Needs `rate`, and one channel. Of a segment, the silence behind a short sound is part of it.
        /// Default: none; samples.
        features: Option<FeaturesFile>,
    }
}

/// The `segment` of a job file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SegmentFile {
    /// Its length, in seconds: rounded to frames of `rate`.
    pub seconds: f64,
    /// Where it begins: `random` draws a frame anew for each epoch, `start` is the first one, and `middle` leaves as much
    /// before as behind. Default: `random`; the sound of a clip begins with the clip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pick: Option<SegmentPick>,
}

/// Where a segment begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SegmentPick {
    /// At a frame that is drawn for each sample and epoch.
    #[default]
    Random,
    /// At the first frame.
    Start,
    /// Where as much is before it as behind it.
    Middle,
}

/// The channels of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AudioChannels {
    /// One: the mean of those of the file.
    #[default]
    Mean,
    /// One: the first of the file.
    First,
    /// All of the file, which has so many.
    Count(u16),
}

/// How a sound file becomes samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioColumn {
    /// Frames in a second of the result; without it, as many as the file has.
    pub rate: Option<u32>,
    /// The channels.
    pub channels: AudioChannels,
    /// Name of the `video` column of whose clips it is the sound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
    /// The part that is taken; without it, everything.
    pub segment: Option<AudioSegment>,
    /// The part of the file that is the sound; without it, all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<AudioSpan>,
    /// The most frames of a result without a segment. A sound with more is a bad sample.
    pub max_frames: u32,
    /// The operations, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<SoundOp>,
    /// What is computed of the samples; nothing if these are the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<AudioFeatures>,
}

/// The part of a sound that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioSegment {
    /// Frames of the result. Silence follows a sound that has fewer.
    pub frames: u32,
    /// Where it begins.
    pub pick: SegmentPick,
}

impl AudioColumn {
    /// Returns the frames of a result of which a sound has `frames`, and the first of them. `drawn` are random bits of the
    /// sample.
    #[must_use]
    pub fn part(&self, frames: u64, drawn: impl FnOnce() -> u64) -> (u64, u64) {
        let Some(segment) = self.segment else { return (0, frames) };
        let Some(rest) = frames.checked_sub(segment.frames.into()) else { return (0, frames) };
        let first = match segment.pick {
            SegmentPick::Start => 0,
            SegmentPick::Middle => rest / 2,
            SegmentPick::Random => {
                let first = (u128::from(drawn()) * (u128::from(rest) + 1)) >> 64;
                u64::try_from(first).expect("at most the frames that are left")
            }
        };
        (first, segment.frames.into())
    }

    /// Returns how many rows the result has of so many frames of sound: as many, or the frames of their features.
    #[must_use]
    pub fn rows(&self, frames: u64) -> u64 {
        match self.features.zip(self.rate) {
            Some((features, rate)) => features.frames(frames, rate),
            None => frames,
        }
    }

    fn max_rows(&self) -> u32 {
        let frames = self.segment.map_or(self.max_frames, |segment| segment.frames);
        u32::try_from(self.rows(frames.into())).unwrap_or(u32::MAX)
    }

    fn row(&self) -> Vec<u32> {
        if let Some(features) = self.features {
            return vec![features.mels];
        }
        match self.channels {
            AudioChannels::Mean | AudioChannels::First => Vec::new(),
            AudioChannels::Count(channels) => vec![channels.into()],
        }
    }
}

impl Kind for AudioColumn {
    const NAME: &'static str = "audio";
    const EXAMPLE: &'static str = "rate = 16000\nmax_seconds = 1";
    type Keys = AudioKeys;

    fn read(keys: &AudioKeys) -> Result<Self, KeyProblem> {
        let AudioKeys { rate, channels, follows, segment, span, max_seconds, ops, features } = keys.clone();
        if follows.is_some() && span.is_some() {
            return Err((
                "span",
                "is for recordings, and the sound of a clip is as long as that; leave one out".to_owned(),
            ));
        }
        let usual_pick = if follows.is_some() { SegmentPick::Start } else { SegmentPick::Random };
        let segment = match (segment, rate) {
            (None, _) => None,
            (Some(_), None) => {
                return Err((
                    "segment",
                    "needs `rate`, which says how many frames a second has; add rate = 16000".to_owned(),
                ));
            }
            (Some(SegmentFile { seconds, pick }), Some(rate)) => {
                let frames = (seconds * f64::from(rate)).round();
                if !(1.0..=f64::from(u32::MAX)).contains(&frames) {
                    return Err((
                        "segment",
                        format!("is {seconds} seconds; at least one frame of {rate} Hz and at most 2^32 are a segment"),
                    ));
                }
                Some(AudioSegment { frames: frames as u32, pick: pick.unwrap_or(usual_pick) })
            }
        };
        if segment.is_some() && max_seconds.is_some() {
            return Err((
                "max_seconds",
                "is for whole sounds, and `segment` takes a part of each; leave one out".to_owned(),
            ));
        }
        let seconds = max_seconds.unwrap_or(DEFAULT_MAX_SECONDS);
        let max_frames = seconds.checked_mul(rate.unwrap_or(USUAL_RATE)).ok_or_else(|| {
            ("max_seconds", format!("is {seconds}, which are more than 2^32 frames; set a `segment`"))
        })?;
        let features = features.map(|features| AudioFeatures::read(&features, rate)).transpose()?;
        let span = span.map(AudioSpan::read).transpose()?;
        let channels = channels.unwrap_or_default();
        Ok(Self { rate, channels, follows, segment, span, max_frames, ops, features })
    }

    fn follows(&self) -> Option<&str> {
        self.follows.as_deref()
    }

    fn follow(&mut self, followed: &ColumnKind) -> Result<(), KeyProblem> {
        followed_video(self.follows.as_deref().unwrap_or_default(), followed).map(drop)
    }

    fn dtypes(&self) -> &'static [DType] {
        if self.features.is_some() { &[DType::F32] } else { &[DType::F32, DType::I16] }
    }

    fn shape(&self) -> SampleShape {
        let row = self.row();
        match self.segment {
            None => SampleShape::Rows { row, max_rows: self.max_rows() },
            Some(_) => SampleShape::Fixed([&[self.max_rows()], &row[..]].concat()),
        }
    }

    fn check(&self, dtype: DType) -> Result<(), KeyProblem> {
        if let Some(rate) = self.rate.filter(|rate| !(1..=MAX_RATE).contains(rate)) {
            return Err(("rate", format!("is {rate}, not in 1..={MAX_RATE}")));
        }
        if let AudioChannels::Count(channels) = self.channels
            && !(1..=MAX_CHANNELS).contains(&channels)
        {
            return Err(("channels", format!("is {channels}, not in 1..={MAX_CHANNELS}")));
        }
        self.span.as_ref().map_or(Ok(()), AudioSpan::check)?;
        if self.follows.is_some() && self.segment.is_some_and(|segment| segment.pick != SegmentPick::Start) {
            return Err((
                "segment",
                "has `pick`, and the sound of a clip begins with the clip; leave it out".to_owned(),
            ));
        }
        if self.follows.is_some() && self.ops.iter().any(|op| op.stage() == SoundStage::Decoding) {
            return Err((
                "ops",
                "have `speed`, and the sound of a clip is as fast as its frames; leave one out".to_owned(),
            ));
        }
        sound_operation::check_all(&self.ops, self.features.is_some())?;
        if let Some(op) = self.ops.iter().find(|op| op.stage() == SoundStage::Samples && dtype != DType::F32) {
            return Err(("ops", format!("have `{}`, which is for samples of f32; set dtype = \"f32\"", op.name())));
        }
        let (key, frames) = self.segment.map_or(("max_seconds", self.max_frames), |part| ("segment", part.frames));
        if frames == 0 {
            return Err((key, "is 0".to_owned()));
        }
        if self.features.is_some() && matches!(self.channels, AudioChannels::Count(_)) {
            return Err(("features", "are of one channel; take channels = \"mean\" or \"first\"".to_owned()));
        }
        if self.max_rows() == 0 {
            return Err((key, format!("is {frames} frames of sound, which give no frame of `features`")));
        }
        let bytes = self.shape().max_bytes(dtype);
        if bytes > MAX_SAMPLE_BYTES.into() {
            return Err((
                key,
                format!("is {frames} frames, which take {bytes} bytes; the limit is {MAX_SAMPLE_BYTES}"),
            ));
        }
        Ok(())
    }
}

/// Returns the `audio` column `name`, which a column follows.
///
/// # Errors
/// The problem of a column that follows another kind.
pub(super) fn followed_audio<'c>(name: &str, followed: &'c ColumnKind) -> Result<&'c AudioColumn, KeyProblem> {
    let ColumnKind::Audio(audio) = followed else {
        return Err(not_of_kind(name, followed, "audio"));
    };
    Ok(audio)
}

impl Serialize for AudioChannels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Mean => serializer.serialize_str("mean"),
            Self::First => serializer.serialize_str("first"),
            Self::Count(channels) => serializer.serialize_u16(*channels),
        }
    }
}

impl<'de> Deserialize<'de> for AudioChannels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ChannelsVisitor)
    }
}

struct ChannelsVisitor;

impl Visitor<'_> for ChannelsVisitor {
    type Value = AudioChannels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"mean\", \"first\" or a number of channels")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<AudioChannels, E> {
        match name {
            "mean" => Ok(AudioChannels::Mean),
            "first" => Ok(AudioChannels::First),
            _ => Err(E::invalid_value(Unexpected::Str(name), &self)),
        }
    }

    fn visit_i64<E: Error>(self, channels: i64) -> Result<AudioChannels, E> {
        let count = u16::try_from(channels).map(AudioChannels::Count);
        count.map_err(|_| E::invalid_value(Unexpected::Signed(channels), &self))
    }

    fn visit_u64<E: Error>(self, channels: u64) -> Result<AudioChannels, E> {
        let count = u16::try_from(channels).map(AudioChannels::Count);
        count.map_err(|_| E::invalid_value(Unexpected::Unsigned(channels), &self))
    }
}

described!(AudioChannels, "AudioChannels", |_| schemars::json_schema!({
    "description": "`mean`, `first`, or a number of channels.",
    "anyOf": [
        { "type": "string", "enum": ["mean", "first"] },
        { "type": "integer", "minimum": 1, "maximum": MAX_CHANNELS },
    ],
}));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::testing::{job_of, job_with};

    #[test]
    fn whole_sounds_are_ragged_and_segments_have_one_length() {
        let column =
            |keys: &str| job_of("audio", keys).unwrap_or_else(|error| panic!("{keys}: {error}")).columns.remove(0);
        let rows = |row: &[u32], max_rows| SampleShape::Rows { row: row.to_vec(), max_rows };
        assert_eq!(column("").shape(), rows(&[], 60 * 48_000));
        assert_eq!(column("").dtype, DType::F32);
        assert_eq!(column("rate = 16000\nmax_seconds = 30").shape(), rows(&[], 480_000));
        assert_eq!(column("channels = 2\ndtype = \"i16\"").shape(), rows(&[2], 60 * 48_000));
        let fbank = column("rate = 16000\nmax_seconds = 30\nfeatures = { preset = \"kaldi\" }");
        assert_eq!(fbank.shape(), rows(&[80], 2998));
        let whisper =
            column("rate = 16000\nsegment = { seconds = 30 }\nfeatures = { preset = \"whisper\", mels = 128 }");
        assert_eq!(whisper.sample_shape(), Some(vec![3000, 128]));
        let second = column("rate = 22050\nsegment = { seconds = 0.5 }\nchannels = \"first\"");
        assert_eq!(second.shape(), SampleShape::Fixed(vec![11_025]));
        let stereo = column("rate = 16000\nsegment = { seconds = 1, pick = \"middle\" }\nchannels = 2");
        assert_eq!(stereo.sample_shape(), Some(vec![16_000, 2]));
    }

    #[test]
    fn a_column_of_sound_survives_storage() {
        for keys in [
            "",
            "rate = 8000",
            "channels = 6",
            "rate = 16000\nsegment = { seconds = 2.5, pick = \"start\" }",
            "rate = 8000\nfeatures = { preset = \"torchaudio\", power = 1 }",
            "span = { start = \"offset\" }",
            "rate = 8000\nsegment = { seconds = 1 }\nspan = { start = \"a\", seconds = \"b\" }",
        ] {
            let job = job_of("audio", keys).unwrap();
            let back: crate::Job = serde_json::from_slice(&serde_json::to_vec(&job).unwrap()).unwrap();
            assert_eq!(back, job, "{keys}");
        }
    }

    #[test]
    fn keys_that_do_not_fit_are_named() {
        for (keys, expected) in [
            ("rate = 0", "`rate` is 0, not in 1..=384000"),
            ("channels = 65", "`channels` is 65, not in 1..=64"),
            ("channels = \"left\"", "\"mean\", \"first\" or a number of channels"),
            ("segment = { seconds = 1.0 }", "`segment` needs `rate`"),
            ("rate = 8000\nsegment = { seconds = 0.00001 }", "`segment` is 0.00001 seconds"),
            ("rate = 8000\nsegment = { seconds = nan }", "`segment` is NaN seconds"),
            ("rate = 8000\nsegment = { seconds = 1e9 }", "seconds; at least one frame"),
            ("rate = 8000\nmax_seconds = 4\nsegment = { seconds = 1 }", "`max_seconds` is for whole sounds"),
            ("span = {}", "`span` names no field; write { start = "),
            ("span = { start = \"\" }", "`span` names ``, which cannot be a field"),
            ("span = { seconds = 2.0 }", "span: seconds expects a text in quotes, not 2.0"),
            ("max_seconds = 0", "`max_seconds` is 0"),
            ("max_seconds = 100000", "is 100000, which are more than 2^32 frames"),
            ("rate = 48000\nmax_seconds = 6000", "the limit is 1073741824"),
            ("dtype = \"u8\"", "`dtype` cannot be u8 for decode = \"audio\""),
            ("features = { preset = \"kaldi\" }", "`features` need `rate`"),
            ("rate = 8000\nfeatures = { preset = \"whisper\" }", "`features` of `whisper` are of sound of 16000 Hz"),
            (
                "rate = 8000\nfeatures = { preset = \"nemo\", n_fft = 512 }",
                "`n_fft`, which only the preset `torchaudio` has",
            ),
            ("rate = 8000\nfeatures = { preset = \"nemo\", mels = 0 }", "`mels` = 0, not in 1..=1024"),
            ("rate = 8000\nfeatures = { preset = \"torchaudio\", n_fft = 14 }", "a prime factor above 5"),
            ("rate = 8000\nchannels = 2\nfeatures = { preset = \"nemo\" }", "`features` are of one channel"),
            ("rate = 8000\ndtype = \"i16\"\nfeatures = { preset = \"nemo\" }", "`dtype` cannot be i16"),
            (
                "rate = 16000\nsegment = { seconds = 0.02 }\nfeatures = { preset = \"kaldi\" }",
                "`segment` is 320 frames of sound, which give no frame of `features`",
            ),
        ] {
            let error = job_of("audio", keys).unwrap_err().to_string();
            assert!(error.contains(expected), "{keys}: {error}");
        }
    }

    #[test]
    fn the_sound_of_a_clip_follows_its_video() {
        let job = |clip: &str, keys: &str| {
            job_with(&format!(
                "name = \"c\"\nfrom = \"mp4\"\ndecode = \"video\"\n{clip}\nops = [{{ center_crop = 8 }}]\n[[column]]\nname = \"d\"\n\
                 from = \"mp4\"\ndecode = \"audio\"\nfollows = \"c\"\nrate = 16000\n{keys}"
            ))
        };
        let clip = "clip = { frames = 7 }";
        let whole = job(clip, "").unwrap();
        assert_eq!(whole.columns[1].shape(), SampleShape::Rows { row: Vec::new(), max_rows: 60 * 16_000 });
        let part = job(clip, "segment = { seconds = 0.5 }").unwrap();
        assert_eq!(part.columns[1].sample_shape(), Some(vec![8000]));
        for job in [&whole, &part] {
            let back: crate::Job = serde_json::from_slice(&serde_json::to_vec(job).unwrap()).unwrap();
            assert_eq!(back, *job);
        }
        for (clip, keys, expected) in [
            (clip, "segment = { seconds = 1, pick = \"random\" }", "`segment` has `pick`, and the sound of a clip"),
            (clip, "span = { start = \"a\" }", "`span` is for recordings"),
            (clip, "ops = [{ speed = [0.9, 1.1] }]", "`ops` have `speed`, and the sound of a clip"),
            ("", "", "`follows` is `c`, which has no `clip`"),
        ] {
            let error = job(clip, keys).unwrap_err().to_string();
            assert!(error.contains(expected), "{keys}: {error}");
        }
        let error = job_of("audio", "follows = \"none\"").unwrap_err().to_string();
        assert!(error.contains("`follows` is `none`, and the job has no such column"), "{error}");
    }

    #[test]
    fn a_segment_lies_within_the_sound_and_can_begin_anywhere_in_it() {
        let part = |pick, frames, drawn| {
            let segment = Some(AudioSegment { frames: 10, pick });
            let channels = AudioChannels::Mean;
            let column = AudioColumn {
                rate: Some(1),
                channels,
                follows: None,
                segment,
                span: None,
                max_frames: 60,
                ops: vec![],
                features: None,
            };
            column.part(frames, || drawn)
        };
        for frames in [0, 3, 9, 10] {
            for pick in [SegmentPick::Random, SegmentPick::Start, SegmentPick::Middle] {
                assert_eq!(part(pick, frames, u64::MAX), (0, frames));
            }
        }
        assert_eq!(part(SegmentPick::Random, 25, 0), (0, 10));
        assert_eq!(part(SegmentPick::Random, 25, u64::MAX), (15, 10));
        assert_eq!(part(SegmentPick::Random, u64::MAX, u64::MAX), (u64::MAX - 10, 10));
        assert_eq!(part(SegmentPick::Start, 25, u64::MAX), (0, 10));
        assert_eq!(part(SegmentPick::Middle, 25, u64::MAX), (7, 10));
    }
}
