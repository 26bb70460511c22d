//! What a track of Matroska says of its pictures.

use super::ebml::{element, elements, float, unsigned};
use crate::{VideoCodec, VideoColor, VideoRotation, VideoTrack, video::ratio};

/// A track, and what its packets have.
#[derive(Clone, Debug)]
pub(crate) struct MatroskaTrack {
    pub(crate) described: VideoTrack,
    /// How long each picture is shown, in nanoseconds; 0 if the head does not say it.
    pub(crate) picture_nanos: u64,
}

pub(super) const TRACK_ENTRY: u32 = 0xae;
pub(super) const TRACK_NUMBER: u32 = 0xd7;
pub(super) const TRACK_TYPE: u32 = 0x83;
const DEFAULT_DURATION: u32 = 0x23_e383;
const TRACK_TIMESTAMP_SCALE: u32 = 0x23_314f;
pub(super) const CODEC_ID: u32 = 0x86;
pub(super) const CODEC_PRIVATE: u32 = 0x63a2;
const VIDEO: u32 = 0xe0;
const PIXEL_WIDTH: u32 = 0xb0;
const PIXEL_HEIGHT: u32 = 0xba;
const DISPLAY_WIDTH: u32 = 0x54b0;
const DISPLAY_HEIGHT: u32 = 0x54ba;
const DISPLAY_UNIT: u32 = 0x54b2;
const COLOUR: u32 = 0x55b0;
const MATRIX: u32 = 0x55b1;
const RANGE: u32 = 0x55b9;
const TRANSFER: u32 = 0x55ba;
const PRIMARIES: u32 = 0x55bb;
const PROJECTION: u32 = 0x7670;
const PROJECTION_ROLL: u32 = 0x7675;
const ENCODINGS: u32 = 0x6d80;
const ENCODING: u32 = 0x6240;
const ENCODING_SCOPE: u32 = 0x5032;
const COMPRESSION: u32 = 0x5034;
const COMPRESSION_ALGORITHM: u32 = 0x4254;
const COMPRESSION_SETTINGS: u32 = 0x4255;
const ENCRYPTION: u32 = 0x5035;

/// Bytes of the structure that Windows describes pictures with, before what a decoder has to know.
const BITMAP_INFO_BYTES: usize = 40;

/// Returns the tracks of pictures, of the content of an element `Tracks`.
pub(crate) fn picture_tracks(tracks: &[u8]) -> Vec<&[u8]> {
    let entries = elements(tracks).filter(|(id, _)| *id == TRACK_ENTRY).map(|(_, entry)| entry);
    entries.filter(|entry| unsigned(entry, TRACK_TYPE) == Some(1)).collect()
}

/// Reads the content of an element `TrackEntry` of pictures, whose unit of time is that of the segment; an error is what it has
/// that is not read.
pub(crate) fn read_track(entry: &[u8]) -> Result<MatroskaTrack, &'static str> {
    let id = unsigned(entry, TRACK_NUMBER).ok_or("a track without a number")?;
    let video = element(entry, VIDEO).ok_or("a track of pictures without their size")?;
    let side = |id: u32| unsigned(video, id).and_then(|side| u32::try_from(side).ok()).filter(|side| *side > 0);
    let (Some(width), Some(height)) = (side(PIXEL_WIDTH), side(PIXEL_HEIGHT)) else {
        return Err("a track of pictures without their size");
    };
    if float(entry, TRACK_TIMESTAMP_SCALE).is_some_and(|scale| scale != 1.0) {
        return Err("a track with a unit of time of its own");
    }
    let private = element(entry, CODEC_PRIVATE).unwrap_or_default();
    let (codec, extra_data) = codec(element(entry, CODEC_ID).unwrap_or_default(), private);
    // Of other units, the sides are centimetres, or a ratio of the whole picture.
    let shown = match unsigned(video, DISPLAY_UNIT).unwrap_or_default() {
        0..=3 => side(DISPLAY_WIDTH).zip(side(DISPLAY_HEIGHT)),
        _ => None,
    };
    Ok(MatroskaTrack {
        described: VideoTrack {
            id,
            codec,
            extra_data: extra_data.to_vec(),
            packet_prefix: packet_prefix(entry)?,
            width,
            height,
            rotation: rotation(video)?,
            pixel_aspect: shown.map_or([1, 1], |shown| {
                ratio([u64::from(shown.0) * u64::from(height), u64::from(shown.1) * u64::from(width)])
            }),
            color: element(video, COLOUR).map(color).unwrap_or_default(),
            time_base: [1, 1],
        },
        picture_nanos: unsigned(entry, DEFAULT_DURATION).unwrap_or_default(),
    })
}

/// Returns the codec of a name, and what its decoder has to know.
fn codec<'b>(id: &[u8], private: &'b [u8]) -> (VideoCodec, &'b [u8]) {
    let id = id.split(|byte| *byte == 0).next().unwrap_or_default();
    let codec = match id {
        b"V_MPEG4/ISO/AVC" => VideoCodec::H264,
        b"V_MPEGH/ISO/HEVC" => VideoCodec::Hevc,
        b"V_AV1" => VideoCodec::Av1,
        b"V_VP8" => VideoCodec::Vp8,
        b"V_VP9" => VideoCodec::Vp9,
        b"V_MPEG4/ISO/ASP" | b"V_MPEG4/ISO/SP" | b"V_MPEG4/ISO/AP" => VideoCodec::Mpeg4,
        b"V_MPEG2" => VideoCodec::Mpeg2,
        b"V_MPEG1" => VideoCodec::Mpeg1,
        b"V_MJPEG" => VideoCodec::Mjpeg,
        b"V_MS/VFW/FOURCC" => {
            let name = private.get(16..20).unwrap_or_default().to_ascii_uppercase();
            let codec = match &name[..] {
                b"H264" | b"X264" | b"AVC1" => VideoCodec::H264,
                b"DIVX" | b"DX50" | b"XVID" | b"MP4V" | b"FMP4" => VideoCodec::Mpeg4,
                b"MJPG" => VideoCodec::Mjpeg,
                _ => VideoCodec::Other(name.escape_ascii().to_string()),
            };
            return (codec, private.get(BITMAP_INFO_BYTES..).unwrap_or_default());
        }
        _ => VideoCodec::Other(id.escape_ascii().to_string()),
    };
    (codec, private)
}

/// Returns the bytes that were left out at the beginning of each packet.
pub(super) fn packet_prefix(entry: &[u8]) -> Result<Vec<u8>, &'static str> {
    let Some(encodings) = element(entry, ENCODINGS) else { return Ok(Vec::new()) };
    let mut prefix = Vec::new();
    for (_, encoding) in elements(encodings).filter(|(id, _)| *id == ENCODING) {
        if element(encoding, ENCRYPTION).is_some() {
            return Err("encrypted pictures");
        }
        // The first bit is for packets.
        if unsigned(encoding, ENCODING_SCOPE).unwrap_or(1) & 1 == 0 {
            continue;
        }
        let compression = element(encoding, COMPRESSION).unwrap_or_default();
        if unsigned(compression, COMPRESSION_ALGORITHM).unwrap_or_default() != 3 || !prefix.is_empty() {
            return Err("compressed packets");
        }
        prefix = element(compression, COMPRESSION_SETTINGS).unwrap_or_default().to_vec();
    }
    Ok(prefix)
}

fn color(content: &[u8]) -> VideoColor {
    let code = |id: u32| unsigned(content, id).and_then(|code| u16::try_from(code).ok()).unwrap_or(2);
    let is_full_range = match unsigned(content, RANGE) {
        Some(1) => Some(false),
        Some(2) => Some(true),
        _ => None,
    };
    VideoColor { primaries: code(PRIMARIES), transfer: code(TRANSFER), matrix: code(MATRIX), is_full_range }
}

/// Returns how pictures are turned: the roll is counterclockwise.
fn rotation(video: &[u8]) -> Result<VideoRotation, &'static str> {
    let roll = element(video, PROJECTION).and_then(|projection| float(projection, PROJECTION_ROLL)).unwrap_or_default();
    match roll {
        0.0 => Ok(VideoRotation::None),
        -90.0 | 270.0 => Ok(VideoRotation::Quarter),
        180.0 | -180.0 => Ok(VideoRotation::Half),
        90.0 | -270.0 => Ok(VideoRotation::ThreeQuarters),
        _ => Err("pictures that are turned by other than a quarter"),
    }
}
