//! MP3: a file that is packets, one after the other, with tags of many kinds around them.

use std::ops::Range;

use super::{
    CodedPacket, PacketPlan,
    mpeg::{self, Mp3Form, Mp3Header, XingHead},
};
use crate::{MediaError, SoundCodec, SoundContainer, Track, input::Input};

/// The bytes that are searched for the first packet.
const SEARCH_BYTES: u64 = 1 << 16;
/// More bytes than three packets have.
const THREE_PACKETS_BYTES: u64 = 3 * 1441 + 4;
/// The frames of delay of every decoder, which counts as the encoder's does not.
const DECODER_DELAY: u64 = 529;

/// Finds the first packet of an MP3 file.
#[derive(Clone, Debug)]
pub(crate) struct Mp3Head {
    /// Whether a tag has said that it is one.
    pub(crate) is_tagged: bool,
}

/// The packets of a file.
#[derive(Clone, Debug)]
pub(crate) struct Mp3Packets<'b> {
    bytes: &'b [u8],
    at: usize,
    form: Mp3Form,
}

impl Mp3Head {
    /// Returns the track if packets begin in the next bytes; `Err(None)` if there are none, so that the file is something else.
    pub(crate) fn read(&self, input: &mut Input<'_, '_>) -> Result<Option<Track>, Option<MediaError>> {
        let rest = input.file_bytes().saturating_sub(input.at());
        for bytes in [THREE_PACKETS_BYTES, SEARCH_BYTES + THREE_PACKETS_BYTES] {
            let count = bytes.min(rest);
            let Some(found) = input.peek(count, "its first packet").map_err(Some)? else { return Ok(None) };
            let is_all = count == rest;
            if bytes == THREE_PACKETS_BYTES && !begins(found, 3, is_all) {
                continue;
            }
            let Some(place) = (0..found.len()).find(|place| begins(&found[*place..], 3, is_all)) else { break };
            let header = Mp3Header::read(&found[place..]).expect("a packet begins there");
            input.skip(place as u64);
            let Mp3Form { rate, channels, .. } = header.form;
            let data = input.at()..input.file_bytes();
            return Ok(Some(Track {
                codec: SoundCodec::Mp3,
                container: SoundContainer::Plain,
                rate,
                channels,
                frames: None,
                data,
            }));
        }
        let start = input.peek(rest.min(4), "its first packet").map_err(Some)?.unwrap_or_default();
        match Mp3Header::read(start) {
            Some(_) => Err(Some(MediaError::Truncated { bytes: input.file_bytes(), what: "its first packets" })),
            None if mpeg::is_other_layer(start) => Err(Some(MediaError::Unsupported {
                what: "MPEG audio of layer I or II, or of a free bit rate".to_owned(),
            })),
            None if self.is_tagged => Err(Some(input.malformed("no packet of MP3 follows the tag"))),
            None => Err(None),
        }
    }
}

/// Returns how packets are decoded of which this one is the smallest: of the packet before one, the last samples are mixed in, and those
/// depend on the one before that.
pub(super) fn plan_of(smallest: Mp3Header) -> PacketPlan {
    let roll_packets = 2 + smallest.reservoir_packets() as u64;
    PacketPlan { roll: roll_packets * u64::from(smallest.form.packet_frames()), restart: None }
}

/// Returns whether so many packets of one form begin here, or fewer that the file ends with.
fn begins(bytes: &[u8], packets: u32, is_all: bool) -> bool {
    let Some(first) = Mp3Header::read(bytes).filter(|first| !is_all || first.bytes <= bytes.len()) else {
        return false;
    };
    let mut at = first.bytes;
    for _ in 1..packets {
        let Some(rest) = bytes.get(at..) else { return false };
        if is_all && (rest.is_empty() || is_tag(rest)) {
            break;
        }
        match Mp3Header::read(rest) {
            Some(next) if next.form == first.form => at += next.bytes,
            _ => return false,
        }
    }
    true
}

/// Returns whether a tag of a kind that comes behind the packets begins here.
fn is_tag(bytes: &[u8]) -> bool {
    [&b"TAG"[..], b"APETAGEX", b"LYRICSBEGIN", b"ID3"].iter().any(|tag| bytes.starts_with(tag))
}

impl<'b> Mp3Packets<'b> {
    /// Begins with the first packet of samples, and plans which frames are the sound.
    pub(crate) fn open(bytes: &'b [u8]) -> Option<(Self, PacketPlan, Option<XingHead>)> {
        let first = Mp3Header::read(bytes)?;
        let xing = XingHead::read(bytes);
        let packets = Self { bytes, at: if xing.is_some() { first.bytes } else { 0 }, form: first.form };
        let mut smallest = first;
        let mut counted = packets.clone();
        while let Some(header) = counted.find() {
            smallest = if header.bytes < smallest.bytes { header } else { smallest };
            counted.at += header.bytes;
        }
        Some((packets, plan_of(smallest), xing))
    }

    /// Begins with a packet of a part of a file; `None` if none begins there.
    pub(super) fn of_part(bytes: &'b [u8]) -> Option<Self> {
        Some(Self { bytes, at: 0, form: Mp3Header::read(bytes)?.form })
    }

    /// Returns the frames that are the sound, of all that are decoded, as libsndfile has it: without what an encoder has added, and up to
    /// the end of the first of files that were joined. A file with fewer packets than its head counts ends with the last of them.
    pub(crate) fn part(&self, frames: u64, xing: Option<XingHead>) -> Range<u64> {
        let Some((xing, packets)) = xing.and_then(|xing| Some((xing, xing.packets?))) else { return 0..frames };
        let told = u64::from(packets) * u64::from(self.form.packet_frames());
        let (before, behind) = xing.delay.unwrap_or_default();
        let start = u64::from(before) + DECODER_DELAY;
        let end = (told + DECODER_DELAY).saturating_sub(behind.into()).min(told.max(start)).min(frames);
        start.min(end)..end
    }

    /// Returns the next packet.
    pub(crate) fn next(&mut self) -> Option<CodedPacket<'b>> {
        let header = self.find()?;
        let bytes = &self.bytes[self.at..][..header.bytes];
        self.at += header.bytes;
        Some(CodedPacket { bytes, frames: header.form.packet_frames() })
    }

    /// Goes to the next whole packet, and returns its header.
    fn find(&mut self) -> Option<Mp3Header> {
        let is_next = |at: usize| {
            let header = Mp3Header::read(self.bytes.get(at..)?).filter(|header| header.form == self.form)?;
            (at + header.bytes <= self.bytes.len()).then_some(header)
        };
        let mut at = self.at;
        if let Some(header) = is_next(at) {
            return Some(header);
        }
        // What comes between packets, such as tags of files that were joined. Bytes may look like a header; two do not.
        loop {
            at += 1;
            at += self.bytes.get(at..)?.iter().position(|byte| *byte == 0xff)?;
            if let Some(header) = is_next(at)
                && is_next(at + header.bytes).is_some()
            {
                self.at = at;
                return Some(header);
            }
        }
    }

    /// Returns the place of the next packet, from the first byte of all.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }
}
