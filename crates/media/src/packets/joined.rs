//! FLAC, and samples that are not coded, where a container has them in parts: put end to end, they are what a file of their own has.

use super::PacketStretch;

/// All parts end to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct JoinedPackets {
    pub(crate) bytes: Vec<u8>,
    pub(crate) parts: Vec<JoinedPart>,
}

/// A packet, or samples that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JoinedPart {
    /// Where reading can begin with it in the file, if it can.
    pub(crate) begins: Option<u64>,
    /// The end of what is read for it.
    pub(crate) end: u64,
    /// Its own bytes.
    pub(crate) bytes: usize,
}

impl JoinedPackets {
    /// Returns where in the file a byte of all parts lies, or the packet that has it.
    pub(crate) fn file_byte(&self, byte: usize) -> u64 {
        let mut before = 0;
        let part = self.parts.iter().find(|part| {
            before += part.bytes;
            byte < before
        });
        let Some(part) = part else { return self.parts.last().map_or(0, |last| last.end) };
        part.begins.map_or(part.end, |begins| begins + (byte + part.bytes - before) as u64)
    }

    /// Returns stretches of at least `least` frames, if nothing lies between their parts; `frames` are those of each part. `None` if a part
    /// of them could not be read as it is in the whole.
    pub(crate) fn stretches(&self, frames: impl IntoIterator<Item = u64>, least: u64) -> Option<Vec<PacketStretch>> {
        let (mut stretches, mut frame) = (Vec::<PacketStretch>::new(), 0);
        for (part, frames) in self.parts.iter().zip(frames) {
            let is_joined = |last: &&mut PacketStretch| {
                let is_next = part.begins == Some(last.byte + last.bytes);
                part.begins.is_none() || (is_next && last.frames < least)
            };
            match stretches.last_mut().filter(is_joined) {
                Some(last) => (last.bytes, last.frames) = (part.end.checked_sub(last.byte)?, last.frames + frames),
                None => {
                    let byte = part.begins?;
                    let bytes = part.end.checked_sub(byte)?;
                    stretches.push(PacketStretch { byte, bytes, frame, frames, follows_long: false });
                }
            }
            frame += frames;
        }
        let ascends = stretches.array_windows().all(|[one, next]| one.byte + one.bytes <= next.byte);
        ascends.then_some(stretches)
    }
}
