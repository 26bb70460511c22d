//! Packets that lie wherever a container says: those of tables and fragments of MP4, those of blocks of Matroska, and a part of them.

use std::{ops::Range, sync::Arc};

use super::{
    CodedPacket,
    aac::PACKET_FRAMES,
    joined::{JoinedPackets, JoinedPart},
    mpeg::Mp3Header,
    opus::opus_frames,
    vorbis::VorbisBlocks,
};
use crate::{
    MediaError,
    mp4::{PlacedPacket, SamplePlaces},
};

/// What packets are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PacketContent {
    Aac,
    Opus,
    Mp3,
    Vorbis(VorbisBlocks),
    /// FLAC, or samples that are not coded, whose frames are counted elsewhere.
    Joined,
}

impl PacketContent {
    /// Returns the number of frames that are decoded of the next packet.
    fn frames(&mut self, packet: &[u8]) -> Result<u32, &'static str> {
        match self {
            Self::Aac => Ok(PACKET_FRAMES),
            Self::Opus => opus_frames(packet).ok_or("a packet of Opus has no valid head"),
            Self::Mp3 => {
                let header = Mp3Header::read(packet).ok_or("a packet of MP3 has no valid head")?;
                Ok(header.form.packet_frames())
            }
            Self::Vorbis(blocks) => Ok(blocks.frames(packet)?.unwrap_or_default()),
            Self::Joined => Ok(0),
        }
    }
}

/// The packets of a track, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct PlacedPackets<'b> {
    file: &'b [u8],
    /// Those of tables of MP4, which come first.
    tables: Option<SamplePlaces<'b>>,
    /// Those of fragments, or of blocks.
    places: Arc<[PlacedPacket]>,
    next: usize,
    /// What was left out at the beginning of each packet.
    prefix: Arc<[u8]>,
    pub(super) content: PacketContent,
}

impl<'b> PlacedPackets<'b> {
    pub(crate) fn new(file: &'b [u8], places: Arc<[PlacedPacket]>, content: PacketContent) -> Self {
        Self { file, tables: None, places, next: 0, prefix: Arc::default(), content }
    }

    /// The same behind the packets of tables.
    pub(super) fn behind_tables(self, tables: SamplePlaces<'b>) -> Self {
        Self { tables: Some(tables), ..self }
    }

    /// The same with bytes that were left out at the beginning of each packet.
    pub(crate) fn with_prefix(self, prefix: &[u8]) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Packets that lie end to end, by the length of each.
    pub(super) fn of_lengths(bytes: &'b [u8], lengths: &[[u8; 4]], content: PacketContent) -> Self {
        let mut offset = 0;
        let place = |length: &[u8; 4]| {
            let place = PlacedPacket { offset, bytes: u32::from_le_bytes(*length) };
            offset += u64::from(place.bytes);
            place
        };
        Self::new(bytes, lengths.iter().map(place).collect(), content)
    }

    /// Returns where the next packet lies; `None` if there is none.
    pub(super) fn place(&self) -> Result<Option<Range<u64>>, MediaError> {
        self.clone().next_place()
    }

    /// Returns whether packets are what lies in the file.
    pub(super) fn are_whole(&self) -> bool {
        self.prefix.is_empty()
    }

    fn next_place(&mut self) -> Result<Option<Range<u64>>, MediaError> {
        if let Some(tables) = &mut self.tables
            && let Some(PlacedPacket { offset, bytes }) = tables.next()?
        {
            // Those of samples that are not coded are a frame each, and lie side by side.
            let others = if matches!(self.content, PacketContent::Joined) { tables.pass_chunk() } else { 0 };
            return Ok(Some(offset..(offset + u64::from(bytes)).saturating_add(others)));
        }
        let Some(PlacedPacket { offset, bytes }) = self.places.get(self.next).copied() else { return Ok(None) };
        self.next += 1;
        Ok(Some(offset..offset.saturating_add(bytes.into())))
    }

    fn next_bytes(&mut self) -> Result<Option<(u64, &'b [u8])>, MediaError> {
        let Some(place) = self.next_place()? else { return Ok(None) };
        let range = usize::try_from(place.start).ok().zip(usize::try_from(place.end).ok());
        let bytes = range.and_then(|(start, end)| self.file.get(start..end));
        let truncated = MediaError::Truncated { bytes: self.file.len() as u64, what: "a packet" };
        Ok(Some((place.start, bytes.ok_or(truncated)?)))
    }

    /// Returns the next packet: a part of the file, or put together in `buffer`.
    pub(crate) fn next<'p>(&mut self, buffer: &'p mut Vec<u8>) -> Result<Option<CodedPacket<'p>>, MediaError>
    where
        'b: 'p,
    {
        let Some((byte, bytes)) = self.next_bytes()? else { return Ok(None) };
        let bytes = if self.prefix.is_empty() {
            bytes
        } else {
            buffer.clear();
            buffer.extend_from_slice(&self.prefix);
            buffer.extend_from_slice(bytes);
            &buffer[..]
        };
        let frames = self.content.frames(bytes).map_err(|problem| MediaError::Malformed { byte, problem })?;
        Ok(Some(CodedPacket { bytes, frames }))
    }

    /// Returns the place of the next packet, from the first byte of all; 0 behind the last one.
    pub(crate) fn at(&self) -> usize {
        let place = self.place().ok().flatten().map_or(0, |place| place.start);
        usize::try_from(place).unwrap_or_default()
    }

    /// Returns all packets end to end.
    pub(super) fn join(mut self) -> Result<JoinedPackets, MediaError> {
        let mut joined = JoinedPackets::default();
        while let Some((byte, bytes)) = self.next_bytes()? {
            joined.bytes.extend_from_slice(&self.prefix);
            joined.bytes.extend_from_slice(bytes);
            let begins = self.are_whole().then_some(byte);
            let end = byte + bytes.len() as u64;
            joined.parts.push(JoinedPart { begins, end, bytes: self.prefix.len() + bytes.len() });
        }
        Ok(joined)
    }
}
