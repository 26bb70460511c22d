//! Packets whose lengths are listed: a part of those of MP4, whose tables are elsewhere.

use super::{CodedPacket, aac::PACKET_FRAMES, opus::opus_frames};
use crate::MediaError;

/// Packets of a part of a file, which lie end to end.
#[derive(Clone, Debug)]
pub(crate) struct ListedPackets<'b> {
    bytes: &'b [u8],
    /// The length of each, in 4 bytes.
    lengths: &'b [[u8; 4]],
    at: usize,
    /// Those of Opus; others are of AAC.
    is_opus: bool,
}

impl<'b> ListedPackets<'b> {
    pub(super) const fn new(bytes: &'b [u8], lengths: &'b [[u8; 4]], is_opus: bool) -> Self {
        Self { bytes, lengths, at: 0, is_opus }
    }

    /// Returns the next packet.
    pub(super) fn next(&mut self) -> Result<Option<CodedPacket<'b>>, MediaError> {
        let Some((length, lengths)) = self.lengths.split_first() else { return Ok(None) };
        let problem = |problem| MediaError::Malformed { byte: self.at as u64, problem };
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let bytes = rest.get(..u32::from_le_bytes(*length) as usize).ok_or_else(|| problem("a packet is cut off"))?;
        let frames = if self.is_opus { opus_frames(bytes) } else { Some(PACKET_FRAMES) };
        let frames = frames.ok_or_else(|| problem("a packet of Opus has no valid head"))?;
        (self.lengths, self.at) = (lengths, self.at + bytes.len());
        Ok(Some(CodedPacket { bytes, frames }))
    }

    /// Returns the place of the next packet, from the first byte of all.
    pub(super) const fn at(&self) -> usize {
        self.at
    }
}
