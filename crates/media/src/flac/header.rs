//! The header of a packet.

use super::{bits::BitReader, checksum::crc8, problem::PacketProblem};
use crate::Track;

/// What the header of a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketHeader {
    /// Frames in the packet, 1 to 65,536.
    pub(super) frames: u32,
    pub(super) channels: PacketChannels,
    /// Bits of a sample.
    pub(super) bits: u32,
    number: PacketNumber,
    /// Length of the header.
    pub(super) bytes: usize,
}

/// How the channels of a packet are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketChannels {
    /// So many, each by itself.
    Each(u8),
    /// The left one, and left minus right.
    LeftSide,
    /// Left minus right, and the right one.
    SideRight,
    /// The mean, and left minus right.
    MidSide,
}

/// The place of a packet in the sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketNumber {
    /// The packets before it, which have equally many frames.
    Packet(u64),
    /// The frames before it.
    Frame(u64),
}

impl PacketHeader {
    /// Reads the header at the beginning of `bytes`.
    pub(super) fn read(bytes: &[u8], track: &Track, stream_bits: u8) -> Result<Self, PacketProblem> {
        let mut reader = BitReader::new(bytes);
        if reader.bits(15)? != 0b111_1111_1111_1100 {
            return Err(PacketProblem::NoHeader);
        }
        let counts_frames = reader.bits(1)? == 1;
        let (frames_code, rate_code) = (reader.bits(4)?, reader.bits(4)?);
        let (channels_code, bits_code, reserved) = (reader.bits(4)?, reader.bits(3)?, reader.bits(1)?);
        let number = coded_number(&mut reader)?;
        let number = if counts_frames { PacketNumber::Frame(number) } else { PacketNumber::Packet(number) };
        let frames = match frames_code {
            1 => 192,
            2..=5 => 144 << frames_code,
            6 => reader.bits(8)? + 1,
            7 => reader.bits(16)? + 1,
            8..=15 => 1 << frames_code,
            _ => return Err(PacketProblem::NoHeader),
        };
        match rate_code {
            12 => _ = reader.bits(8)?,
            13 | 14 => _ = reader.bits(16)?,
            15 => return Err(PacketProblem::NoHeader),
            _ => {}
        }
        let channels = match channels_code {
            code @ 0..=7 => PacketChannels::Each(u8::try_from(code).expect("4 bits") + 1),
            8 => PacketChannels::LeftSide,
            9 => PacketChannels::SideRight,
            10 => PacketChannels::MidSide,
            _ => return Err(PacketProblem::NoHeader),
        };
        let bits = match bits_code {
            0 => u32::from(stream_bits),
            1 => 8,
            2 => 12,
            4 => 16,
            5 => 20,
            6 => 24,
            _ => return Err(PacketProblem::NoHeader),
        };
        let length = reader.bytes_begun();
        let checksum = reader.bits(8)?;
        let is_right = cfg!(fuzzing) || u32::from(crc8(&bytes[..length])) == checksum;
        if reserved != 0 || !is_right {
            return Err(PacketProblem::NoHeader);
        }
        if u16::from(channels.count()) != track.channels || bits != u32::from(stream_bits) {
            return Err(PacketProblem::Changes);
        }
        Ok(Self { frames, channels, bits, number, bytes: length + 1 })
    }

    /// Returns the number of frames before the packet. `frames_each` are those of the first packet.
    pub(super) const fn start(&self, frames_each: u32) -> u64 {
        match self.number {
            PacketNumber::Packet(number) => number * frames_each as u64,
            PacketNumber::Frame(number) => number,
        }
    }
}

impl PacketChannels {
    pub(super) const fn count(self) -> u8 {
        match self {
            Self::Each(count) => count,
            Self::LeftSide | Self::SideRight | Self::MidSide => 2,
        }
    }
}

/// Reads a number of up to 36 bits, in the manner of UTF-8.
fn coded_number(reader: &mut BitReader<'_>) -> Result<u64, PacketProblem> {
    let first = u8::try_from(reader.bits(8)?).expect("8 bits");
    let more = match first.leading_ones() {
        0 => return Ok(first.into()),
        ones @ 2..=7 => ones - 1,
        _ => return Err(PacketProblem::NoHeader),
    };
    let mut number = u64::from(first) & (0x3f >> more);
    for _ in 0..more {
        let byte = reader.bits(8)?;
        if byte >> 6 != 0b10 {
            return Err(PacketProblem::NoHeader);
        }
        number = number << 6 | u64::from(byte & 0x3f);
    }
    Ok(number)
}
