//! Sounds that are decoded packet by packet: where their packets lie, which frames these have, and where to begin for a range of
//! frames.

mod aac;
mod adts;
mod form;
mod head_problem;
mod joined;
mod mp3;
mod mp4;
mod mp4_description;
mod mpeg;
mod ogg;
mod ogg_checksum;
mod opus;
mod part;
mod placed;
mod setup;
mod vorbis;

use std::ops::Range;

pub(crate) use aac::AacForm;
pub(crate) use adts::{is_adts, read_head as read_adts_head};
pub(crate) use form::PlacedForm;
pub(crate) use head_problem::HeadProblem;
pub(crate) use joined::JoinedPackets;
pub(crate) use mp3::Mp3Head;
pub(crate) use mp4::{Mp4Head, Mp4Sound};
pub(crate) use ogg::OggHead;
pub(crate) use opus::{DelimitedPacket, OpusForm, opus_frames};
pub(crate) use part::{ExcerptBytes, PacketFacts, PacketStretch};
pub(crate) use placed::{PacketContent, PlacedPackets};
pub(crate) use setup::CodecSetup;

use crate::{MediaError, SoundCodec, SoundContainer, Track, matroska::SoundBlocks};
use aac::{HE_AAC, PACKET_FRAMES, may_be_he_aac};
use adts::AdtsPackets;
use form::PlacedSetup;
use mp3::Mp3Packets;
use ogg::{FLAC_HEAD, OggContent, OggPackets};
use vorbis::VorbisBlocks;

impl JoinedPackets {
    /// Puts the parts of a file together; `None` if its samples lie in one part, or in packets of others' codecs.
    pub(crate) fn of_file(file: &[u8], track: &Track) -> Result<Option<Self>, MediaError> {
        if !matches!(track.codec, SoundCodec::Pcm(_) | SoundCodec::Flac(_)) {
            return Ok(None);
        }
        match track.container {
            SoundContainer::Plain => Ok(None),
            SoundContainer::Ogg => OggPackets::open(file, FLAC_HEAD)?.join().map(Some),
            SoundContainer::Mp4 => Mp4Sound::of_track(file, track)?.packets().join().map(Some),
            SoundContainer::Matroska => {
                let blocks = SoundBlocks::read(file)?;
                blocks.packets(file, PacketContent::Joined).join().map(Some)
            }
        }
    }

    /// Puts the pages of a part of a file together; `None` if no packet begins with them.
    pub(crate) fn of_pages(pages: &[u8]) -> Option<Self> {
        OggPackets::of_part(pages, OggContent::Flac)?.join().ok()
    }
}

/// A packet, and the number of frames that are decoded of it.
pub(crate) struct CodedPacket<'p> {
    pub(crate) bytes: &'p [u8],
    pub(crate) frames: u32,
}

/// How the packets of a codec are decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketPlan {
    /// The frames before a range that are decoded too, as their packets decide about its samples.
    pub(crate) roll: u64,
    /// The frames after which a decoder begins anew, with the `roll` before them, where samples depend on all packets since it has begun.
    pub(crate) restart: Option<u64>,
}

impl PacketPlan {
    const fn section_start(self, section: u64) -> u64 {
        match self.restart {
            Some(frames) => (section * frames).saturating_sub(self.roll),
            None => 0,
        }
    }
}

/// The packets of a file, at a place among them.
#[derive(Clone, Debug)]
enum Packets<'b> {
    Mp3(Mp3Packets<'b>),
    Ogg(OggPackets<'b>),
    Adts(AdtsPackets<'b>),
    Placed(PlacedPackets<'b>),
}

/// Reads packets one after the other.
#[derive(Clone, Debug)]
pub(crate) struct PacketReader<'b> {
    packets: Packets<'b>,
    /// The frames before the next packet.
    frame: u64,
    /// The frames of the packet before it.
    last_frames: u32,
}

/// The packets of a file.
#[derive(Clone, Debug)]
pub(crate) struct PacketTable<'b> {
    /// Places at about equal distances, the first at the first packet.
    marks: Vec<PacketReader<'b>>,
    plan: PacketPlan,
    setup: CodecSetup,
    /// The frames that are the sound, of all that are decoded.
    part: Range<u64>,
}

/// Noise that AAC has in place of samples depends on all packets before it. So a decoder begins anew after 64 packets, each time with the packet
/// before, whose second half the next one is mixed with.
const AAC_PLAN: PacketPlan = PacketPlan { roll: PACKET_FRAMES as u64, restart: Some(64 * PACKET_FRAMES as u64) };
/// What is left of a decoder's state is gone after a second in Opus' mode for music: most of it in 0.1 s, the last bits in 0.5 s. In modes for
/// speech something is left for ever, a second later below 0.01, and 16 seconds later too: a segment is what a decoder that begins a second
/// before makes of it, however it is read.
const OPUS_PLAN: PacketPlan = PacketPlan { roll: 48_000, restart: None };
/// The packets at the beginning that tell whether they are HE-AAC.
const HE_AAC_PACKETS: u32 = 8;
/// Packets between two marks, at first: to pass them takes a small part of the time that decoding a second does.
const MARK_PACKETS: u64 = 32;
/// Of more marks, every second one is kept.
const MAX_MARKS: usize = 4096;

impl<'b> PacketTable<'b> {
    /// Reads through the packets of a file; `None` if the samples of the codec lie in no packets.
    pub(crate) fn open(bytes: &'b [u8], track: &Track) -> Result<Option<Self>, MediaError> {
        let start = usize::try_from(track.data.start).unwrap_or(usize::MAX);
        let end = usize::try_from(track.data.end).unwrap_or(usize::MAX);
        let data = bytes.get(start..end).unwrap_or_default();
        let truncated = |what: &'static str| MediaError::Truncated { bytes: bytes.len() as u64, what };
        match (track.codec, track.container) {
            (SoundCodec::Pcm(_) | SoundCodec::Flac(_), _) => Ok(None),
            (_, SoundContainer::Mp4) => {
                let sound = Mp4Sound::of_track(bytes, track)?;
                Self::open_placed(&sound.form, sound.packets(), |end| sound.part(end.frame)).map(Some)
            }
            (_, SoundContainer::Matroska) => {
                let blocks = SoundBlocks::read(bytes)?;
                let form = blocks.entry.form()?;
                let content = form.content().map_err(|problem| damaged(0, problem))?;
                let packets = blocks.packets(bytes, content);
                Self::open_placed(&form, packets, |end| blocks.part(&form, (end.frame, end.last_frames))).map(Some)
            }
            (SoundCodec::Mp3, _) => {
                let (packets, plan, xing) = Mp3Packets::open(data).ok_or_else(|| truncated("its first packet"))?;
                let (marks, end) = read_through(Packets::Mp3(packets.clone()))?;
                let part = packets.part(end.frame, xing);
                Ok(Some(Self { marks, plan, setup: CodecSetup::Mp3, part }))
            }
            (SoundCodec::Aac, _) => {
                let (packets, form) = AdtsPackets::open(data)?;
                let (marks, end) = read_through(Packets::Adts(packets))?;
                let table = Self { marks, plan: AAC_PLAN, setup: CodecSetup::Aac(form), part: 0..end.frame };
                table.refuse_he_aac().map(Some)
            }
            (SoundCodec::Vorbis, _) => Self::open_vorbis(data).map(Some),
            (SoundCodec::Opus, _) => Self::open_opus(data).map(Some),
        }
    }

    /// Reads through packets that lie wherever a container says; `part` returns the frames that are the sound, of what is at the end.
    fn open_placed(
        form: &PlacedForm<'b>,
        packets: PlacedPackets<'b>,
        part: impl FnOnce(&PacketReader<'b>) -> Range<u64>,
    ) -> Result<Self, MediaError> {
        let no_packets = || damaged(0, "the sound has another codec than its head tells");
        let PlacedSetup { packets, plan, setup } = form.setup(packets)?.ok_or_else(no_packets)?;
        let (marks, end) = read_through(Packets::Placed(packets))?;
        let table = Self { marks, plan, setup, part: part(&end) };
        if matches!(form, PlacedForm::Aac(_)) { table.refuse_he_aac() } else { Ok(table) }
    }

    fn open_vorbis(data: &'b [u8]) -> Result<Self, MediaError> {
        let mut packets = OggPackets::open(data, b"\x01vorbis")?;
        let [first, _, mut third] = headers(&mut packets)?;
        let blocks = VorbisBlocks::read_whole(&first, &mut third)?;
        packets.content = OggContent::Vorbis(blocks);
        let (marks, end) = read_through(Packets::Ogg(packets))?;
        let (start, end) = end.times();
        Ok(Self { marks, plan: blocks.plan(), setup: CodecSetup::Vorbis([first, third].concat()), part: start..end })
    }

    fn open_opus(data: &'b [u8]) -> Result<Self, MediaError> {
        let mut packets = OggPackets::open(data, b"OpusHead")?;
        let [first, second] = headers(&mut packets)?;
        if !second.starts_with(b"OpusTags") {
            return Err(damaged(packets.at(), "the second packet of Opus has no tags"));
        }
        let form = OpusForm::read(&first).map_err(|problem| problem.error(0, opus::INVALID_HEAD))?;
        packets.content = OggContent::Opus;
        let (marks, read) = read_through(Packets::Ogg(packets))?;
        let Packets::Ogg(packets) = &read.packets else { unreachable!("the packets are those that were read") };
        let part = packets.times.part_of_opus(read.frame, form.pre_skip.into());
        let (start, end) = part.ok_or_else(|| {
            damaged(packets.at(), "the first page of sound counts fewer frames than its packets have")
        })?;
        Ok(Self { marks, plan: OPUS_PLAN, setup: CodecSetup::Opus(form), part: start..end })
    }

    /// Refuses what the decoder would read as half of a sound.
    fn refuse_he_aac(self) -> Result<Self, MediaError> {
        let (mut reader, mut buffer) = (self.marks[0].clone(), Vec::new());
        let (mut packets, mut all) = (0, true);
        while packets < HE_AAC_PACKETS && all {
            let Some(packet) = reader.next(&mut buffer)? else { break };
            all = may_be_he_aac(packet.bytes);
            packets += 1;
        }
        if all && packets >= 3 {
            return Err(MediaError::Unsupported { what: HE_AAC.to_owned() });
        }
        Ok(self)
    }

    /// Returns the number of the section that a packet is in: each has a decoder of its own.
    pub(crate) const fn section(&self, packet_frame: u64) -> u64 {
        match self.plan.restart {
            Some(frames) => packet_frame / frames,
            None => 0,
        }
    }

    /// Returns a frame of the first packet that the decoder of a section begins with.
    pub(crate) const fn section_start(&self, section: u64) -> u64 {
        self.plan.section_start(section)
    }

    /// Returns what a decoder has to know.
    pub(crate) const fn setup(&self) -> &CodecSetup {
        &self.setup
    }

    /// Returns the number of frames of the sound.
    pub(crate) const fn frames(&self) -> u64 {
        self.part.end - self.part.start
    }

    /// Returns where frames of the sound are among all that are decoded.
    pub(crate) const fn decoded(&self, frames: Range<u64>) -> Range<u64> {
        self.part.start + frames.start..self.part.start + frames.end
    }

    /// Returns a reader at the first packet that is needed for the samples from a decoded frame on, and the section of that frame.
    pub(crate) fn reader(&self, frame: u64) -> Result<(PacketReader<'b>, u64), MediaError> {
        if self.plan.restart.is_none() {
            return Ok((self.packet_with(frame.saturating_sub(self.plan.roll))?, 0));
        }
        let section = self.section(self.packet_with(frame)?.frame);
        Ok((self.packet_with(self.section_start(section))?, section))
    }

    /// Returns a reader at the packet that has a frame.
    fn packet_with(&self, frame: u64) -> Result<PacketReader<'b>, MediaError> {
        if frame == 0 && self.marks[0].frame == 0 {
            // Also packets that have no frames.
            return Ok(self.marks[0].clone());
        }
        let mark = self.marks.partition_point(|mark| mark.frame <= frame).checked_sub(1);
        let mark = mark.ok_or_else(|| damaged(0, "the part of the file begins behind the packets that are needed"))?;
        let mut reader = self.marks[mark].clone();
        reader.pass(frame)?;
        Ok(reader)
    }
}

/// Returns the packets before those of sound.
fn headers<const N: usize>(packets: &mut OggPackets<'_>) -> Result<[Vec<u8>; N], MediaError> {
    let mut buffer = Vec::new();
    let mut headers = [const { Vec::new() }; N];
    for header in &mut headers {
        let packet = packets.next(&mut buffer)?.map(|packet| packet.bytes.to_vec());
        *header = packet.ok_or_else(|| damaged(packets.at(), "the file ends before its sound begins"))?;
    }
    Ok(headers)
}

const fn damaged(byte: usize, problem: &'static str) -> MediaError {
    MediaError::Malformed { byte: byte as u64, problem }
}

/// Reads through all packets, and returns marks and what is at the end.
fn read_through(packets: Packets<'_>) -> Result<(Vec<PacketReader<'_>>, PacketReader<'_>), MediaError> {
    let mut buffer = Vec::new();
    let mut reader = PacketReader { packets, frame: 0, last_frames: 0 };
    let (mut marks, mut distance) = (Vec::new(), MARK_PACKETS);
    for count in 0_u64.. {
        if count.is_multiple_of(distance) {
            if marks.len() == MAX_MARKS {
                let mut nth = 0;
                marks.retain(|_| {
                    nth += 1;
                    nth % 2 == 1
                });
                distance *= 2;
            }
            if count.is_multiple_of(distance) {
                marks.push(reader.clone());
            }
        }
        if reader.next(&mut buffer)?.is_none() {
            break;
        }
    }
    Ok((marks, reader))
}

impl<'b> PacketReader<'b> {
    /// Returns the next packet.
    pub(crate) fn next<'p>(&mut self, buffer: &'p mut Vec<u8>) -> Result<Option<CodedPacket<'p>>, MediaError>
    where
        'b: 'p,
    {
        let packet = match &mut self.packets {
            Packets::Mp3(packets) => packets.next(),
            Packets::Ogg(packets) => packets.next(buffer)?,
            Packets::Adts(packets) => packets.next()?,
            Packets::Placed(packets) => packets.next(buffer)?,
        };
        if let Some(packet) = &packet {
            self.frame += u64::from(packet.frames);
            self.last_frames = packet.frames;
        }
        Ok(packet)
    }

    /// Passes packets up to that of a frame.
    pub(crate) fn pass(&mut self, frame: u64) -> Result<(), MediaError> {
        let mut buffer = Vec::new();
        loop {
            let mut next = self.clone();
            match next.next(&mut buffer)? {
                Some(_) if next.frame <= frame => *self = next,
                _ => return Ok(()),
            }
        }
    }

    /// Returns the frames of the sound, among those of all packets, which have been read.
    fn times(&self) -> (u64, u64) {
        match &self.packets {
            Packets::Mp3(_) | Packets::Adts(_) | Packets::Placed(_) => (0, self.frame),
            Packets::Ogg(packets) => packets.times.part(self.frame),
        }
    }

    /// Returns the number of frames before the next packet.
    pub(crate) const fn frame(&self) -> u64 {
        self.frame
    }

    /// Returns the place of the next packet, from the first byte of the data; of a container that says where they lie, of the file.
    pub(crate) fn at(&self) -> usize {
        match &self.packets {
            Packets::Mp3(packets) => packets.at(),
            Packets::Ogg(packets) => packets.at(),
            Packets::Adts(packets) => packets.at(),
            Packets::Placed(packets) => packets.at(),
        }
    }
}
