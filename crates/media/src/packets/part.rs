//! What is kept of a file's packets, so that a part of them is decoded as it is in the whole file.

use std::ops::Range;

use super::{
    AAC_PLAN, CodecSetup, OPUS_PLAN, OpusForm, PacketPlan, PacketReader, PacketTable, Packets,
    aac::AacForm,
    adts::AdtsPackets,
    mp3::Mp3Packets,
    ogg::{OggContent, OggPackets},
    placed::{PacketContent, PlacedPackets},
    vorbis::VorbisBlocks,
};
use crate::{
    MediaError, SoundCodec, SoundContainer, Track,
    video::{decode_number, encode_number},
};

/// What decoding a part of a file's packets takes beside these.
#[derive(Clone, Debug)]
pub(crate) struct PacketFacts {
    /// The frames that are the sound, of all that are decoded.
    pub(crate) part: Range<u64>,
    plan: PacketPlan,
    setup: CodecSetup,
    /// The most frames of a packet.
    longest: u32,
    /// The blocks of Vorbis.
    blocks: Option<VorbisBlocks>,
}

/// Packets that lie end to end in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketStretch {
    /// Where they lie in the file.
    pub(crate) byte: u64,
    pub(crate) bytes: u64,
    /// The frames before them, and theirs.
    pub(crate) frame: u64,
    pub(crate) frames: u64,
    /// Whether the block of Vorbis before them is a long one.
    pub(crate) follows_long: bool,
}

/// The bytes of some packets, with the length of each in 4 bytes where packets do not tell it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExcerptBytes<'b> {
    pub(crate) bytes: &'b [u8],
    pub(crate) lengths: &'b [[u8; 4]],
}

impl PacketFacts {
    /// Returns the decoded frame from which on packets are needed for the samples from a decoded frame on, or one before it.
    pub(crate) fn needed_from(&self, frame: u64) -> u64 {
        match self.plan.restart {
            None => frame.saturating_sub(self.plan.roll),
            // The packet that has the frame tells the section, and may begin in the one before.
            Some(frames) => self.plan.section_start((frame + 1).saturating_sub(self.longest.into()) / frames),
        }
    }

    /// Appends the facts.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let mut append = |numbers: &[u64]| numbers.iter().for_each(|number| encode_number(*number, bytes));
        append(&[self.part.start, self.part.end, self.longest.into()]);
        match &self.setup {
            CodecSetup::Mp3 => append(&[self.plan.roll]),
            // Its form is that of the track.
            CodecSetup::Aac(_) => {}
            CodecSetup::Vorbis(headers) => {
                self.blocks.iter().for_each(|blocks| append(&blocks.numbers()));
                append(&[headers.len() as u64]);
                bytes.extend_from_slice(headers);
            }
            CodecSetup::Opus(form) => bytes.extend(form.to_bytes()),
        }
    }

    /// Reads the facts of the packets of a track; `None` if they are not valid, or its samples lie in no packets of others' codecs.
    pub(crate) fn read(Track { codec, rate, channels, .. }: &Track, bytes: &mut &[u8]) -> Option<Self> {
        let mut number = || decode_number(bytes);
        let part = number()?..number()?;
        let longest = u32::try_from(number()?).ok()?;
        let (mut plan, mut blocks) = (AAC_PLAN, None);
        let setup = match codec {
            SoundCodec::Pcm(_) | SoundCodec::Flac(_) => return None,
            SoundCodec::Mp3 => {
                plan = PacketPlan { roll: number()?, restart: None };
                CodecSetup::Mp3
            }
            SoundCodec::Aac => CodecSetup::Aac(AacForm { rate: *rate, channels: *channels }),
            SoundCodec::Vorbis => {
                let read = VorbisBlocks::of_numbers([number()?, number()?, number()?, number()?])?;
                let headers = usize::try_from(number()?).ok()?;
                plan = read.plan();
                blocks = Some(read);
                CodecSetup::Vorbis(bytes.split_off(..headers)?.to_vec())
            }
            SoundCodec::Opus => {
                plan = OPUS_PLAN;
                CodecSetup::Opus(OpusForm::of_bytes(bytes.split_off(..OpusForm::BYTES)?.first_chunk()?)?)
            }
        };
        (part.start <= part.end).then_some(Self { part, plan, setup, longest, blocks })
    }
}

impl<'b> PacketTable<'b> {
    /// Returns what is kept of the packets of a track: stretches of at least `least` frames, those of MP4 and Matroska of one packet each. `None`
    /// if a part of them could not be read as it is in the whole: other bytes lie between packets, these begin anywhere in pages, or their first bytes were left out.
    pub(crate) fn stretches(
        &self,
        track: &Track,
        least: u64,
    ) -> Result<Option<(PacketFacts, Vec<PacketStretch>)>, MediaError> {
        let mut reader = self.marks[0].clone();
        if let Packets::Placed(packets) = &reader.packets
            && !packets.are_whole()
        {
            return Ok(None);
        }
        let blocks = reader.blocks();
        let mut begun: Vec<(u64, u64, bool)> = Vec::new();
        let mut stretches = Vec::new();
        let (mut buffer, mut longest) = (Vec::new(), 0);
        loop {
            let follows_long = reader.blocks().is_some_and(|blocks| blocks.follows_long());
            let is_due = begun.last().is_none_or(|(_, frame, _)| reader.frame >= frame + least);
            if is_due && let Some(byte) = reader.begins_at(track) {
                begun.push((byte, reader.frame, follows_long));
            }
            let (before, frame) = (reader.at(), reader.frame);
            let place = reader.place()?;
            let Some(packet) = reader.next(&mut buffer)? else { break };
            longest = longest.max(packet.frames);
            let bytes = packet.bytes.len();
            if let Some(Range { start, end }) = place {
                let (bytes, frames) = (end - start, packet.frames.into());
                stretches.push(PacketStretch { byte: start, bytes, frame, frames, follows_long });
            }
            if !reader.packet_began_at(before, bytes) {
                return Ok(None);
            }
        }
        if stretches.is_empty() {
            let end = (track.data.start + reader.at() as u64, reader.frame, false);
            begun.push(end);
            stretches = begun.array_windows().map(PacketStretch::between).filter(|stretch| stretch.bytes > 0).collect();
        }
        let is_whole = stretches.first().is_some_and(|first| first.frame == 0);
        let ascends = stretches.array_windows().all(|[one, next]| one.byte + one.bytes <= next.byte);
        let facts =
            PacketFacts { part: self.part.clone(), plan: self.plan, setup: self.setup.clone(), longest, blocks };
        Ok((is_whole && ascends).then_some((facts, stretches)))
    }

    /// Takes a part of a file's packets that begins with a stretch; `None` if no packet begins there.
    pub(crate) fn of_part(
        (codec, container): (SoundCodec, SoundContainer),
        facts: PacketFacts,
        (frame, follows_long): (u64, bool),
        ExcerptBytes { bytes, lengths }: ExcerptBytes<'b>,
    ) -> Option<Self> {
        let PacketFacts { part, plan, setup, blocks, .. } = facts;
        let blocks = blocks.map(|blocks| if frame == 0 { blocks } else { blocks.behind(follows_long) });
        let placed = |content| Packets::Placed(PlacedPackets::of_lengths(bytes, lengths, content));
        let packets = match (codec, container) {
            (SoundCodec::Pcm(_) | SoundCodec::Flac(_), _) => return None,
            (SoundCodec::Mp3, SoundContainer::Plain) => Packets::Mp3(Mp3Packets::of_part(bytes)?),
            (SoundCodec::Aac, SoundContainer::Plain) => Packets::Adts(AdtsPackets::open(bytes).ok()?.0),
            (SoundCodec::Vorbis, SoundContainer::Ogg) => {
                Packets::Ogg(OggPackets::of_part(bytes, OggContent::Vorbis(blocks?))?)
            }
            (SoundCodec::Opus, SoundContainer::Ogg) => Packets::Ogg(OggPackets::of_part(bytes, OggContent::Opus)?),
            (SoundCodec::Mp3, _) => placed(PacketContent::Mp3),
            (SoundCodec::Aac, _) => placed(PacketContent::Aac),
            (SoundCodec::Vorbis, _) => placed(PacketContent::Vorbis(blocks?)),
            (SoundCodec::Opus, _) => placed(PacketContent::Opus),
        };
        Some(Self { marks: vec![PacketReader { packets, frame, last_frames: 0 }], plan, setup, part })
    }
}

impl PacketStretch {
    /// Returns the packets between two places, each with the frames before it.
    const fn between([(byte, frame, follows_long), (end, end_frame, _)]: &[(u64, u64, bool); 2]) -> Self {
        let (bytes, frames) = (end.saturating_sub(*byte), end_frame.saturating_sub(*frame));
        Self { byte: *byte, bytes, frame: *frame, frames, follows_long: *follows_long }
    }
}

impl PacketReader<'_> {
    /// Returns where in the file the next packet begins, if reading can begin there.
    fn begins_at(&self, track: &Track) -> Option<u64> {
        let place = match &self.packets {
            Packets::Ogg(packets) => packets.page_of_next(),
            Packets::Mp3(_) | Packets::Adts(_) => Some(self.at()),
            Packets::Placed(_) => None,
        };
        place.map(|place| track.data.start + place as u64)
    }

    /// Returns where the next packet lies in the file, if its container says that.
    fn place(&self) -> Result<Option<Range<u64>>, MediaError> {
        let Packets::Placed(packets) = &self.packets else { return Ok(None) };
        packets.place()
    }

    /// Returns whether a packet of so many bytes, which was just read, began at this place, where packets have no more than their bytes.
    fn packet_began_at(&self, before: usize, bytes: usize) -> bool {
        !matches!(self.packets, Packets::Mp3(_)) || self.at() == before + bytes
    }

    /// Returns the blocks of Vorbis, before the next packet.
    const fn blocks(&self) -> Option<VorbisBlocks> {
        match &self.packets {
            Packets::Ogg(OggPackets { content: OggContent::Vorbis(blocks), .. })
            | Packets::Placed(PlacedPackets { content: PacketContent::Vorbis(blocks), .. }) => Some(*blocks),
            _ => None,
        }
    }
}
