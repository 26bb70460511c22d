//! The headers of MPEG audio, which a frame of MP3 begins with, and what a head of `Xing` says.

/// The header of a packet of MP3, which MPEG calls a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mp3Header {
    /// What the headers of one sound have in common.
    pub(crate) form: Mp3Form,
    /// Length of the packet.
    pub(crate) bytes: usize,
    has_checksum: bool,
}

/// What the headers of one sound have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mp3Form {
    pub(crate) rate: u32,
    pub(crate) channels: u16,
    /// Whether it is MPEG-1; MPEG-2 and 2.5 have half as many frames in a packet.
    is_mpeg_1: bool,
}

/// What the first packet says of a sound, in place of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XingHead {
    /// The packets behind it.
    pub(crate) packets: Option<u32>,
    /// Frames that the encoder has put before the sound and behind it.
    pub(crate) delay: Option<(u16, u16)>,
}

/// Kilobits a second, of MPEG-1 and of MPEG-2 and 2.5.
const BITRATES: [[u16; 15]; 2] = [
    [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];
/// The most bytes of a packet before its own that its samples are in, in MPEG-1 and in MPEG-2 and 2.5.
const RESERVOIR_BYTES: [usize; 2] = [511, 255];

impl Mp3Header {
    /// Reads the header at the beginning of `bytes`, if it is one of layer III.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let &[0xff, second, third, fourth, ..] = bytes else { return None };
        if second & 0xe6 != 0xe2 {
            return None;
        }
        let (is_mpeg_1, rate_shift) = match second >> 3 & 3 {
            0 => (false, 2),
            2 => (false, 1),
            3 => (true, 0),
            _ => return None,
        };
        let rate = [44_100_u32, 48_000, 32_000].get(usize::from(third >> 2 & 3))? >> rate_shift;
        let bitrate = 1000 * u32::from(*BITRATES[usize::from(!is_mpeg_1)].get(usize::from(third >> 4))?);
        if bitrate == 0 {
            return None;
        }
        let frames_8 = if is_mpeg_1 { 144 } else { 72 };
        let bytes = (frames_8 * bitrate / rate + u32::from(third >> 1 & 1)) as usize;
        let channels = if fourth >> 6 == 3 { 1 } else { 2 };
        Some(Self { form: Mp3Form { rate, channels, is_mpeg_1 }, bytes, has_checksum: second & 1 == 0 })
    }

    /// Returns the bytes before those that hold samples.
    fn side_bytes(self) -> usize {
        let side = match (self.form.is_mpeg_1, self.form.channels) {
            (true, 2) => 32,
            (true, _) | (false, 2) => 17,
            (false, _) => 9,
        };
        4 + if self.has_checksum { 2 } else { 0 } + side
    }

    /// Returns the packets before one of this length, at the most, that its samples are in.
    pub(crate) fn reservoir_packets(self) -> usize {
        let own = self.bytes.saturating_sub(self.side_bytes()).max(1);
        RESERVOIR_BYTES[usize::from(!self.form.is_mpeg_1)].div_ceil(own)
    }
}

/// Returns whether a header begins here that is of another kind of MPEG audio than is read.
pub(crate) fn is_other_layer(bytes: &[u8]) -> bool {
    let &[0xff, second, third, ..] = bytes else { return false };
    second & 0xe0 == 0xe0 && second & 0x06 != 0 && second & 0x18 != 0x08 && third & 0x0c != 0x0c && third >> 4 != 15
}

impl Mp3Form {
    /// Returns the number of frames in a packet.
    pub(crate) const fn packet_frames(self) -> u32 {
        mp3_frames(self.rate)
    }
}

/// Returns the number of frames in a packet: those of MPEG-1, whose rates are higher, have twice as many.
pub(super) const fn mp3_frames(rate: u32) -> u32 {
    if rate >= 32_000 { 1152 } else { 576 }
}

impl XingHead {
    /// Reads the head in the first packet, if it has one.
    pub(crate) fn read(packet: &[u8]) -> Option<Self> {
        let header = Mp3Header::read(packet)?;
        let head = packet.get(header.side_bytes()..header.bytes)?;
        let head = head.strip_prefix(b"Xing").or_else(|| head.strip_prefix(b"Info"))?;
        let (flags, mut rest) = head.split_first_chunk::<4>()?;
        let flags = flags[3];
        let mut packets = None;
        for (flag, bytes) in [(1, 4), (2, 4), (4, 100), (8, 4)] {
            if flags & flag != 0 {
                let (field, after) = rest.split_at_checked(bytes)?;
                if flag == 1 {
                    packets = Some(u32::from_be_bytes(*field.first_chunk()?));
                }
                rest = after;
            }
        }
        // The name of the encoder, which begins a part that LAME has added.
        let has_name = rest.first().is_some_and(|byte| *byte != 0);
        let delay = rest.get(21..24).filter(|_| has_name).map(|bits| {
            let [first, second, third] = [bits[0], bits[1], bits[2]].map(u16::from);
            (first << 4 | second >> 4, (second & 15) << 8 | third)
        });
        Some(Self { packets: packets.filter(|packets| *packets != 0), delay })
    }
}
