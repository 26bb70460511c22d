//! What the head of a sound file says.

use std::ops::Range;

use crate::{MediaError, input::Input};

/// The sound in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// How samples are stored.
    pub codec: SoundCodec,
    /// How they lie in the file.
    pub container: SoundContainer,
    /// Frames per second, in Hz.
    pub rate: u32,
    /// Samples in a frame, 1 or more.
    pub channels: u16,
    /// Number of frames; `None` if the head leaves it open, as that of MP3, and of a FLAC file which was written to a pipe.
    pub frames: Option<u64>,
    /// Where the samples or packets lie in the file; of MP4, their tables, and of Matroska, the whole file.
    pub data: Range<u64>,
}

/// How samples are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoundCodec {
    /// Samples of this form, those of a frame side by side.
    Pcm(PcmSample),
    /// Packets of FLAC.
    Flac(FlacStream),
    /// Packets of MP3.
    Mp3,
    /// Packets of Vorbis.
    Vorbis,
    /// Packets of Opus.
    Opus,
    /// Packets of AAC-LC.
    Aac,
}

/// How the samples or packets of a sound lie in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoundContainer {
    /// End to end, as in WAV, AIFF, AU, CAF, FLAC, MP3 and ADTS.
    Plain,
    /// In pages of Ogg.
    Ogg,
    /// Wherever the tables of MP4 or MOV say.
    Mp4,
    /// In the blocks of Matroska or WebM.
    Matroska,
}

/// The form of one PCM sample: little-endian, but for those that say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PcmSample {
    U8,
    I16,
    I24,
    I32,
    F32,
    F64,
    ALaw,
    MuLaw,
    I8,
    I16Be,
    I24Be,
    I32Be,
    F32Be,
    F64Be,
}

/// What the head of a FLAC file says about its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlacStream {
    /// Bits of a sample, 4 to 24.
    pub bits: u8,
    /// The most frames in a packet.
    pub max_packet_frames: u16,
}

impl PcmSample {
    /// Returns the bytes of a sample.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::U8 | Self::I8 | Self::ALaw | Self::MuLaw => 1,
            Self::I16 | Self::I16Be => 2,
            Self::I24 | Self::I24Be => 3,
            Self::I32 | Self::F32 | Self::I32Be | Self::F32Be => 4,
            Self::F64 | Self::F64Be => 8,
        }
    }

    /// Returns the form of whole numbers of so many bytes, those of one byte with a sign.
    pub(crate) const fn whole(bytes: u32, is_big_endian: bool) -> Option<Self> {
        Some(match (bytes, is_big_endian) {
            (1, _) => Self::I8,
            (2, false) => Self::I16,
            (3, false) => Self::I24,
            (4, false) => Self::I32,
            (2, true) => Self::I16Be,
            (3, true) => Self::I24Be,
            (4, true) => Self::I32Be,
            _ => return None,
        })
    }

    /// Returns the form of floating-point numbers of so many bytes.
    pub(crate) const fn float(bytes: u32, is_big_endian: bool) -> Option<Self> {
        Some(match (bytes, is_big_endian) {
            (4, false) => Self::F32,
            (8, false) => Self::F64,
            (4, true) => Self::F32Be,
            (8, true) => Self::F64Be,
            _ => return None,
        })
    }

    /// Returns whether a sample may be infinite, or no number.
    pub(crate) const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F32Be | Self::F64Be)
    }
}

/// The most channels of samples that are not coded, as in `libsndfile`.
const MAX_CHANNELS: u64 = 1024;

impl Track {
    /// The track of samples that lie side by side in a range of the file, which may end within a frame.
    ///
    /// # Errors
    /// If it has no rate, or no channels or too many.
    pub(crate) fn of_samples(
        sample: PcmSample,
        (rate, channels): (u64, u64),
        data: Range<u64>,
        input: &Input<'_, '_>,
    ) -> Result<Self, MediaError> {
        if channels == 0 {
            return Err(input.malformed("the sound has no channels"));
        }
        if channels > MAX_CHANNELS {
            return Err(MediaError::Unsupported { what: format!("{channels} channels") });
        }
        let rate = u32::try_from(rate).unwrap_or_default();
        if rate == 0 {
            return Err(input.malformed("the sample rate is 0 Hz"));
        }
        let frame_bytes = channels * u64::from(sample.bytes());
        let start = data.start.min(input.file_bytes());
        let frames = (data.end.min(input.file_bytes()) - start) / frame_bytes;
        Ok(Self {
            codec: SoundCodec::Pcm(sample),
            container: SoundContainer::Plain,
            rate,
            channels: u16::try_from(channels).expect("at most 1,024"),
            frames: Some(frames),
            data: start..start + frames * frame_bytes,
        })
    }
}

/// Returns a sample rate that is stored as a fraction: 0 if it is none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within the limits")]
pub(crate) fn whole_hertz(rate: f64) -> u32 {
    if (1.0..=1e9).contains(&rate) { rate.round() as u32 } else { 0 }
}
