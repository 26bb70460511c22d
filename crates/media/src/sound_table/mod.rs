//! The table of a long sound, from which a segment is read and decoded without the rest of the file.

mod build;
mod excerpt;
mod facts;

use std::ops::Range;

pub use build::{encode_pcm_table, encode_sound_table};
pub(crate) use excerpt::SoundExcerpt;
pub use excerpt::encode_sound_excerpt;
pub(crate) use facts::{SoundCoding, SoundFacts};

use crate::{MediaError, SoundContainer, Track, VideoPacket, VideoTable, video::decode_number};

/// What is known of a long sound: its head, and where its packets lie, in stretches of a quarter of a second. Those of MP4 and Matroska,
/// which do not tell their lengths, lie there one by one; samples that lie side by side need none.
///
/// [`encode_sound_table`] makes a table: the length of the facts (a number in groups of 7 bits, the lowest first), the facts, and the
/// stretches, as the packets of a [`VideoTable`] with frames as times.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut file = b"RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\x04\0\0\0".to_vec();
/// # file.extend([0, 0x40, 0, 0xc0]);
/// let bytes = spdl_media::encode_sound_table(&file)?.ok_or("a segment takes the whole file")?;
/// let table = spdl_media::SoundTable::read(&bytes)?;
/// let segment = table.segment(1..2).ok_or("no such frames")?;
/// let parts = segment.ranges.iter().map(|range| &file[range.start as usize..range.end as usize]);
/// let excerpt = spdl_media::encode_sound_excerpt(&table, &segment, parts);
/// let mut scratch = spdl_media::SoundScratch::default();
/// let sound = spdl_media::Sound::open(&excerpt, &mut scratch)?;
/// sound.decode(1..2, spdl_media::ChannelMix::Mean, &mut scratch, |samples| assert_eq!(samples, [-0.5]))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SoundTable<'b> {
    facts: SoundFacts,
    places: VideoTable<'b>,
    bytes: &'b [u8],
}

/// What is read of a file to decode some of its frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SoundSegment {
    /// The bytes of the file that are read, in their order.
    pub ranges: Vec<Range<u64>>,
    /// The decoded frames before them.
    frame: u64,
    /// Whether the block of Vorbis before them is a long one.
    follows_long: bool,
    /// The lengths of packets that do not tell it.
    lengths: Vec<u32>,
}

impl SoundSegment {
    /// Returns the number of bytes that are read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }
}

impl<'b> SoundTable<'b> {
    /// Reads a table.
    ///
    /// # Errors
    /// If the bytes are none.
    pub fn read(bytes: &'b [u8]) -> Result<Self, MediaError> {
        let damaged = MediaError::Malformed { byte: 0, problem: "the table of a sound is cut off" };
        let mut rest = bytes;
        let length = decode_number(&mut rest).and_then(|length| usize::try_from(length).ok());
        let mut facts = length.and_then(|length| rest.split_off(..length)).ok_or(damaged)?;
        Ok(Self { facts: SoundFacts::read(&mut facts)?, places: VideoTable::read(rest)?, bytes: rest })
    }

    /// Returns what the head of the file says, with the number of frames.
    #[must_use]
    pub const fn track(&self) -> &Track {
        &self.facts.track
    }

    /// Returns the number of frames.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.facts.frames()
    }

    /// Returns what is read to decode a range of frames: for no frames, nothing. `None` if the file has no such frames, or the table does
    /// not say where they lie.
    #[must_use]
    pub fn segment(&self, frames: Range<u64>) -> Option<SoundSegment> {
        if frames.start >= frames.end {
            return Some(SoundSegment::default());
        }
        if frames.end > self.frames() {
            return None;
        }
        let track = &self.facts.track;
        if let (SoundCoding::Pcm(sample), SoundContainer::Plain) = (&self.facts.coding, track.container) {
            let frame_bytes = u64::from(track.channels) * u64::from(sample.bytes());
            let place = |frame: u64| frame.checked_mul(frame_bytes)?.checked_add(track.data.start);
            let range = place(frames.start)?..place(frames.end).filter(|end| *end <= track.data.end)?;
            return Some(SoundSegment { ranges: vec![range], frame: frames.start, ..SoundSegment::default() });
        }
        let decoded = self.facts.decoded(&frames);
        let stretches = self.stretches(self.facts.needed_from(decoded.start)..decoded.end)?;
        let first = stretches.first()?;
        let mut segment = SoundSegment {
            frame: first.pts.try_into().ok()?,
            follows_long: first.is_droppable,
            ..SoundSegment::default()
        };
        let is_placed = matches!(track.container, SoundContainer::Mp4 | SoundContainer::Matroska);
        let has_lengths = is_placed && matches!(self.facts.coding, SoundCoding::Packets(_));
        for VideoPacket { offset, bytes, .. } in stretches {
            let end = offset + u64::from(bytes);
            match segment.ranges.last_mut().filter(|last| last.end == offset) {
                Some(last) => last.end = end,
                None => segment.ranges.push(offset..end),
            }
            if has_lengths {
                segment.lengths.push(bytes);
            }
        }
        Some(segment)
    }

    /// Returns the stretches that have decoded frames.
    fn stretches(&self, frames: Range<u64>) -> Option<Vec<VideoPacket>> {
        let [start, last] = [frames.start, frames.end - 1].map(|frame| i64::try_from(frame).ok());
        let (start, last) = (start?, last?);
        let blocks = self.places.blocks_at(start)?.start..self.places.blocks_at(last)?.end;
        let place = self.places.place(blocks.clone());
        let place = usize::try_from(place.start).ok()?..usize::try_from(place.end).ok()?;
        let read = self.places.read_blocks(blocks, self.bytes.get(place)?).ok()?;
        let stretches = read.packets();
        let from = stretches.partition_point(|stretch| stretch.pts < start);
        let from =
            if stretches.get(from).is_some_and(|stretch| stretch.pts == start) { from } else { from.checked_sub(1)? };
        // Of stretches that begin with the same frame, the first one has packets without frames.
        let first = stretches.get(from)?.pts;
        let from = stretches.partition_point(|stretch| stretch.pts < first);
        let to = stretches.partition_point(|stretch| stretch.pts <= last);
        Some(stretches.get(from..to)?.to_vec())
    }
}
