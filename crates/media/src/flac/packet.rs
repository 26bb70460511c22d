//! One packet: a header, a block of samples for each channel, and a checksum.

use super::{
    bits::BitReader,
    checksum::crc16,
    header::{PacketChannels, PacketHeader},
    predict,
    problem::PacketProblem,
    residual,
};
use crate::{FlacStream, Track};

/// A packet whose header has been read.
pub(crate) struct Packet<'b> {
    header: PacketHeader,
    bytes: &'b [u8],
}

/// The samples of a packet, a block for each channel. A thread keeps it, to allocate nothing.
#[derive(Debug, Default)]
pub(crate) struct PacketScratch {
    samples: Vec<i32>,
}

impl<'b> Packet<'b> {
    /// Reads the header of the packet at the beginning of `bytes`.
    pub(crate) fn read(bytes: &'b [u8], track: &Track, stream: FlacStream) -> Result<Self, PacketProblem> {
        let header = PacketHeader::read(bytes, track, stream.bits)?;
        if header.frames > u32::from(stream.max_packet_frames) {
            return Err(PacketProblem::TooLong);
        }
        Ok(Self { header, bytes })
    }

    /// Returns the number of frames in the packet.
    pub(crate) const fn frames(&self) -> u32 {
        self.header.frames
    }

    /// Returns the number of frames before the packet. `frames_each` are those of the first packet.
    pub(crate) const fn start(&self, frames_each: u32) -> u64 {
        self.header.start(frames_each)
    }

    /// Decodes the samples, and returns them with the bytes of the packet.
    pub(crate) fn decode<'s>(
        &self,
        scratch: &'s mut PacketScratch,
    ) -> Result<(PacketBlocks<'s>, usize), PacketProblem> {
        let PacketHeader { frames, channels, bits, bytes, .. } = self.header;
        let frames = frames as usize;
        let samples = &mut scratch.samples;
        // Every sample is written, so that old ones need not be cleared.
        samples.resize(frames * usize::from(channels.count()), 0);
        let mut reader = BitReader::new(&self.bytes[bytes..]);
        for (channel, block) in samples.chunks_exact_mut(frames).enumerate() {
            let is_difference = matches!(
                (channels, channel),
                (PacketChannels::LeftSide | PacketChannels::MidSide, 1) | (PacketChannels::SideRight, 0)
            );
            read_block(&mut reader, bits + u32::from(is_difference), block)?;
        }
        let end = bytes + reader.bytes_begun();
        let checksum = self.bytes.get(end..end + 2).ok_or(PacketProblem::Ends)?;
        if !cfg!(fuzzing) && crc16(&self.bytes[..end]).to_be_bytes() != checksum {
            return Err(PacketProblem::Checksum);
        }
        if let Some((left, right)) = samples.split_at_mut_checked(frames) {
            restore(channels, left, right);
        }
        Ok((PacketBlocks { samples, frames }, end + 2))
    }
}

/// The samples of a packet.
pub(crate) struct PacketBlocks<'s> {
    samples: &'s [i32],
    frames: usize,
}

impl<'s> PacketBlocks<'s> {
    /// Returns the samples of each channel.
    pub(crate) fn channels(&self) -> impl ExactSizeIterator<Item = &'s [i32]> {
        self.samples.chunks_exact(self.frames)
    }
}

/// Makes left and right of what is stored for them.
fn restore(channels: PacketChannels, first: &mut [i32], second: &mut [i32]) {
    let both = first.iter_mut().zip(second);
    match channels {
        PacketChannels::Each(_) => {}
        PacketChannels::LeftSide => both.for_each(|(left, side)| *side = left.wrapping_sub(*side)),
        PacketChannels::SideRight => both.for_each(|(side, right)| *side = side.wrapping_add(*right)),
        PacketChannels::MidSide => both.for_each(|(mid, side)| {
            // The lowest bit of the sum was cut off; it is that of the difference.
            let sum = mid.wrapping_shl(1) | (*side & 1);
            (*mid, *side) = (sum.wrapping_add(*side) >> 1, sum.wrapping_sub(*side) >> 1);
        }),
    }
}

/// Reads the block of one channel, with samples of `bits` bits.
fn read_block(reader: &mut BitReader<'_>, bits: u32, samples: &mut [i32]) -> Result<(), PacketProblem> {
    let head = reader.bits(8)?;
    // The last bit says that the lowest bits of all samples are zero, and are left out; their number is in unary.
    let unused = if head & 1 == 0 { 0 } else { reader.zeros()?.saturating_add(1) };
    let bits = bits.checked_sub(unused).filter(|bits| *bits > 0 && head & 0x80 == 0).ok_or(PacketProblem::Block)?;
    match head >> 1 {
        0 => samples.fill(reader.signed(bits)?),
        1 => {
            for sample in &mut *samples {
                *sample = reader.signed(bits)?;
            }
        }
        kind @ 8..=12 => {
            let order = kind as usize - 8;
            read_first(reader, bits, order, samples)?;
            residual::read(reader, order, samples)?;
            predict::fixed(order, samples);
        }
        kind @ 32..=63 => {
            let order = kind as usize - 31;
            read_first(reader, bits, order, samples)?;
            let weight_bits = reader.bits(4)? + 1;
            let shift = reader.signed(5)?;
            // A shift to the left is not in use (RFC 9639, appendix B.4).
            let (Ok(shift), true) = (u32::try_from(shift), weight_bits < 16) else { return Err(PacketProblem::Block) };
            let mut weights = [0; 32];
            for weight in weights[..order].iter_mut().rev() {
                *weight = reader.signed(weight_bits)?;
            }
            residual::read(reader, order, samples)?;
            let sum_bits = bits + weight_bits + usize::BITS - order.leading_zeros();
            predict::linear(&weights[..order], shift, sum_bits <= 32, samples);
        }
        _ => return Err(PacketProblem::Block),
    }
    if unused > 0 {
        samples.iter_mut().for_each(|sample| *sample = sample.wrapping_shl(unused));
    }
    Ok(())
}

/// Reads the samples at the beginning of a block, which are not predicted.
fn read_first(reader: &mut BitReader<'_>, bits: u32, order: usize, samples: &mut [i32]) -> Result<(), PacketProblem> {
    for sample in samples.get_mut(..order).ok_or(PacketProblem::Block)? {
        *sample = reader.signed(bits)?;
    }
    Ok(())
}
