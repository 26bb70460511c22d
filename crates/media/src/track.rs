//! What the head of a sound file says.

use std::ops::Range;

/// The sound in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// How samples are stored.
    pub codec: SoundCodec,
    /// Frames per second, in Hz.
    pub rate: u32,
    /// Samples in a frame, 1 or more.
    pub channels: u16,
    /// Number of frames; `None` if the head leaves it open, as that of MP3, and of a FLAC file which was written to a pipe.
    pub frames: Option<u64>,
    /// Where the samples or packets lie in the file; of MP4, their tables.
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
    /// Packets of Vorbis in Ogg.
    Vorbis,
    /// Packets of Opus in Ogg.
    Opus,
    /// Packets of AAC-LC in ADTS.
    Aac,
    /// Packets of AAC-LC in MP4, wherever its tables say.
    AacInMp4,
    /// Packets of Opus in MP4.
    OpusInMp4,
}

/// The form of one PCM sample. All are little-endian.
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
            Self::U8 | Self::ALaw | Self::MuLaw => 1,
            Self::I16 => 2,
            Self::I24 => 3,
            Self::I32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// Returns a sample rate that is stored as a fraction: 0 if it is none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within the limits")]
pub(crate) fn whole_hertz(rate: f64) -> u32 {
    if (1.0..=1e9).contains(&rate) { rate.round() as u32 } else { 0 }
}
