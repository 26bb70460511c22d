//! The sound of MP4 and MOV.

use std::borrow::Cow;

use super::{
    VideoSound,
    rewrite::{self, StoredPcm},
};
use crate::{
    MediaError, PcmSample,
    mp4::{
        boxes::{boxes, find, number},
        decoder_config, movie,
    },
    packets::{Mp4Sound, Mp4SoundPackets, sound_track},
    track::whole_hertz,
};

/// The bytes of a description before its boxes: of version 0, of QuickTime's version 1, and of its version 2.
const DESCRIPTION_BYTES: [usize; 3] = [28, 28 + 16, 28 + 36];
/// The kinds of MP3 among those of a decoder's configuration.
const MP3: [u8; 2] = [0x69, 0x6b];

/// What a track says of its samples.
struct SoundDescription<'b> {
    kind: [u8; 4],
    entry: &'b [u8],
    version: usize,
    /// The boxes in it.
    inner: &'b [u8],
}

/// Reads the tables of a file.
pub(super) fn open(file: &[u8]) -> Result<VideoSound<'_>, MediaError> {
    let (moov, byte) = movie(file)?;
    let track = sound_track(moov).ok_or(MediaError::NoSound)?;
    let damaged = |problem| MediaError::Malformed { byte, problem };
    let described = SoundDescription::read(track).ok_or_else(|| damaged("a track has no description"))?;
    let head = match &described.kind {
        b"fLaC" => Some(described.flac_head().ok_or_else(|| damaged("the head of FLAC is not valid"))?),
        b".mp3" => Some(Vec::new()),
        b"mp4a" if described.is_mp3() => Some(Vec::new()),
        _ => None,
    };
    let pcm = described.pcm();
    if head.is_none() && pcm.is_none() {
        // Others are read where they lie, or not at all.
        let begin_nanos = Mp4Sound::read(moov, file, byte)?.begin_nanos;
        return Ok(VideoSound { file: Cow::Borrowed(file), begin_nanos });
    }
    let packets = Mp4SoundPackets::read(moov, track, file, byte)?;
    // All packets are there.
    let begin_nanos = packets.begin_nanos.saturating_sub(packets.unheard_nanos);
    let written = match (head, pcm) {
        (Some(head), _) => [head, packets.bytes()?].concat(),
        (None, Some(form)) => {
            let frame_bytes = usize::from(form.channels) * form.sample.bytes() as usize;
            let samples = packets.bytes()?;
            if !samples.len().is_multiple_of(frame_bytes) {
                return Err(MediaError::Unsupported { what: "samples of an unknown form in MP4".to_owned() });
            }
            rewrite::wav(form, samples)?
        }
        (None, None) => unreachable!("one of them is there"),
    };
    Ok(VideoSound { file: Cow::Owned(written), begin_nanos })
}

impl<'b> SoundDescription<'b> {
    fn read(track: &'b [u8]) -> Option<Self> {
        let descriptions = find(track, &[b"mdia", b"minf", b"stbl", b"stsd"])?.get(8..)?;
        let (kind, entry) = boxes(descriptions).next()?;
        let version = usize::from(u16::from_be_bytes(*entry.get(8..)?.first_chunk()?));
        let inner = entry.get(*DESCRIPTION_BYTES.get(version).unwrap_or(&DESCRIPTION_BYTES[0])..)?;
        Some(Self { kind, entry, version, inner })
    }

    /// Returns the marker of FLAC and its metadata.
    fn flac_head(&self) -> Option<Vec<u8>> {
        Some([b"fLaC", find(self.inner, &[b"dfLa"])?.get(4..)?].concat())
    }

    fn is_mp3(&self) -> bool {
        let esds = find(self.inner, &[b"esds"]).or_else(|| find(self.inner, &[b"wave", b"esds"]));
        let config = esds.and_then(|esds| decoder_config(esds.get(4..)?));
        config.is_some_and(|(kind, _)| MP3.contains(&kind))
    }

    fn short(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*self.entry.get(at..)?.first_chunk()?))
    }

    /// Returns the form of samples that are not coded; `None` if they are, or of an unknown form.
    fn pcm(&self) -> Option<StoredPcm> {
        use PcmSample::{ALaw, F32, F64, I16, I24, I32, MuLaw, U8};

        let (mut channels, mut rate) = (self.short(16)?, number(self.entry, 24)? >> 16);
        let bits = self.short(18)?;
        // QuickTime turns the bytes around where this box says so.
        let is_turned = find(self.inner, &[b"wave", b"enda"]).is_some_and(|content| content.ends_with(&[1]));
        let (sample, is_big_endian, is_signed_byte) = match (&self.kind, bits) {
            (b"twos" | b"sowt", 8) => (U8, false, true),
            (b"raw ", 8) => (U8, false, false),
            (b"twos", 16) => (I16, true, false),
            (b"sowt", 16) => (I16, false, false),
            (b"in24", _) => (I24, !is_turned, false),
            (b"in32", _) => (I32, !is_turned, false),
            (b"fl32", _) => (F32, !is_turned, false),
            (b"fl64", _) => (F64, !is_turned, false),
            (b"ulaw", _) => (MuLaw, false, false),
            (b"alaw", _) => (ALaw, false, false),
            (b"ipcm" | b"fpcm", _) => {
                let [_, _, _, _, flags, bits] = *find(self.inner, &[b"pcmC"])? else { return None };
                (sample_of(u32::from(bits), &self.kind == b"fpcm")?, flags & 1 == 0, false)
            }
            (b"lpcm", _) if self.version == 2 => {
                let exact =
                    f64::from_bits(u64::from(number(self.entry, 32)?) << 32 | u64::from(number(self.entry, 36)?));
                (rate, channels) = (whole_hertz(exact), u16::try_from(number(self.entry, 40)?).ok()?);
                let flags = number(self.entry, 52)?;
                (sample_of(number(self.entry, 48)?, flags & 1 == 1)?, flags & 2 == 2, flags & 4 == 4)
            }
            _ => return None,
        };
        (channels > 0 && rate > 0).then_some(StoredPcm { sample, rate, channels, is_big_endian, is_signed_byte })
    }
}

/// Returns the form of a sample of so many bits.
fn sample_of(bits: u32, is_float: bool) -> Option<PcmSample> {
    match (bits, is_float) {
        (8, false) => Some(PcmSample::U8),
        (16, false) => Some(PcmSample::I16),
        (24, false) => Some(PcmSample::I24),
        (32, false) => Some(PcmSample::I32),
        (32, true) => Some(PcmSample::F32),
        (64, true) => Some(PcmSample::F64),
        _ => None,
    }
}
