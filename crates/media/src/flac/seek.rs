//! Finds the packet that has a frame, by bisection: a header says which frames follow it.

use super::{Packet, PacketScratch, checksum::crc16, problem::PacketProblem};
use crate::{FlacStream, Track};

/// The packets of a file.
pub(crate) struct PacketSearch<'b, 't> {
    /// All bytes with packets.
    bytes: &'b [u8],
    track: &'t Track,
    stream: FlacStream,
    /// Frames of the first packet.
    frames_each: u32,
}

/// Where a packet lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketPlace {
    /// Its first byte, from that of the first packet.
    pub(crate) byte: usize,
    /// Its first frame.
    pub(crate) start: u64,
    /// Its frames.
    pub(crate) frames: u32,
}

/// A stretch of this length is searched from its beginning: some packets.
const SCAN_BYTES: usize = 1 << 15;
/// The most bytes that look like the header of the last packet: of other bytes one in millions does.
const MAX_TRIES: u32 = 64;

impl<'b, 't> PacketSearch<'b, 't> {
    /// Begins with the first packet.
    pub(crate) fn new(bytes: &'b [u8], track: &'t Track, stream: FlacStream) -> Result<Self, PacketProblem> {
        let frames_each = Packet::read(bytes, track, stream)?.frames();
        Ok(Self { bytes, track, stream, frames_each })
    }

    /// Begins with the first packet of a part of the bytes. `frames_each` are those of the first packet of the file.
    pub(crate) const fn of_part(bytes: &'b [u8], track: &'t Track, stream: FlacStream, frames_each: u32) -> Self {
        Self { bytes, track, stream, frames_each }
    }

    /// Returns the frames of the first packet.
    pub(crate) const fn frames_each(&self) -> u32 {
        self.frames_each
    }

    /// Returns all packets with the bytes of each, from the first one on; `None` if one does not follow the one before it, is damaged, or
    /// other bytes come between two.
    pub(crate) fn all(&self) -> Option<Vec<(PacketPlace, usize)>> {
        let (mut packets, mut next) = (Vec::new(), self.packet(0).ok()?.1);
        let mut start = 0;
        loop {
            let place = next;
            if place.start != start {
                return None;
            }
            start += u64::from(place.frames);
            let mut at = place.byte + 1;
            let end = loop {
                let Some(found) = self.next(at, self.bytes.len()) else { break self.end_of(place.byte)? };
                // Bytes that look like a header tell another place, or have no checksum before them.
                if found.start == start && ends_packet(self.bytes.get(place.byte..found.byte)?) {
                    next = found;
                    break found.byte;
                }
                at = found.byte + 1;
            };
            packets.push((place, end - place.byte));
            if next == place {
                return Some(packets);
            }
        }
    }

    /// Returns where the packet at this byte ends, by decoding it.
    fn end_of(&self, byte: usize) -> Option<usize> {
        let (_, bytes) = self.packet(byte).ok()?.0.decode(&mut PacketScratch::default()).ok()?;
        Some(byte + bytes)
    }

    /// Returns the packet at this byte.
    pub(crate) fn packet(&self, byte: usize) -> Result<(Packet<'b>, PacketPlace), PacketProblem> {
        let bytes = self.bytes.get(byte..).filter(|bytes| !bytes.is_empty()).ok_or(PacketProblem::Ends)?;
        let packet = Packet::read(bytes, self.track, self.stream)?;
        let place = PacketPlace { byte, start: packet.start(self.frames_each), frames: packet.frames() };
        Ok((packet, place))
    }

    /// Returns the packet that has the frame, or the last one before it that is found. What is found may be bytes that
    /// look like a header: decoding a packet checks it, and the caller then begins at the first packet.
    pub(crate) fn find(&self, frame: u64) -> Option<PacketPlace> {
        let mut best = self.packet(0).ok()?.1;
        if !best.is_after(frame) && best.has(frame) {
            return Some(best);
        }
        // The packet begins in `best.byte..end`.
        let mut end = self.bytes.len();
        while end - best.byte > SCAN_BYTES {
            let middle = best.byte + (end - best.byte) / 2;
            match self.next(middle, end) {
                Some(place) if place.has(frame) => return Some(place),
                Some(place) if !place.is_after(frame) => best = place,
                _ => end = middle,
            }
        }
        while let Some(place) = self.next(best.byte + 1, end).filter(|place| !place.is_after(frame)) {
            best = place;
            if best.has(frame) {
                break;
            }
        }
        Some(best)
    }

    /// Returns the first packet that begins in these bytes.
    fn next(&self, from: usize, end: usize) -> Option<PacketPlace> {
        let mut at = from;
        while let Some(found) = self.bytes.get(at..end)?.iter().position(|byte| *byte == 0xff) {
            at += found;
            if self.bytes.get(at + 1).is_some_and(|byte| byte & 0xfe == 0xf8)
                && let Ok((_, place)) = self.packet(at)
            {
                return Some(place);
            }
            at += 1;
        }
        None
    }

    /// Returns the number of frames of the file, which the last packet tells: the last bytes that look like one and can be decoded.
    pub(crate) fn count(&self, scratch: &mut PacketScratch) -> Option<u64> {
        let mut end = self.bytes.len();
        let mut tries = MAX_TRIES;
        while tries > 0 {
            let found = self.bytes[..end].iter().rposition(|byte| *byte == 0xff)?;
            if let Ok((packet, place)) = self.packet(found) {
                if packet.decode(scratch).is_ok() {
                    return place.start.checked_add(place.frames.into());
                }
                tries -= 1;
            }
            end = found;
        }
        None
    }
}

/// Returns whether bytes that begin with the header of a packet end with its checksum.
fn ends_packet(bytes: &[u8]) -> bool {
    bytes.split_last_chunk().is_some_and(|(packet, checksum)| crc16(packet).to_be_bytes() == *checksum)
}

impl PacketPlace {
    const fn has(self, frame: u64) -> bool {
        self.start <= frame && frame - self.start < self.frames as u64
    }

    const fn is_after(self, frame: u64) -> bool {
        self.start > frame
    }
}
