//! FLAC, as RFC 9639 has it: the head of a file here, packets in the modules. Samples of up to 24 bits are decoded.

mod bits;
mod checksum;
mod header;
mod packet;
mod predict;
mod problem;
mod residual;
mod seek;

pub(crate) use packet::{Packet, PacketScratch};
pub(crate) use seek::{PacketPlace, PacketSearch};

use crate::{FlacStream, MediaError, SoundCodec, SoundContainer, Track, input::Input};

/// The most metadata blocks that are passed.
const MAX_BLOCKS: u32 = 4096;

/// Reads the metadata of a FLAC file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlacHead {
    blocks: u32,
    track: Option<Track>,
}

impl FlacHead {
    /// Reads what is there; returns the track when the packets begin.
    pub(crate) fn read(&mut self, input: &mut Input<'_, '_>) -> Result<Option<Track>, MediaError> {
        if self.blocks == 0 {
            let bytes = STREAM_INFO_BYTES as u64;
            let Some(head) = input.peek(bytes, "its STREAMINFO")? else { return Ok(None) };
            self.track = Some(stream_info(head, input.at())?);
            input.skip(bytes);
            self.blocks = 1;
            if head[4] & 0x80 != 0 {
                return Ok(self.finish(input));
            }
        }
        loop {
            let Some(header) = input.peek(4, "its metadata")? else { return Ok(None) };
            let size = header[1..].iter().fold(0, |size, byte| size << 8 | u64::from(*byte));
            if header[0] & 0x7f == 0x7f {
                return Err(input.malformed("a metadata block has the forbidden type 127"));
            }
            input.skip(4 + size);
            if header[0] & 0x80 != 0 {
                return Ok(self.finish(input));
            }
            self.blocks += 1;
            if self.blocks > MAX_BLOCKS {
                return Err(input.malformed("more than 4,096 metadata blocks come before the samples"));
            }
        }
    }

    fn finish(&mut self, input: &Input<'_, '_>) -> Option<Track> {
        let start = input.at().min(input.file_bytes());
        self.track.take().map(|track| Track { data: start..input.file_bytes(), ..track })
    }
}

/// The bytes of the marker `fLaC` and the block STREAMINFO, which comes first.
const STREAM_INFO_BYTES: usize = 4 + 4 + 34;

/// Reads the marker and the block STREAMINFO, which begin at `byte` of the file.
pub(crate) fn stream_info(head: &[u8], byte: u64) -> Result<Track, MediaError> {
    let malformed = |problem| MediaError::Malformed { byte, problem };
    let number =
        |range: std::ops::Range<usize>| head[range].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    if head.len() < STREAM_INFO_BYTES || &head[..4] != b"fLaC" || head[4] & 0x7f != 0 || number(5..8) != 34 {
        return Err(malformed("the first metadata block is not a STREAMINFO of 34 bytes"));
    }
    // After the sizes of packets: 20 bits of rate, 3 of channels, 5 of bits and 36 of frames.
    let packed = number(18..26);
    let frames = packed & ((1 << 36) - 1);
    let bits = u8::try_from((packed >> 36) & 31).expect("5 bits") + 1;
    let channels = u16::try_from((packed >> 41) & 7).expect("3 bits") + 1;
    let rate = u32::try_from(packed >> 44).expect("20 bits");
    if rate == 0 {
        return Err(malformed("the sample rate is 0 Hz"));
    }
    if !(4..=24).contains(&bits) {
        return Err(MediaError::Unsupported { what: format!("FLAC samples of {bits} bits") });
    }
    let max_packet_frames = u16::try_from(number(10..12)).expect("2 bytes");
    if max_packet_frames < 16 {
        return Err(malformed("packets have fewer than 16 frames"));
    }
    let codec = SoundCodec::Flac(FlacStream { bits, max_packet_frames });
    Ok(Track {
        codec,
        container: SoundContainer::Plain,
        rate,
        channels,
        frames: (frames != 0).then_some(frames),
        data: 0..0,
    })
}
