//! What the value of a field is, found from its bytes.

use serde_json::Value;
use spdl_media::{Sound, SoundCodec, SoundScratch, Still, Video, VideoCodec, VideoReader, VideoRotation};
use spdl_pixels::{PictureLimits, open};
use spdl_shard::format::{Array, Content, FieldValue};

/// What a value is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueKind {
    /// A picture of this format.
    Picture(&'static str),
    /// A sound of this format.
    Sound(&'static str),
    /// A video of this codec.
    Video(&'static str),
    /// The path of a video of which the record has a frame.
    Frame,
    /// Text of a whole number.
    WholeNumber,
    /// Text of a number.
    Number,
    /// A number or an array: the type of its elements, and its number of dimensions.
    Array(&'static str, usize),
    /// A NumPy file of one array: its type as NumPy writes it, and its number of dimensions.
    Npy(String, usize),
    /// An annotation of Pascal VOC.
    Voc,
    /// A JSON document.
    Json,
    /// Text of any kind.
    Text,
    /// Nothing: a file without a byte.
    Empty,
    /// A file of another format.
    Other(&'static str),
    /// Several values.
    List(Box<ValueKind>),
    /// A value that cannot be read.
    Wrong,
}

/// A value: its kind, and the sides of a picture or an array, or what the head of a sound or a video says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundKind {
    /// The kind.
    pub kind: ValueKind,
    /// Width and height; the shape; sample rate in Hz, channels and frames; or width, height and frames.
    pub sides: Vec<u64>,
}

/// The first bytes of formats that are recognised.
const FORMATS: [(usize, &[u8], &str); 15] = [
    (0, b"PK\x03\x04", "zip or npz"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (4, b"ftyp", "MP4 or MOV"),
    (0, b"\x1a\x45\xdf\xa3", "Matroska or WebM"),
    (8, b"AVI ", "AVI"),
    (8, b"WAVE", "WAV"),
    (0, b"fLaC", "FLAC"),
    (0, b"OggS", "Ogg"),
    (0, b"ID3", "MP3"),
    (0, b"\xff\xfb", "MP3"),
    (0, b"%PDF", "PDF"),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5"),
    (0, b"PAR1", "Parquet"),
    (0, b"\x80\x04", "pickle, which no column reads"),
];

/// The first bytes of pictures.
const PICTURES: [(usize, &[u8], &str); 9] = [
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"\x89PNG", "PNG"),
    (8, b"WEBP", "WebP"),
    (0, b"GIF8", "GIF"),
    (0, b"BM", "BMP"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (0, b"P5", "PNM"),
    (0, b"P6", "PNM"),
];

impl FoundKind {
    /// Looks at a value.
    #[must_use]
    pub fn of(value: &Result<FieldValue, String>) -> Self {
        match value {
            Ok(FieldValue::One(Content::Array(Array { dtype, shape, .. }))) => {
                Self { kind: ValueKind::Array(dtype.name(), shape.len()), sides: shape.clone() }
            }
            Ok(FieldValue::One(Content::File(bytes))) => Self::of_file(bytes),
            Ok(FieldValue::List(files)) => {
                let first = files.iter().flatten().next().map_or(ValueKind::Empty, |file| Self::of_file(file).kind);
                Self { kind: ValueKind::List(Box::new(first)), sides: vec![files.len() as u64] }
            }
            Err(_) => Self::plain(ValueKind::Wrong),
        }
    }

    fn plain(kind: ValueKind) -> Self {
        Self { kind, sides: Vec::new() }
    }

    fn of_file(bytes: &[u8]) -> Self {
        let begins =
            |&(at, magic, _): &(usize, &[u8], &str)| bytes.get(at..).is_some_and(|rest| rest.starts_with(magic));
        if bytes.is_empty() {
            return Self::plain(ValueKind::Empty);
        }
        if let Some(npy) = of_npy(bytes) {
            return npy;
        }
        // Also what `pack --scalable` makes of JPEGs, which begins in another way.
        if let Ok(picture) = open(bytes, PictureLimits::default()) {
            let format = PICTURES.iter().find(|format| begins(format)).map_or("scalable JPEG", |(_, _, name)| name);
            return Self { kind: ValueKind::Picture(format), sides: picture.seen().map(u64::from).to_vec() };
        }
        if let Ok(still) = Still::open(bytes) {
            let is_turned = still.quarter_turns % 2 == 1;
            let [width, height] = still.size.map(u64::from);
            let sides = if is_turned { vec![height, width] } else { vec![width, height] };
            return Self { kind: ValueKind::Picture(still.format()), sides };
        }
        // A video may have sound, too.
        if let Some(video) = of_video(bytes) {
            return video;
        }
        if let Ok(sound) = Sound::open(bytes, &mut SoundScratch::default()) {
            let track = sound.track();
            let format = match track.codec {
                SoundCodec::Pcm(_) => of_samples(bytes),
                SoundCodec::Flac(_) => "FLAC",
                SoundCodec::Mp3 => "MP3",
                SoundCodec::Vorbis => "Vorbis",
                SoundCodec::Opus => "Opus",
                SoundCodec::Aac => "AAC",
            };
            let sides = vec![track.rate.into(), track.channels.into(), sound.frames()];
            return Self { kind: ValueKind::Sound(format), sides };
        }
        if let Some((_, _, name)) = FORMATS.iter().find(|format| begins(format)) {
            return Self::plain(ValueKind::Other(name));
        }
        Self::plain(std::str::from_utf8(bytes).map_or(ValueKind::Other("bytes"), of_text))
    }
}

/// Returns the format of a sound whose samples are not coded.
fn of_samples(bytes: &[u8]) -> &'static str {
    match bytes.first_chunk() {
        Some(b"FORM") => "AIFF",
        Some(b".snd" | b"dns.") => "AU",
        Some(b"caff") => "CAF",
        Some(b"RIFF" | b"RF64" | b"BW64" | b"riff") => "WAV",
        _ => "PCM",
    }
}

fn of_text(text: &str) -> ValueKind {
    let text = text.trim();
    if text.parse::<i64>().is_ok() {
        ValueKind::WholeNumber
    } else if text.parse::<f64>().is_ok() {
        ValueKind::Number
    } else if text.starts_with(['{', '[']) && serde_json::from_str::<Value>(text).is_ok() {
        ValueKind::Json
    } else if text.starts_with('<') && text.contains("<annotation") {
        ValueKind::Voc
    } else if text.contains('\0') {
        ValueKind::Other("bytes")
    } else {
        ValueKind::Text
    }
}

/// Reads the tables of a video. A file with one frame is taken for a sound with a cover.
fn of_video(bytes: &[u8]) -> Option<FoundKind> {
    let mut reader = VideoReader::new(bytes.len() as u64);
    let Video { track, packets, .. } = loop {
        let wanted = reader.wants();
        let wanted = usize::try_from(wanted.start).ok()?..usize::try_from(wanted.end).ok()?;
        if let Some(video) = reader.read(&bytes[wanted]).ok()? {
            break video;
        }
    };
    let codec = match track.codec {
        VideoCodec::H264 => "H.264",
        VideoCodec::Hevc => "HEVC",
        VideoCodec::Av1 => "AV1",
        VideoCodec::Vp8 => "VP8",
        VideoCodec::Vp9 => "VP9",
        VideoCodec::Mpeg4 => "MPEG-4",
        VideoCodec::Mpeg2 => "MPEG-2",
        VideoCodec::Mpeg1 => "MPEG-1",
        VideoCodec::Mjpeg => "MJPEG",
        _ => "video",
    };
    let is_turned = matches!(track.rotation, VideoRotation::Quarter | VideoRotation::ThreeQuarters);
    let [width, height] = if is_turned { [track.height, track.width] } else { [track.width, track.height] };
    let frames = packets.iter().filter(|packet| packet.is_shown).count();
    let sides = vec![width.into(), height.into(), frames as u64];
    (frames > 1).then_some(FoundKind { kind: ValueKind::Video(codec), sides })
}

/// Reads the header of a NumPy file, as NumPy writes it.
fn of_npy(bytes: &[u8]) -> Option<FoundKind> {
    let version = *bytes.strip_prefix(b"\x93NUMPY")?.first()?;
    let start = if version == 1 { 10 } else { 12 };
    let rest = bytes.get(start..)?;
    let header = std::str::from_utf8(&rest[..rest.iter().position(|byte| *byte == b'\n')?]).ok()?;
    let after = |key: &str| header.split_once(key).map(|(_, rest)| rest.trim_start());
    let descr = after("'descr':")?.strip_prefix('\'')?.split_once('\'')?.0;
    let shape = after("'shape':")?.strip_prefix('(')?.split_once(')')?.0;
    let sides = shape.split(',').map(str::trim).filter(|side| !side.is_empty()).map(str::parse);
    let sides: Vec<u64> = sides.collect::<Result<_, _>>().ok()?;
    Some(FoundKind { kind: ValueKind::Npy(descr.to_owned(), sides.len()), sides })
}

impl ValueKind {
    /// Describes the kind in a word or two.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Picture(format) | Self::Sound(format) | Self::Video(format) => (*format).to_owned(),
            Self::Frame => "frame of a video".to_owned(),
            Self::WholeNumber => "whole number".to_owned(),
            Self::Number => "number".to_owned(),
            Self::Array(dtype, 0) => format!("number {dtype}"),
            Self::Array(dtype, _) => format!("array {dtype}"),
            Self::Npy(descr, _) => format!("npy {}", dtype_of(descr).unwrap_or(descr)),
            Self::Voc => "Pascal VOC".to_owned(),
            Self::Json => "JSON".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Empty => "nothing".to_owned(),
            Self::Other(name) => (*name).to_owned(),
            Self::List(kind) => format!("list of {}", kind.text()),
            Self::Wrong => "cannot be read".to_owned(),
        }
    }
}

/// Returns the type of a column for NumPy's name of it.
#[must_use]
pub fn dtype_of(descr: &str) -> Option<&'static str> {
    Some(match descr.trim_start_matches(['<', '>', '|', '=']) {
        "b1" => "bool",
        "u1" => "u8",
        "i1" => "i8",
        "u2" => "u16",
        "i2" => "i16",
        "f2" => "f16",
        "u4" => "u32",
        "i4" => "i32",
        "f4" => "f32",
        "u8" => "u64",
        "i8" => "i64",
        "f8" => "f64",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(bytes: &'static [u8]) -> ValueKind {
        FoundKind::of(&Ok(FieldValue::One(Content::File(bytes.into())))).kind
    }

    #[test]
    fn text_is_a_number_a_document_or_text() {
        assert_eq!(
            (kind(b"17\n"), kind(b"-0.5"), kind(b"a cat")),
            (ValueKind::WholeNumber, ValueKind::Number, ValueKind::Text)
        );
        assert_eq!(
            (kind(b"{\"a\": 1}"), kind(b"{not json"), kind(b"")),
            (ValueKind::Json, ValueKind::Text, ValueKind::Empty)
        );
        assert_eq!(kind(b"<annotation><object/></annotation>"), ValueKind::Voc);
        assert_eq!((kind(b"\xff\x00\x01"), kind(b"fLaC\0")), (ValueKind::Other("bytes"), ValueKind::Other("FLAC")));
    }

    #[test]
    fn a_video_is_of_a_codec_and_has_a_size_and_frames() {
        let file: &[u8] = include_bytes!("../../crates/media/tests/videos/vp9.webm");
        let found = FoundKind::of(&Ok(FieldValue::One(Content::File(file.into()))));
        assert_eq!((found.kind, found.sides.len()), (ValueKind::Video("VP9"), 3));
        assert!(found.sides.iter().all(|side| *side > 1), "{:?}", found.sides);
        let cut = FoundKind::of(&Ok(FieldValue::One(Content::File(file[..300].into()))));
        assert_eq!(cut.kind, ValueKind::Other("Matroska or WebM"));
    }

    #[test]
    fn a_numpy_file_says_its_type_and_shape() {
        let file: &[u8] = b"\x93NUMPY\x01\x00\x3a\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
        let found = FoundKind::of(&Ok(FieldValue::One(Content::File(file.into()))));
        assert_eq!(found, FoundKind { kind: ValueKind::Npy("<f4".to_owned(), 2), sides: vec![2, 3] });
        assert_eq!(found.kind.text(), "npy f32");
    }
}
