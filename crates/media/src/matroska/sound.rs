//! The packets of sound of a Matroska file that is in memory.

use std::ops::Range;

use super::{
    ebml::{ElementHead, element, elements, float, length, number, unsigned},
    segment::{
        BLOCK, BLOCK_GROUP, CLUSTER, DEFAULT_SCALE, INFO, NANOS_PER_SECOND, SEGMENT, SIMPLE_BLOCK, TIMESTAMP,
        TIMESTAMP_SCALE, TRACKS,
    },
    track::{CODEC_ID, CODEC_PRIVATE, TRACK_ENTRY, TRACK_NUMBER, TRACK_TYPE, packet_prefix},
};
use crate::{
    MediaError, PcmSample,
    mp4::PlacedPacket,
    packets::{AacForm, HeadProblem, OpusForm, PacketContent, PlacedForm, PlacedPackets},
    track::whole_hertz,
    video::MAX_PACKETS,
};

const AUDIO: u32 = 0xe1;
const SAMPLING_FREQUENCY: u32 = 0xb5;
const CHANNELS: u32 = 0x9f;
const BIT_DEPTH: u32 = 0x6264;
const CODEC_DELAY: u32 = 0x56aa;
const DISCARD_PADDING: u32 = 0x75a2;
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
    blocks: Vec<SoundBlock>,
    /// How long what is decoded of the last packet goes on behind the sound.
    padding_nanos: u64,
}

/// A packet, and the time of the block that has it.
#[derive(Clone, Copy, Debug)]
struct SoundBlock {
    nanos: i64,
    place: PlacedPacket,
}

/// What a track says of its packets.
#[derive(Debug)]
pub(crate) struct SoundEntry<'b> {
    id: u64,
    codec: &'b [u8],
    /// What a decoder has to know.
    private: &'b [u8],
    rate: u32,
    channels: u16,
    bits: u64,
    /// How much earlier what is decoded is heard than blocks say.
    delay_nanos: u64,
    prefix: Vec<u8>,
}

impl<'b> SoundBlocks<'b> {
    /// Passes over the elements of a file.
    pub(crate) fn read(file: &'b [u8]) -> Result<Self, MediaError> {
        let (mut at, mut end) = (0, file.len());
        let (mut scale, mut cluster_time) = (DEFAULT_SCALE, 0_i64);
        let mut entry: Option<SoundEntry<'b>> = None;
        let mut blocks = Vec::new();
        // Of the last packet of the track, unless that of another one follows it.
        let (mut padding_nanos, mut is_of_track) = (0, false);
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
                    is_of_track = block.track == entry.id;
                    if is_of_track {
                        padding_nanos = 0;
                        let time = i128::from(cluster_time) + i128::from(block.time);
                        let nanos = i64::try_from(time * i128::from(scale));
                        let nanos = nanos.map_err(|_| malformed("the time of a block is not valid"))?;
                        let lengths =
                            block.lengths().ok_or_else(|| malformed("a block with several packets is not valid"))?;
                        if blocks.len() + lengths.len() > MAX_PACKETS {
                            return Err(malformed("the file has more than 16,777,216 packets"));
                        }
                        // They lie at the end of the block.
                        let mut offset = (from + content.len() - lengths.iter().sum::<usize>()) as u64;
                        for length in lengths {
                            let bytes = u32::try_from(length).map_err(|_| malformed("a packet has more than 4 GiB"))?;
                            blocks.push(SoundBlock { nanos, place: PlacedPacket { offset, bytes } });
                            offset += u64::from(bytes);
                        }
                    }
                }
                // Less than 0 is what comes before the first packet.
                DISCARD_PADDING if is_of_track => {
                    let has_sign = content.first().is_some_and(|byte| byte & 0x80 != 0);
                    padding_nanos = number(content).filter(|_| !has_sign).unwrap_or_default();
                }
                _ => {}
            }
            at = from + content.len();
        }
        Ok(Self { entry: entry.ok_or(MediaError::NoSound)?, blocks, padding_nanos })
    }

    /// Returns the packets of the file.
    pub(crate) fn packets(&self, file: &'b [u8], content: PacketContent) -> PlacedPackets<'b> {
        let places = self.blocks.iter().map(|block| block.place).collect();
        PlacedPackets::new(file, places, content).with_prefix(&self.entry.prefix)
    }

    /// Returns the frames that are the sound, of all that are decoded and those of the last packet: as FFmpeg, which leaves the end where
    /// more is said to be behind it than that packet has.
    pub(crate) fn part(&self, form: &PlacedForm<'_>, (frames, of_last): (u64, u32)) -> Range<u64> {
        let padding = frames_of(self.padding_nanos, form.rate());
        let end = if padding <= of_last.into() { frames - padding } else { frames };
        self.entry.frames_before(form).min(end)..end
    }

    /// Returns when the first frame of the sound is heard, in nanoseconds.
    ///
    /// # Errors
    /// If a packet is not valid, or the time is too large.
    pub(crate) fn begin_nanos(&self, file: &'b [u8], form: &PlacedForm<'_>) -> Result<i64, MediaError> {
        let invalid = |problem| MediaError::Malformed { byte: 0, problem };
        let mut packets = self.packets(file, form.content().map_err(invalid)?);
        let (mut nth, mut buffer) = (0, Vec::new());
        // Times count from the first packet that frames are decoded of.
        while packets.next(&mut buffer)?.is_some_and(|packet| packet.frames == 0) {
            nth += 1;
        }
        let time = self.blocks.get(nth).or(self.blocks.first()).map_or(0, |block| block.nanos);
        let before = self.entry.frames_before(form).saturating_mul(NANOS_PER_SECOND) / u64::from(form.rate().max(1));
        let begin = i128::from(time) - i128::from(self.entry.delay_nanos) + i128::from(before);
        i64::try_from(begin).map_err(|_| invalid("the times of the sound are too large"))
    }
}

/// Returns the frames of a time, to the nearest one.
fn frames_of(nanos: u64, rate: u32) -> u64 {
    let frames =
        (u128::from(nanos) * u128::from(rate) + u128::from(NANOS_PER_SECOND / 2)) / u128::from(NANOS_PER_SECOND);
    u64::try_from(frames).unwrap_or(u64::MAX)
}

impl<'b> SoundEntry<'b> {
    /// Reads the first track of sound, of the content of an element `Tracks`.
    pub(super) fn first_of(tracks: &'b [u8]) -> Result<Self, MediaError> {
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

    /// Returns what the packets are.
    pub(crate) fn form(&self) -> Result<PlacedForm<'b>, MediaError> {
        let unsupported = |what: &str| MediaError::Unsupported { what: what.to_owned() };
        let (rate, channels) = (self.rate, self.channels);
        let invalid = |problem: HeadProblem| problem.error(0, "the head of the sound is not valid");
        match self.codec.split(|byte| *byte == 0).next().unwrap_or_default() {
            b"A_OPUS" => OpusForm::read(self.private).map(PlacedForm::Opus).map_err(invalid),
            b"A_VORBIS" => {
                vorbis_headers(self.private).map(PlacedForm::Vorbis).ok_or_else(|| invalid(HeadProblem::Invalid))
            }
            b"A_AAC" => AacForm::read(self.private).map(PlacedForm::Aac).map_err(invalid),
            b"A_MPEG/L3" => Ok(PlacedForm::Mp3 { rate, channels }),
            b"A_FLAC" => Ok(PlacedForm::Flac(self.private.to_vec())),
            codec @ (b"A_PCM/INT/LIT" | b"A_PCM/INT/BIG" | b"A_PCM/FLOAT/IEEE") => {
                let bytes =
                    u32::try_from(self.bits / 8).ok().filter(|_| self.bits.is_multiple_of(8)).unwrap_or_default();
                let sample = match (codec, bytes) {
                    (b"A_PCM/FLOAT/IEEE", _) => PcmSample::float(bytes, false),
                    (_, 1) => Some(PcmSample::U8),
                    _ => PcmSample::whole(bytes, codec == b"A_PCM/INT/BIG"),
                };
                let sample = sample.ok_or_else(|| unsupported("samples of an unknown form in Matroska"))?;
                Ok(PlacedForm::Pcm { sample, rate, channels })
            }
            codec => Err(unsupported(&format!("sound of the codec {} in Matroska", codec.escape_ascii()))),
        }
    }

    /// Returns the frames that are decoded and come before the sound.
    fn frames_before(&self, form: &PlacedForm<'_>) -> u64 {
        match form {
            PlacedForm::Opus(form) => form.pre_skip.into(),
            // All of them is there.
            PlacedForm::Flac(_) | PlacedForm::Pcm { .. } => 0,
            form => frames_of(self.delay_nanos, form.rate()),
        }
    }
}

/// Returns the three packets before those of sound: their number less 1, the lengths of the first two, and the packets.
fn vorbis_headers(private: &[u8]) -> Option<[&[u8]; 3]> {
    let [2, rest @ ..] = private else { return None };
    let mut at = 0;
    let mut length = || {
        let full = rest.get(at..)?.iter().take_while(|byte| **byte == 255).count();
        let last = *rest.get(at + full)?;
        at += full + 1;
        Some(255 * full + usize::from(last))
    };
    let (first, second) = (length()?, length()?);
    let (first, rest) = rest.get(at..)?.split_at_checked(first)?;
    let (second, third) = rest.split_at_checked(second)?;
    Some([first, second, third])
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

    /// Returns the lengths of the packets at the end of the block; `None` if they are not valid.
    fn lengths(&self) -> Option<Vec<usize>> {
        if matches!(self.lacing, Lacing::None) {
            return Some(if self.content.is_empty() { Vec::new() } else { vec![self.content.len()] });
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
        let others = lengths.iter().try_fold(0, |sum: usize, length| sum.checked_add(*length))?;
        lengths.push(rest.len().checked_sub(others)?);
        Some(lengths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(flags: u8, content: &[u8]) -> Option<Vec<Vec<u8>>> {
        let block = [&[0x81, 0xff, 0xfe, flags][..], content].concat();
        let block = CodedBlock::read(&block).unwrap();
        assert_eq!((block.track, block.time), (1, -2));
        let lengths = block.lengths()?;
        let mut rest = &block.content[block.content.len() - lengths.iter().sum::<usize>()..];
        Some(lengths.into_iter().map(|length| rest.split_off(..length).unwrap().to_vec()).collect())
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
