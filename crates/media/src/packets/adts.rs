//! AAC in ADTS: a file that is packets, each with a head.

use super::{
    CodedPacket,
    aac::{AacForm, AdtsHeader, PACKET_FRAMES},
    head_problem::HeadProblem,
};
use crate::{MediaError, SoundCodec, SoundContainer, Track, input::Input};

/// The packets of a file.
#[derive(Clone, Debug)]
pub(crate) struct AdtsPackets<'b> {
    bytes: &'b [u8],
    at: usize,
    form: AacForm,
}

/// Returns whether a file with these first bytes is one of packets of AAC in ADTS.
pub(crate) fn is_adts(begins: &[u8]) -> bool {
    AdtsHeader::read(begins).is_some()
}

/// Reads the first head.
pub(crate) fn read_head(input: &mut Input<'_, '_>) -> Result<Option<Track>, MediaError> {
    let Some(head) = input.peek(7, "its first packet")? else { return Ok(None) };
    let AacForm { rate, channels } = header(head).map_err(|problem| problem.error(input.at(), NO_PACKET))?.form;
    let data = input.at()..input.file_bytes();
    Ok(Some(Track { codec: SoundCodec::Aac, container: SoundContainer::Plain, rate, channels, frames: None, data }))
}

fn header(bytes: &[u8]) -> Result<AdtsHeader, HeadProblem> {
    AdtsHeader::read(bytes).unwrap_or(Err(HeadProblem::Invalid))
}

/// What is wrong where no packet is.
const NO_PACKET: &str = "no packet of AAC begins here";

impl<'b> AdtsPackets<'b> {
    pub(crate) fn open(bytes: &'b [u8]) -> Result<(Self, AacForm), MediaError> {
        let form = header(bytes).map_err(|problem| problem.error(0, NO_PACKET))?.form;
        Ok((Self { bytes, at: 0, form }, form))
    }

    /// Returns the next packet, without its head.
    pub(crate) fn next(&mut self) -> Result<Option<CodedPacket<'b>>, MediaError> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() || [&b"TAG"[..], b"APETAGEX", b"ID3"].iter().any(|tag| rest.starts_with(tag)) {
            return Ok(None);
        }
        let header = header(rest).map_err(|problem| problem.error(self.at as u64, NO_PACKET))?;
        let damaged = |problem| Err(MediaError::Malformed { byte: self.at as u64, problem });
        if header.form != self.form {
            return damaged("the packet has another rate or other channels than the first one");
        }
        let Some(bytes) = rest.get(header.head_bytes..header.bytes) else {
            return damaged("the file ends within this packet");
        };
        self.at += header.bytes;
        Ok(Some(CodedPacket { bytes, frames: PACKET_FRAMES }))
    }

    /// Returns the place of the next packet, from the first byte of all.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }
}
