//! What files say of AAC: the head of a packet in ADTS, and the configuration in MP4.

use super::head_problem::HeadProblem;

/// What a decoder of AAC has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AacForm {
    pub(crate) rate: u32,
    /// 1 or 2.
    pub(crate) channels: u16,
}

/// The head of a packet in ADTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdtsHeader {
    pub(crate) form: AacForm,
    /// Length of the head, and of the packet with it.
    pub(crate) head_bytes: usize,
    pub(crate) bytes: usize,
}

/// Frames of a packet.
pub(crate) const PACKET_FRAMES: u32 = 1024;

const RATES: [u32; 13] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8000, 7350];
const LC: u32 = 2;
const KINDS: &str = "AAC of another kind than AAC-LC";
const CHANNELS: &str = "AAC of other channels than mono and stereo";
/// What files of HE-AAC have.
pub(crate) const HE_AAC: &str = "HE-AAC";

impl AdtsHeader {
    /// Reads the head at the beginning of `bytes`; `None` if none is there.
    pub(crate) fn read(bytes: &[u8]) -> Option<Result<Self, HeadProblem>> {
        let &[0xff, second, third, fourth, fifth, sixth, seventh, ..] = bytes else { return None };
        if second & 0xf6 != 0xf0 {
            return None;
        }
        let rate = *RATES.get(usize::from(third >> 2 & 15))?;
        let head_bytes = if second & 1 == 1 { 7 } else { 9 };
        let bytes = usize::from(fourth & 3) << 11 | usize::from(fifth) << 3 | usize::from(sixth >> 5);
        if bytes <= head_bytes {
            return None;
        }
        let problem = match (third >> 6, (third & 1) << 2 | fourth >> 6, seventh & 3) {
            (1, 1 | 2, 0) => None,
            (1, 1 | 2, _) => Some("AAC with several blocks in a packet of ADTS"),
            (1, _, _) => Some(CHANNELS),
            _ => Some(KINDS),
        };
        let channels = u16::from(fourth >> 6);
        let header = Self { form: AacForm { rate, channels }, head_bytes, bytes };
        Some(problem.map_or(Ok(header), |problem| Err(HeadProblem::Unsupported(problem))))
    }
}

impl AacForm {
    /// Reads an AudioSpecificConfig (ISO/IEC 14496-3, 1.6.2.1).
    pub(crate) fn read(config: &[u8]) -> Result<Self, HeadProblem> {
        let mut at = 0;
        let mut bits = |count: usize| {
            let number = (at..at + count).try_fold(0, |number, bit| Some(number << 1 | bit_at(config, bit)?));
            at += count;
            number.ok_or(HeadProblem::Invalid)
        };
        let kind = bits(5)?;
        if kind == 5 || kind == 29 {
            return Err(HeadProblem::Unsupported(HE_AAC));
        }
        if kind != LC {
            return Err(HeadProblem::Unsupported(KINDS));
        }
        let rate = match bits(4)? {
            15 => bits(24)?,
            code => *RATES.get(code as usize).ok_or(HeadProblem::Invalid)?,
        };
        let channels = bits(4)?;
        let (is_short, depends) = (bits(1)?, bits(1)?);
        if depends == 1 {
            bits(14)?;
        }
        bits(1)?;
        // An extension that says that HE-AAC's upper half is in the packets.
        if bits(11) == Ok(0x2b7) && bits(5) == Ok(5) && bits(1) == Ok(1) {
            return Err(HeadProblem::Unsupported(HE_AAC));
        }
        if !RATES.contains(&rate) || is_short == 1 {
            return Err(HeadProblem::Unsupported("AAC of a rate or a length of packets that is not common"));
        }
        if !(1..=2).contains(&channels) {
            return Err(HeadProblem::Unsupported(CHANNELS));
        }
        Ok(Self { rate, channels: u16::try_from(channels).expect("1 or 2") })
    }
}

/// Returns whether a packet may hold what HE-AAC adds to AAC-LC, which heads need not tell: an element of that kind comes last, before
/// the end. In packets of AAC-LC a few bits in a thousand look like it.
pub(crate) fn may_be_he_aac(packet: &[u8]) -> bool {
    let all = 8 * packet.len();
    let bits = |at: usize, count: usize| (at..at + count).try_fold(0, |n, bit| Some(n << 1 | bit_at(packet, bit)?));
    (0..all).any(|at| {
        let Some(0b110) = bits(at, 3) else { return false };
        let (Some(short), Some(long)) = (bits(at + 3, 4), bits(at + 7, 8).or(Some(0))) else { return false };
        let (start, bytes) = if short == 15 { (at + 15, 14 + long) } else { (at + 7, short) };
        let end = start + 8 * bytes as usize;
        bytes > 0 && matches!(bits(start, 4), Some(13 | 14)) && bits(end, 3) == Some(7) && all - (end + 3) < 8
    })
}

fn bit_at(bytes: &[u8], bit: usize) -> Option<u32> {
    bytes.get(bit / 8).map(|byte| u32::from(byte >> (7 - bit % 8) & 1))
}
