//! What a track of MP4 says of its pictures.

use super::{
    boxes::{boxes, find, number, time_scale},
    decoder_config,
};
use crate::{VideoCodec, VideoColor, VideoRotation, VideoTrack, video::ratio};

/// Why a track cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrackProblem {
    /// It breaks the rules of the format.
    Damaged(&'static str),
    /// It is of a kind that is not read.
    Unsupported(&'static str),
}

/// The bytes of a description before its boxes (ISO/IEC 14496-12, 12.1.3).
const DESCRIPTION_BYTES: usize = 78;

/// Returns the number of a track, of the content of its box `tkhd`.
pub(crate) fn track_id(tkhd: &[u8]) -> Option<u32> {
    number(tkhd, if *tkhd.first()? == 1 { 20 } else { 12 })
}

/// Reads the content of a box `trak` of pictures.
pub(crate) fn read_track(track: &[u8]) -> Result<VideoTrack, TrackProblem> {
    use TrackProblem::{Damaged, Unsupported};

    let tkhd = find(track, &[b"tkhd"]).ok_or(Damaged("a track has no head"))?;
    let id = track_id(tkhd).ok_or(Damaged("the head of a track is cut off"))?;
    let scale = find(track, &[b"mdia", b"mdhd"]).and_then(time_scale).ok_or(Damaged("a track has no unit of time"))?;
    // A reference has the flag 1 if it is to the file itself.
    let references = find(track, &[b"mdia", b"minf", b"dinf", b"dref"]).and_then(|content| content.get(8..));
    if references
        .is_some_and(|content| boxes(content).any(|(_, content)| content.get(3).is_some_and(|flag| flag & 1 == 0)))
    {
        return Err(Unsupported("a track whose packets lie in another file"));
    }
    let descriptions = find(track, &[b"mdia", b"minf", b"stbl", b"stsd"]).and_then(|content| content.get(8..));
    let descriptions = descriptions.ok_or(Damaged("a track has no description"))?;
    let (kind, entry) = boxes(descriptions).next().ok_or(Damaged("a track has no description"))?;
    let inner = entry.get(DESCRIPTION_BYTES..).ok_or(Damaged("the description of a track is cut off"))?;
    if &kind == b"encv" {
        return Err(Unsupported("encrypted pictures"));
    }
    let (codec, extra_data) = codec(kind, inner).ok_or(Damaged("the description of the codec is not valid"))?;
    let side = |at: usize| {
        entry.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |side| u16::from_be_bytes(*side).into())
    };
    let pixel_aspect = find(inner, &[b"pasp"]).and_then(|content| Some([number(content, 0)?, number(content, 4)?]));
    Ok(VideoTrack {
        id: id.into(),
        codec,
        extra_data: extra_data.to_vec(),
        packet_prefix: Vec::new(),
        width: side(24),
        height: side(26),
        rotation: rotation(tkhd)?,
        pixel_aspect: pixel_aspect.map_or([1, 1], ratio),
        color: color(inner),
        time_base: [1, scale],
    })
}

/// Returns the codec of a description of this kind, and what its decoder has to know.
fn codec(kind: [u8; 4], inner: &[u8]) -> Option<(VideoCodec, &[u8])> {
    let content = |name: &[u8; 4]| find(inner, &[name]).unwrap_or_default();
    Some(match &kind {
        b"avc1" | b"avc3" => (VideoCodec::H264, content(b"avcC")),
        b"hvc1" | b"hev1" | b"dvh1" | b"dvhe" => (VideoCodec::Hevc, content(b"hvcC")),
        b"av01" => (VideoCodec::Av1, content(b"av1C")),
        // What `vpcC` has is in the packets, too.
        b"vp08" => (VideoCodec::Vp8, &[]),
        b"vp09" => (VideoCodec::Vp9, &[]),
        b"jpeg" | b"mjpg" => (VideoCodec::Mjpeg, &[]),
        b"mp4v" => {
            let (kind, config) = decoder_config(find(inner, &[b"esds"])?.get(4..)?)?;
            match kind {
                0x20 => (VideoCodec::Mpeg4, config),
                0x60..=0x65 => (VideoCodec::Mpeg2, config),
                0x6a => (VideoCodec::Mpeg1, config),
                0x6c => (VideoCodec::Mjpeg, config),
                _ => (VideoCodec::Other(format!("mp4v.{kind:02x}")), config),
            }
        }
        kind => (VideoCodec::Other(kind.escape_ascii().to_string()), &[]),
    })
}

/// Returns how the matrix of a track turns its pictures.
fn rotation(tkhd: &[u8]) -> Result<VideoRotation, TrackProblem> {
    let at = if tkhd.first() == Some(&1) { 52 } else { 40 };
    let sign = |nth: usize| number(tkhd, at + 4 * nth).map_or(0, |entry| entry.cast_signed().signum());
    // Of the rows (a b u), (c d v) and (x y w); pictures may be made larger, too.
    match [0, 1, 3, 4].map(sign) {
        [1, 0, 0, 1] | [0, 0, 0, 0] => Ok(VideoRotation::None),
        [0, 1, -1, 0] => Ok(VideoRotation::Quarter),
        [-1, 0, 0, -1] => Ok(VideoRotation::Half),
        [0, -1, 1, 0] => Ok(VideoRotation::ThreeQuarters),
        _ => Err(TrackProblem::Unsupported("pictures that are mirrored, or turned by other than a quarter")),
    }
}

/// Returns what the content of a box `colr` says, if it does so by codes.
pub(crate) fn coded_color(content: &[u8]) -> Option<VideoColor> {
    let code = |at: usize| content.get(at..)?.first_chunk().map(|code| u16::from_be_bytes(*code));
    let is_full_range = match content.first_chunk()? {
        b"nclx" => Some(content.get(10)? & 0x80 != 0),
        b"nclc" => None,
        _ => return None,
    };
    Some(VideoColor { primaries: code(4)?, transfer: code(6)?, matrix: code(8)?, is_full_range })
}

/// Returns what a box `colr` says, or else `vpcC`.
fn color(inner: &[u8]) -> VideoColor {
    let of_vp9 = |content: &[u8]| {
        let [1, _, _, _, _, _, depth, primaries, transfer, matrix, ..] = *content else { return None };
        let [primaries, transfer, matrix] = [primaries, transfer, matrix].map(u16::from);
        Some(VideoColor { primaries, transfer, matrix, is_full_range: Some(depth & 1 == 1) })
    };
    let mut colors = boxes(inner).filter(|(kind, _)| kind == b"colr").map(|(_, content)| content);
    colors.find_map(coded_color).or_else(|| find(inner, &[b"vpcC"]).and_then(of_vp9)).unwrap_or_default()
}
