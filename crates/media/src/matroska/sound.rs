//! The packets of sound of a Matroska file that is in memory.

use std::borrow::Cow;

use super::{
    ebml::{ElementHead, element, elements, float, length, number, unsigned},
    segment::{
        BLOCK, BLOCK_GROUP, CLUSTER, DEFAULT_SCALE, INFO, NANOS_PER_SECOND, SEGMENT, SIMPLE_BLOCK, TIMESTAMP,
        TIMESTAMP_SCALE, TRACKS,
    },
    track::{CODEC_ID, CODEC_PRIVATE, TRACK_ENTRY, TRACK_NUMBER, TRACK_TYPE, packet_prefix},
};
use crate::{MediaError, track::whole_hertz, video::MAX_PACKETS};

const AUDIO: u32 = 0xe1;
const SAMPLING_FREQUENCY: u32 = 0xb5;
const CHANNELS: u32 = 0x9f;
const BIT_DEPTH: u32 = 0x6264;
const CODEC_DELAY: u32 = 0x56aa;
/// The sample rate, in Hz, if the file does not say it.
const DEFAULT_RATE: u32 = 8000;
/// Tracks of this type are of sound.
const SOUND: u64 = 2;
/// More bytes than are left out at the beginning of packets of sound.
const MAX_PREFIX_BYTES: usize = 64;

/// The packets of the first track of sound, in the order of the file.
#[derive(Debug)]
pub(crate) struct SoundBlocks<'b> {
    pub(crate) entry: SoundEntry<'b>,
    pub(crate) packets: Vec<SoundBlock<'b>>,
}

/// A packet, and the time of the block that has it.
#[derive(Debug)]
pub(crate) struct SoundBlock<'b> {
    pub(crate) nanos: i64,
    pub(crate) bytes: Cow<'b, [u8]>,
}

/// What a track says of its packets.
#[derive(Debug)]
pub(crate) struct SoundEntry<'b> {
    id: u64,
    pub(crate) codec: &'b [u8],
    /// What a decoder has to know.
    pub(crate) private: &'b [u8],
    pub(crate) rate: u32,
    pub(crate) channels: u16,
    pub(crate) bits: u64,
    /// How much earlier what is decoded is heard than blocks say.
    pub(crate) delay_nanos: u64,
    prefix: Vec<u8>,
}

impl<'b> SoundBlocks<'b> {
    /// Passes over the elements of a file.
    pub(crate) fn read(file: &'b [u8]) -> Result<Self, MediaError> {
        let (mut at, mut end) = (0, file.len());
        let (mut scale, mut cluster_time) = (DEFAULT_SCALE, 0_i64);
        let mut entry: Option<SoundEntry<'b>> = None;
        let mut packets = Vec::new();
        while at < end {
            let malformed = |problem| MediaError::Malformed { byte: at as u64, problem };
            let head = ElementHead::parse(&file[at..]);
            let head = head.ok_or_else(|| malformed("no element of Matroska begins here"))?;
            let from = at + usize::try_from(head.head_bytes).expect("at most 12");
            let to = head.bytes.and_then(|bytes| from.checked_add(usize::try_from(bytes).ok()?));
            // The elements in these are passed one by one, as those beside them are.
            if matches!(head.id, SEGMENT | CLUSTER | BLOCK_GROUP) {
                if head.id == SEGMENT {
                    end = to.map_or(end, |to| to.min(file.len()));
                }
                at = from;
                continue;
            }
            let truncated = MediaError::Truncated { bytes: file.len() as u64, what: "its elements" };
            let content = to.and_then(|to| file.get(from..to)).ok_or(truncated)?;
            match head.id {
                INFO => {
                    scale = unsigned(content, TIMESTAMP_SCALE).unwrap_or(DEFAULT_SCALE);
                    if !(1..=NANOS_PER_SECOND).contains(&scale) {
                        return Err(malformed("the unit of time is not valid"));
                    }
                }
                TRACKS if entry.is_none() => entry = Some(SoundEntry::first_of(content)?),
                TIMESTAMP => {
                    cluster_time = number(content).and_then(|time| i64::try_from(time).ok()).unwrap_or(i64::MAX)
                }
                SIMPLE_BLOCK | BLOCK => {
                    let entry = entry.as_ref().ok_or_else(|| malformed("packets come before their description"))?;
                    let block = CodedBlock::read(content).ok_or_else(|| malformed("a block is not valid"))?;
                    if block.track == entry.id {
                        let time = i128::from(cluster_time) + i128::from(block.time);
                        let nanos = i64::try_from(time * i128::from(scale));
                        let nanos = nanos.map_err(|_| malformed("the time of a block is not valid"))?;
                        let of_block =
                            block.packets().ok_or_else(|| malformed("a block with several packets is not valid"))?;
                        if packets.len() + of_block.len() > MAX_PACKETS {
                            return Err(malformed("the file has more than 16,777,216 packets"));
                        }
                        packets
                            .extend(of_block.into_iter().map(|bytes| SoundBlock { nanos, bytes: entry.packet(bytes) }));
                    }
                }
                _ => {}
            }
            at = from + content.len();
        }
        Ok(Self { entry: entry.ok_or(MediaError::NoSound)?, packets })
    }
}

impl<'b> SoundEntry<'b> {
    /// Reads the first track of sound, of the content of an element `Tracks`.
    fn first_of(tracks: &'b [u8]) -> Result<Self, MediaError> {
        let mut entries = elements(tracks).filter(|(id, _)| *id == TRACK_ENTRY).map(|(_, entry)| entry);
        let entry = entries.find(|entry| unsigned(entry, TRACK_TYPE) == Some(SOUND)).ok_or(MediaError::NoSound)?;
        let unsupported = |what: &str| MediaError::Unsupported { what: what.to_owned() };
        let prefix = packet_prefix(entry).ok().filter(|prefix| prefix.len() <= MAX_PREFIX_BYTES);
        let audio = element(entry, AUDIO).unwrap_or_default();
        let rate = float(audio, SAMPLING_FREQUENCY).map_or(DEFAULT_RATE, whole_hertz);
        let channels = unsigned(audio, CHANNELS).unwrap_or(1);
        Ok(Self {
            id: unsigned(entry, TRACK_NUMBER).ok_or_else(|| unsupported("a track without a number"))?,
            codec: element(entry, CODEC_ID).unwrap_or_default(),
            private: element(entry, CODEC_PRIVATE).unwrap_or_default(),
            rate,
            channels: u16::try_from(channels).unwrap_or_default(),
            bits: unsigned(audio, BIT_DEPTH).unwrap_or_default(),
            delay_nanos: unsigned(entry, CODEC_DELAY).unwrap_or_default(),
            prefix: prefix.ok_or_else(|| unsupported("compressed or encrypted packets of sound"))?,
        })
    }

    fn packet(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        match &self.prefix[..] {
            [] => Cow::Borrowed(bytes),
            prefix => Cow::Owned([prefix, bytes].concat()),
        }
    }
}

/// A block (RFC 9559, 10).
struct CodedBlock<'b> {
    track: u64,
    time: i16,
    lacing: Lacing,
    content: &'b [u8],
}

/// How several packets lie in a block.
#[derive(Clone, Copy)]
enum Lacing {
    None,
    Xiph,
    Equal,
    Ebml,
}

impl<'b> CodedBlock<'b> {
    fn read(block: &'b [u8]) -> Option<Self> {
        let (track, bytes) = length(block)?;
        let [high, low, flags, content @ ..] = block.get(bytes..)? else { return None };
        let lacing = match flags >> 1 & 3 {
            0 => Lacing::None,
            1 => Lacing::Xiph,
            2 => Lacing::Equal,
            _ => Lacing::Ebml,
        };
        Some(Self { track: track?, time: i16::from_be_bytes([*high, *low]), lacing, content })
    }

    /// Returns the packets; `None` if they are not valid.
    fn packets(&self) -> Option<Vec<&'b [u8]>> {
        if matches!(self.lacing, Lacing::None) {
            return Some(if self.content.is_empty() { Vec::new() } else { vec![self.content] });
        }
        let (last, mut rest) = self.content.split_first()?;
        let last = usize::from(*last);
        let mut lengths = Vec::with_capacity(last);
        match self.lacing {
            Lacing::None => {}
            Lacing::Equal => lengths.resize(last, rest.len() / (last + 1)),
            Lacing::Xiph => {
                for _ in 0..last {
                    let full = rest.iter().take_while(|byte| **byte == 255).count();
                    lengths.push(255 * full + usize::from(*rest.get(full)?));
                    rest = &rest[full + 1..];
                }
            }
            Lacing::Ebml => {
                let mut before = 0_i64;
                for nth in 0..last {
                    let (value, bytes) = length(rest)?;
                    let value = i64::try_from(value?).ok()?;
                    // All but the first are differences, from a number in the middle on.
                    let middle = (1_i64 << (7 * bytes - 1)) - 1;
                    before = if nth == 0 { value } else { before.checked_add(value - middle)? };
                    lengths.push(usize::try_from(before).ok()?);
                    rest = &rest[bytes..];
                }
            }
        }
        let mut packets = Vec::with_capacity(last + 1);
        for bytes in lengths {
            let (packet, behind) = rest.split_at_checked(bytes)?;
            packets.push(packet);
            rest = behind;
        }
        packets.push(rest);
        Some(packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(flags: u8, content: &[u8]) -> Option<Vec<Vec<u8>>> {
        let block = [&[0x81, 0xff, 0xfe, flags][..], content].concat();
        let block = CodedBlock::read(&block).unwrap();
        assert_eq!((block.track, block.time), (1, -2));
        Some(block.packets()?.into_iter().map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn the_packets_of_a_block_have_the_lengths_that_it_tells() {
        assert_eq!(packets(0x80, b"abc"), Some(vec![b"abc".to_vec()]));
        assert_eq!(packets(0x80, b""), Some(vec![]));
        let three = Some(vec![b"a".to_vec(), b"bcd".to_vec(), b"ef".to_vec()]);
        assert_eq!(packets(0x82, b"\x02\x01\x03abcdef"), three);
        // As a number of its own, and as 2 more than that.
        assert_eq!(packets(0x86, b"\x02\x81\xc1abcdef"), three);
        assert_eq!(packets(0x84, b"\x02abcdef"), Some(vec![b"ab".to_vec(), b"cd".to_vec(), b"ef".to_vec()]));
        let long = [&[1, 255, 2][..], &[7; 257], b"end"].concat();
        assert_eq!(packets(0x02, &long), Some(vec![vec![7; 257], b"end".to_vec()]));
        for (flags, content) in [
            (0x82, &b""[..]),
            (0x82, b"\x02\x01"),
            (0x82, b"\x01\x09abc"),
            (0x86, b"\x02\x81\x80abcdef"),
            (0x86, b"\x01\x00"),
        ] {
            assert_eq!(packets(flags, content), None, "{flags} {content:?}");
        }
    }
}
