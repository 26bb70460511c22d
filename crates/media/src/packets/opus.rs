//! What files say of Opus (RFC 6716, RFC 7845): the head of a stream, and the frames of a packet.

use super::head_problem::HeadProblem;

/// What a decoder of Opus has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpusForm {
    /// 1 to 8.
    pub(crate) channels: u8,
    /// The frames before the sound, which a decoder needs.
    pub(crate) pre_skip: u16,
    /// What all samples are multiplied by, in 1/256 dB.
    pub(crate) gain: i16,
    /// The streams of each packet, of which the first `coupled` are stereo.
    pub(crate) streams: u8,
    pub(crate) coupled: u8,
    /// The decoded channel that each channel of the sound is, or [`SILENT`].
    pub(crate) places: [u8; 8],
}

/// The rate that all Opus is decoded at.
pub(crate) const RATE: u32 = 48_000;
/// A channel without sound.
pub(crate) const SILENT: u8 = 255;
/// What is wrong with a head that is not valid.
pub(crate) const INVALID_HEAD: &str = "the head of Opus is not valid";
/// The most frames of a packet: 120 ms.
const MAX_PACKET_FRAMES: u32 = 5760;

impl OpusForm {
    /// Reads the first packet of a stream in Ogg.
    pub(crate) fn read(head: &[u8]) -> Result<Self, HeadProblem> {
        let body = head.strip_prefix(b"OpusHead").ok_or(HeadProblem::Invalid)?;
        // The upper half of the version changes only with what a decoder has to know.
        let [0..16, channels, skip_low, skip_high, _, _, _, _, gain_low, gain_high, family, map @ ..] = body else {
            return Err(HeadProblem::Invalid);
        };
        let (pre_skip, gain) =
            (u16::from_le_bytes([*skip_low, *skip_high]), i16::from_le_bytes([*gain_low, *gain_high]));
        Self::new(*channels, pre_skip, gain, *family, map)
    }

    /// Reads the box `dOps` of MP4, which has the same in another order of bytes.
    pub(crate) fn read_box(content: &[u8]) -> Result<Self, HeadProblem> {
        let [0, channels, skip_high, skip_low, _, _, _, _, gain_high, gain_low, family, map @ ..] = content else {
            return Err(HeadProblem::Invalid);
        };
        let (pre_skip, gain) =
            (u16::from_be_bytes([*skip_high, *skip_low]), i16::from_be_bytes([*gain_high, *gain_low]));
        Self::new(*channels, pre_skip, gain, *family, map)
    }

    /// The length of a form in bytes.
    pub(super) const BYTES: usize = 15;

    /// Returns the form in bytes.
    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let Self { channels, pre_skip, gain, streams, coupled, places } = self;
        let ([skip_low, skip_high], [gain_low, gain_high]) = (pre_skip.to_le_bytes(), gain.to_le_bytes());
        let mut bytes = [0; Self::BYTES];
        bytes[..7].copy_from_slice(&[channels, skip_low, skip_high, gain_low, gain_high, streams, coupled]);
        bytes[7..].copy_from_slice(&places);
        bytes
    }

    /// Returns the form of these bytes, if it is one that [`read`](Self::read) may return.
    pub(super) fn of_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let [channels, skip_low, skip_high, gain_low, gain_high, streams, coupled, places @ ..] = *bytes;
        let (pre_skip, gain) = (u16::from_le_bytes([skip_low, skip_high]), i16::from_le_bytes([gain_low, gain_high]));
        let map = [&[streams, coupled], &places[..usize::from(channels).min(places.len())]].concat();
        Self::new(channels, pre_skip, gain, 1, &map).ok()
    }

    /// `map` follows the mapping family: the numbers of streams, and the place of each channel.
    fn new(channels: u8, pre_skip: u16, gain: i16, family: u8, map: &[u8]) -> Result<Self, HeadProblem> {
        let mut form = Self { channels, pre_skip, gain, streams: 1, coupled: 0, places: [0, 1, 0, 0, 0, 0, 0, 0] };
        match (family, channels) {
            (_, 0) => return Err(HeadProblem::Invalid),
            (0, 1 | 2) => form.coupled = channels - 1,
            (1, 1..=8) => {
                let [streams, coupled, places @ ..] = map else { return Err(HeadProblem::Invalid) };
                let places = places.get(..channels.into()).ok_or(HeadProblem::Invalid)?;
                let decoded = streams.checked_add(*coupled).filter(|decoded| *decoded < SILENT);
                let decoded = decoded.ok_or(HeadProblem::Invalid)?;
                if *streams == 0 || coupled > streams {
                    return Err(HeadProblem::Invalid);
                }
                if *streams > channels {
                    return Err(HeadProblem::Unsupported("Opus with more streams than channels"));
                }
                if places.iter().any(|place| *place >= decoded && *place != SILENT) {
                    return Err(HeadProblem::Invalid);
                }
                (form.streams, form.coupled) = (*streams, *coupled);
                form.places[..places.len()].copy_from_slice(places);
            }
            (0 | 1, _) => return Err(HeadProblem::Invalid),
            _ => {
                return Err(HeadProblem::Unsupported(
                    "Opus of channels that are not those of speakers (a mapping family above 1)",
                ));
            }
        }
        Ok(form)
    }
}

/// Returns the number of frames that are decoded of a packet; `None` if its head is not valid: such packets are passed, as libopusfile
/// does.
pub(crate) fn opus_frames(packet: &[u8]) -> Option<u32> {
    let (first, rest) = packet.split_first()?;
    let kind = first >> 3;
    let of_frame = match kind {
        0..12 => [480, 960, 1920, 2880][usize::from(kind % 4)],
        12..16 => [480, 960][usize::from(kind % 2)],
        _ => 120 << (kind % 4),
    };
    let count = match first & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => u32::from(rest.first()? & 63),
    };
    let frames = of_frame * count;
    (1..=MAX_PACKET_FRAMES).contains(&frames).then_some(frames)
}

/// A packet of one of several streams, which tells its own length (RFC 6716, appendix B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DelimitedPacket<'p> {
    /// What comes before the length, and what comes behind it: together, a packet as it is alone.
    pub(crate) parts: [&'p [u8]; 2],
    /// The bytes of the next streams.
    pub(crate) rest: &'p [u8],
}

impl<'p> DelimitedPacket<'p> {
    /// Reads the packet at the beginning of `bytes`; `None` if it is not whole.
    pub(crate) fn read(bytes: &'p [u8]) -> Option<Self> {
        let mut at = 1;
        let (mut content, mut padding) = (0, 0);
        let (is_constant, count) = match bytes.first()? & 3 {
            0 => (false, 1),
            1 => (true, 2),
            2 => (false, 2),
            _ => {
                let flags = *bytes.get(1)?;
                at = 2;
                if flags & 0x40 != 0 {
                    loop {
                        let byte = *bytes.get(at)?;
                        at += 1;
                        padding += usize::from(byte.min(254));
                        if byte < 255 {
                            break;
                        }
                    }
                }
                (flags & 0x80 == 0, usize::from(flags & 63))
            }
        };
        if !is_constant {
            for _ in 1..count {
                content += length(bytes, &mut at)?;
            }
        }
        let before = at;
        let last = length(bytes, &mut at)?;
        content += if is_constant { last * count } else { last };
        let end = at.checked_add(content)?.checked_add(padding)?;
        Some(Self { parts: [&bytes[..before], bytes.get(at..end)?], rest: &bytes[end..] })
    }
}

/// Returns the length of a frame, of one byte or two.
fn length(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let first = usize::from(*bytes.get(*at)?);
    *at += 1;
    if first < 252 {
        return Some(first);
    }
    let second = usize::from(*bytes.get(*at)?);
    *at += 1;
    Some(first + 4 * second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frames_of_a_packet_are_in_its_first_byte() {
        for (packet, frames) in [
            (&[0x00][..], Some(480)),
            (&[0x58], Some(2880)),
            (&[0x60], Some(480)),
            (&[0x78], Some(960)),
            (&[0x80], Some(120)),
            (&[0xf9], Some(1920)),
            (&[0xfb, 6], Some(5760)),
            (&[0xfb, 7], None),
            (&[0xfb, 0x80], None),
            (&[0xfb], None),
            (&[], None),
        ] {
            assert_eq!(opus_frames(packet), frames, "{packet:?}");
        }
    }

    #[test]
    fn a_packet_that_tells_its_length_is_the_packet_without_it() {
        for (bytes, alone, rest) in [
            (&[0, 2, 8, 9, 7][..], &[0, 8, 9][..], &[7][..]),
            (&[1, 1, 8, 9], &[1, 8, 9], &[]),
            (&[2, 1, 2, 6, 8, 9, 7], &[2, 1, 6, 8, 9], &[7]),
            (&[3, 0x43, 1, 1, 4, 5, 6, 0, 7], &[3, 0x43, 1, 4, 5, 6, 0], &[7]),
            (&[3, 0x82, 1, 2, 4, 5, 6, 7], &[3, 0x82, 1, 4, 5, 6], &[7]),
        ] {
            let packet = DelimitedPacket::read(bytes).unwrap();
            assert_eq!((packet.parts.concat(), packet.rest), (alone.to_vec(), rest));
        }
        let long = [&[0, 252, 1][..], &[5; 256]].concat();
        assert_eq!(DelimitedPacket::read(&long).unwrap().parts[1].len(), 256);
        for bytes in [&[][..], &[0], &[0, 1], &[0, 252], &[2, 1, 2, 0], &[3, 0x43, 255], &[3, 0x43, 1, 1, 4, 5, 6]] {
            assert_eq!(DelimitedPacket::read(bytes), None, "{bytes:?}");
        }
    }
}
