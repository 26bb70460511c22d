//! The description of a track of sound in MP4 and MOV (ISO/IEC 14496-12, 12.2.3, and Apple's QuickTime File Format).

use super::form::PlacedForm;
use crate::{
    PcmSample,
    mp4::boxes::{boxes, find, number},
    track::whole_hertz,
};

/// The bytes of a description before its boxes: of version 0, of QuickTime's version 1, and of its version 2.
const DESCRIPTION_BYTES: [usize; 3] = [28, 28 + 16, 28 + 36];

/// What a track says of its samples.
pub(super) struct SoundDescription<'b> {
    pub(super) kind: [u8; 4],
    entry: &'b [u8],
    version: usize,
    /// The boxes in it.
    pub(super) inner: &'b [u8],
}

impl<'b> SoundDescription<'b> {
    /// Reads the first description in the tables of a track.
    pub(super) fn read(stbl: &'b [u8]) -> Option<Self> {
        let (kind, entry) = boxes(find(stbl, &[b"stsd"])?.get(8..)?).next()?;
        let version = usize::from(u16::from_be_bytes(*entry.get(8..)?.first_chunk()?));
        let inner = entry.get(*DESCRIPTION_BYTES.get(version).unwrap_or(&DESCRIPTION_BYTES[0])..)?;
        Some(Self { kind, entry, version, inner })
    }

    fn short(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*self.entry.get(at..)?.first_chunk()?))
    }

    fn rate(&self) -> Option<u32> {
        Some(number(self.entry, 24)? >> 16)
    }

    /// Returns the form of MP3.
    pub(super) fn mp3(&self) -> Option<PlacedForm<'b>> {
        Some(PlacedForm::Mp3 { rate: self.rate()?, channels: self.short(16)? })
    }

    /// Returns the form of samples that are not coded; `None` if they are, or of an unknown form.
    pub(super) fn pcm(&self) -> Option<PlacedForm<'b>> {
        use PcmSample::{ALaw, I8, I16, I16Be, MuLaw, U8};

        let (mut channels, mut rate) = (self.short(16)?, self.rate()?);
        let bits = self.short(18)?;
        // QuickTime turns the bytes around where this box says so.
        let is_big_endian = !find(self.inner, &[b"wave", b"enda"]).is_some_and(|content| content.ends_with(&[1]));
        let sample = match (&self.kind, bits) {
            (b"twos" | b"sowt", 8) => I8,
            (b"raw ", 8) => U8,
            (b"twos", 16) => I16Be,
            (b"sowt", 16) => I16,
            (b"in24", _) => PcmSample::whole(3, is_big_endian)?,
            (b"in32", _) => PcmSample::whole(4, is_big_endian)?,
            (b"fl32", _) => PcmSample::float(4, is_big_endian)?,
            (b"fl64", _) => PcmSample::float(8, is_big_endian)?,
            (b"ulaw", _) => MuLaw,
            (b"alaw", _) => ALaw,
            (b"ipcm" | b"fpcm", _) => {
                let [_, _, _, _, flags, bits] = *find(self.inner, &[b"pcmC"])? else { return None };
                sample_of(u32::from(bits), &self.kind == b"fpcm", flags & 1 == 0)?
            }
            (b"lpcm", _) if self.version == 2 => {
                let exact =
                    f64::from_bits(u64::from(number(self.entry, 32)?) << 32 | u64::from(number(self.entry, 36)?));
                (rate, channels) = (whole_hertz(exact), u16::try_from(number(self.entry, 40)?).ok()?);
                let (bits, flags) = (number(self.entry, 48)?, number(self.entry, 52)?);
                // Whole numbers of one byte have a sign where the flag 4 says so.
                if (bits, flags & 5) == (8, 0) { U8 } else { sample_of(bits, flags & 1 == 1, flags & 2 == 2)? }
            }
            _ => return None,
        };
        (channels > 0 && rate > 0).then_some(PlacedForm::Pcm { sample, rate, channels })
    }
}

fn sample_of(bits: u32, is_float: bool, is_big_endian: bool) -> Option<PcmSample> {
    let bytes = bits.is_multiple_of(8).then_some(bits / 8)?;
    if is_float { PcmSample::float(bytes, is_big_endian) } else { PcmSample::whole(bytes, is_big_endian) }
}
