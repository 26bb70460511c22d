//! What a child answers. It may have been taken over by a damaged stream, so each number is checked.

use spdl_media::VideoColor;

use super::MessageBytes;
use crate::{PlaneFormat, PlaneKind, shape::FrameShape};

/// The most frames of a reply.
pub(crate) const MAX_REPLY_FRAMES: usize = 256;

/// A message of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChildReply {
    /// The library is loaded, and the child has given up its rights. The name of the library.
    Ready(String),
    /// There is no library. Where it was looked for.
    NoLibrary(String),
    /// The child cannot give up its rights, and does not decode with them. The reason.
    NotLocked(String),
    /// Frames in memory, and what has to be done next.
    Frames(Vec<FoundFrame>, NextStep),
}

/// A frame in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundFrame {
    /// Its number among the wanted ones.
    pub(crate) nth: usize,
    pub(crate) shape: FrameShape,
    pub(crate) color: VideoColor,
    /// Where its first plane begins.
    pub(crate) place: usize,
}

/// What a child needs to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Nothing: the request is done.
    Done,
    /// The memory for frames.
    GoOn,
    /// More packets.
    Packets,
    /// Memory of at least so many bytes.
    Output(usize),
    /// Nothing: the request has failed.
    Failed(FailureKind, String),
}

/// Why a request has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The library has no decoder for the codec.
    Codec,
    /// The format of pixels is not supported. Its name.
    Format,
    /// The stream is not valid. What the library said.
    Stream,
    /// There is not enough memory.
    Memory,
}

const KINDS: [FailureKind; 4] = [FailureKind::Codec, FailureKind::Format, FailureKind::Stream, FailureKind::Memory];

impl ChildReply {
    /// Returns the bytes of the message. Texts are cut to some hundred bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let text = |kind: u8, text: &str| [&[kind], short(text).as_bytes()].concat();
        match self {
            Self::Ready(name) => text(b'R', name),
            Self::NoLibrary(problem) => text(b'N', problem),
            Self::NotLocked(problem) => text(b'X', problem),
            Self::Frames(frames, next) => {
                let mut bytes = vec![b'F'];
                bytes.extend((frames.len() as u64).to_le_bytes());
                frames.iter().for_each(|frame| frame.encode(&mut bytes));
                match next {
                    NextStep::Done => bytes.push(b'D'),
                    NextStep::GoOn => bytes.push(b'G'),
                    NextStep::Packets => bytes.push(b'P'),
                    NextStep::Output(count) => {
                        bytes.push(b'O');
                        bytes.extend((*count as u64).to_le_bytes());
                    }
                    NextStep::Failed(kind, problem) => {
                        let number = KINDS.iter().position(|known| known == kind).expect("all are listed");
                        bytes.extend([b'E', u8::try_from(number).expect("few kinds")]);
                        bytes.extend(short(problem).as_bytes());
                    }
                }
                bytes
            }
        }
    }

    /// Reads a message; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = MessageBytes(bytes);
        let text = |bytes: &[u8]| short(&String::from_utf8_lossy(bytes)).to_owned();
        match bytes.u8()? {
            b'R' => Some(Self::Ready(text(bytes.0))),
            b'N' => Some(Self::NoLibrary(text(bytes.0))),
            b'X' => Some(Self::NotLocked(text(bytes.0))),
            b'F' => {
                let count = bytes.count().filter(|count| *count <= MAX_REPLY_FRAMES)?;
                let frames = (0..count).map(|_| FoundFrame::decode(&mut bytes)).collect::<Option<_>>()?;
                let next = match bytes.u8()? {
                    b'D' => NextStep::Done,
                    b'G' => NextStep::GoOn,
                    b'P' => NextStep::Packets,
                    b'O' => NextStep::Output(bytes.count()?),
                    b'E' => {
                        let kind = *KINDS.get(usize::from(bytes.u8()?))?;
                        return Some(Self::Frames(frames, NextStep::Failed(kind, text(bytes.0))));
                    }
                    _ => return None,
                };
                bytes.end(Self::Frames(frames, next))
            }
            _ => None,
        }
    }
}

impl FoundFrame {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let (format, size) = (self.shape.format(), self.shape.size());
        bytes.extend((self.nth as u64).to_le_bytes());
        bytes.extend((self.place as u64).to_le_bytes());
        bytes.extend(size.map(u32::to_le_bytes).as_flattened());
        bytes.extend(match format.kind {
            PlaneKind::Grey => [0, 0, 0],
            PlaneKind::Yuv { shift: [across, down] } => [1, across, down],
            PlaneKind::Rgb => [2, 0, 0],
        });
        bytes.push(format.bits);
        let color = &self.color;
        bytes.extend([color.primaries, color.transfer, color.matrix].map(u16::to_le_bytes).as_flattened());
        bytes.push(color.is_full_range.map_or(0, |is_full| 1 + u8::from(is_full)));
    }

    fn decode(bytes: &mut MessageBytes<'_>) -> Option<Self> {
        let (nth, place) = (bytes.count()?, bytes.count()?);
        let size = [bytes.u32()?, bytes.u32()?];
        let kind = match bytes.array::<3>()? {
            [0, 0, 0] => PlaneKind::Grey,
            [1, across, down] => PlaneKind::Yuv { shift: [across, down] },
            [2, 0, 0] => PlaneKind::Rgb,
            _ => return None,
        };
        let format = PlaneFormat { kind, bits: bytes.u8()? };
        let [primaries, transfer, matrix] = [bytes.u16()?, bytes.u16()?, bytes.u16()?];
        let is_full_range = [None, Some(false), Some(true)].get(usize::from(bytes.u8()?)).copied()?;
        let color = VideoColor { primaries, transfer, matrix, is_full_range };
        Some(Self { nth, shape: FrameShape::new(format, size)?, color, place })
    }
}

/// Returns the beginning of a text.
fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(1000)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(nth: usize) -> FoundFrame {
        let format = PlaneFormat { kind: PlaneKind::Yuv { shift: [1, 0] }, bits: 10 };
        let shape = FrameShape::new(format, [640, 481]).unwrap();
        let color = VideoColor { primaries: 9, transfer: 16, matrix: 9, is_full_range: Some(false) };
        FoundFrame { nth, shape, color, place: nth << 20 }
    }

    #[test]
    fn replies_are_read_as_they_were_written() {
        let replies = [
            ChildReply::Ready("libavcodec 59".to_owned()),
            ChildReply::NoLibrary("nowhere".to_owned()),
            ChildReply::NotLocked("no filter".to_owned()),
            ChildReply::Frames(vec![frame(0), frame(7)], NextStep::GoOn),
            ChildReply::Frames(vec![], NextStep::Packets),
            ChildReply::Frames(vec![frame(1)], NextStep::Output(1 << 30)),
            ChildReply::Frames(vec![], NextStep::Done),
            ChildReply::Frames(vec![], NextStep::Failed(FailureKind::Format, "pal8".to_owned())),
        ];
        for reply in replies {
            let bytes = reply.encode();
            assert_eq!(ChildReply::decode(&bytes), Some(reply));
            // Any part of it is none, or another reply.
            (0..bytes.len()).for_each(|end| drop(ChildReply::decode(&bytes[..end])));
        }
    }

    #[test]
    fn damaged_replies_are_none_or_have_frames_that_can_be() {
        let bytes = ChildReply::Frames(vec![frame(0), frame(1)], NextStep::Output(1 << 30)).encode();
        for place in 0..bytes.len() {
            for value in 0..=u8::MAX {
                let mut bytes = bytes.clone();
                bytes[place] = value;
                if let Some(ChildReply::Frames(frames, _)) = ChildReply::decode(&bytes) {
                    assert!(frames.iter().all(|frame| frame.shape.bytes() as u64 <= 6 * frame.shape.pixels()));
                }
            }
        }
    }

    #[test]
    fn frames_that_cannot_be_are_no_reply() {
        let bytes = ChildReply::Frames(vec![frame(0)], NextStep::Done).encode();
        // The width, the kind, the bits, and the range.
        for (place, value) in [(25, 0), (33, 9), (34, 5), (36, 99), (43, 3)] {
            let mut bytes = bytes.clone();
            if place == 25 {
                bytes[25..29].fill(0);
            } else {
                bytes[place] = value;
            }
            assert_eq!(ChildReply::decode(&bytes), None, "byte {place}");
        }
        let mut many = bytes;
        many[1..9].fill(0xff);
        assert_eq!(ChildReply::decode(&many), None);
    }
}
