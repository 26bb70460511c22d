//! What the head of a video file says.

use std::fmt;

/// A track of pictures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoTrack {
    /// Its number in the file.
    pub id: u64,
    /// How pictures are coded.
    pub codec: VideoCodec,
    /// What a decoder has to know before the first packet, as libavcodec takes it: the content of `avcC`, `hvcC` or `av1C`, a
    /// configuration of MPEG-4, or what Matroska has as `CodecPrivate`. It may be empty.
    pub extra_data: Vec<u8>,
    /// Bytes that come before those of each packet, which the file has only once. Mostly there are none.
    pub packet_prefix: Vec<u8>,
    /// Width of pictures as they are coded, in pixels, before they are turned.
    pub width: u32,
    /// Height of pictures as they are coded, in pixels.
    pub height: u32,
    /// How pictures are turned to be shown.
    pub rotation: VideoRotation,
    /// Width and height of a pixel; equal for most videos.
    pub pixel_aspect: [u32; 2],
    /// What the numbers of pixels mean.
    pub color: VideoColor,
    /// The unit of time as a fraction of a second, such as 1/12800.
    pub time_base: [u32; 2],
}

/// How pictures are coded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum VideoCodec {
    H264,
    Hevc,
    Av1,
    Vp8,
    Vp9,
    /// MPEG-4 Part 2.
    Mpeg4,
    Mpeg2,
    Mpeg1,
    /// JPEGs one after the other.
    Mjpeg,
    /// Another codec, by its name in the file.
    Other(String),
}

/// How pictures are turned to be shown, clockwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum VideoRotation {
    #[default]
    None,
    Quarter,
    Half,
    ThreeQuarters,
}

/// What the numbers of pixels mean, as ITU-T H.273 counts it; 2 where the file leaves it open. Packets may say it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoColor {
    /// The primaries: 1 of BT.709, 9 of BT.2020.
    pub primaries: u16,
    /// The transfer characteristics: 1 of BT.709, 16 of PQ, 18 of HLG.
    pub transfer: u16,
    /// The matrix: 1 of BT.709, 6 of BT.601, 9 of BT.2020.
    pub matrix: u16,
    /// Whether numbers take their full range, such as 0 to 255, in place of 16 to 235.
    pub is_full_range: Option<bool>,
}

impl VideoRotation {
    /// Returns the degrees, clockwise.
    #[must_use]
    pub const fn degrees(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Quarter => 90,
            Self::Half => 180,
            Self::ThreeQuarters => 270,
        }
    }
}

impl Default for VideoColor {
    fn default() -> Self {
        Self { primaries: 2, transfer: 2, matrix: 2, is_full_range: None }
    }
}

impl fmt::Display for VideoCodec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::H264 => "H.264",
            Self::Hevc => "HEVC",
            Self::Av1 => "AV1",
            Self::Vp8 => "VP8",
            Self::Vp9 => "VP9",
            Self::Mpeg4 => "MPEG-4",
            Self::Mpeg2 => "MPEG-2",
            Self::Mpeg1 => "MPEG-1",
            Self::Mjpeg => "MJPEG",
            Self::Other(name) => name,
        })
    }
}

/// Returns a ratio in its least numbers; 1 to 1 if one of them is 0, or too large.
pub(crate) fn ratio<T: Into<u64>>(parts: [T; 2]) -> [u32; 2] {
    let parts = parts.map(Into::into);
    let divisor = common_divisor(parts[0], parts[1]).max(1);
    match parts.map(|part| u32::try_from(part / divisor)) {
        [Ok(first), Ok(second)] if first > 0 && second > 0 => [first, second],
        _ => [1, 1],
    }
}

/// Returns the greatest number that divides both.
pub(super) const fn common_divisor(mut first: u64, mut second: u64) -> u64 {
    while second > 0 {
        (first, second) = (second, first % second);
    }
    first
}
