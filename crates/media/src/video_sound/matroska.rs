//! The sound of Matroska and WebM.

use std::borrow::Cow;

use super::{
    NANOS_PER_SECOND, VideoSound,
    rewrite::{self, StoredPcm},
};
use crate::{
    MediaError, PcmSample,
    matroska::{SoundBlocks, SoundEntry},
    packets::{AacForm, OPUS_RATE},
};

/// Reads the blocks of a file.
pub(super) fn open(file: &[u8]) -> Result<VideoSound<'_>, MediaError> {
    let blocks = SoundBlocks::read(file)?;
    let entry = &blocks.entry;
    let packets = blocks.packets.iter().map(|packet| &packet.bytes[..]);
    let unsupported = |what: &str| MediaError::Unsupported { what: what.to_owned() };
    let invalid = |problem| MediaError::Malformed { byte: 0, problem };
    // The first packet that frames are decoded of, and how many of these come before the sound.
    let (mut first, mut before) = (0, 0);
    let codec = entry.codec.split(|byte| *byte == 0).next().unwrap_or_default();
    let written = match codec {
        b"A_OPUS" => {
            before = rewrite::opus_pre_skip(entry.private)?.saturating_mul(NANOS_PER_SECOND) / u64::from(OPUS_RATE);
            rewrite::opus(entry.private, packets)
        }
        b"A_VORBIS" => {
            let headers = vorbis_headers(entry.private).ok_or_else(|| invalid("the head of Vorbis is not valid"))?;
            let (written, silent) = rewrite::vorbis(headers, packets)?;
            first = silent;
            written
        }
        b"A_AAC" => {
            let form = AacForm::read(entry.private);
            let form = form.map_err(|problem| problem.error(0, "the head of the sound is not valid"))?;
            rewrite::adts(form, packets)?
        }
        b"A_MPEG/L3" => rewrite::joined(&[], packets),
        b"A_FLAC" => rewrite::joined(entry.private, packets),
        b"A_PCM/INT/LIT" | b"A_PCM/INT/BIG" | b"A_PCM/FLOAT/IEEE" => {
            let form = pcm(codec, entry).ok_or_else(|| unsupported("samples of an unknown form in Matroska"))?;
            rewrite::wav(form, rewrite::joined(&[], packets))?
        }
        codec => return Err(unsupported(&format!("sound of the codec {} in Matroska", codec.escape_ascii()))),
    };
    let time = blocks.packets.get(first).or(blocks.packets.first()).map_or(0, |packet| packet.nanos);
    // Times count from what a decoder makes first.
    let begin = i128::from(time) - i128::from(entry.delay_nanos) + i128::from(before);
    let begin_nanos = i64::try_from(begin).map_err(|_| invalid("the times of the sound are too large"))?;
    Ok(VideoSound { file: Cow::Owned(written), begin_nanos })
}

fn pcm(codec: &[u8], entry: &SoundEntry<'_>) -> Option<StoredPcm> {
    let sample = match (codec, entry.bits) {
        (b"A_PCM/FLOAT/IEEE", 32) => PcmSample::F32,
        (b"A_PCM/FLOAT/IEEE", 64) => PcmSample::F64,
        (b"A_PCM/FLOAT/IEEE", _) => return None,
        (_, 8) => PcmSample::U8,
        (_, 16) => PcmSample::I16,
        (_, 24) => PcmSample::I24,
        (_, 32) => PcmSample::I32,
        _ => return None,
    };
    let is_big_endian = codec == b"A_PCM/INT/BIG";
    Some(StoredPcm { sample, rate: entry.rate, channels: entry.channels, is_big_endian, is_signed_byte: false })
}

/// Returns the three packets before those of sound: their number less 1, the lengths of the first two, and the packets.
fn vorbis_headers(private: &[u8]) -> Option<[&[u8]; 3]> {
    let [2, rest @ ..] = private else { return None };
    let mut at = 0;
    let mut length = || {
        let full = rest.get(at..)?.iter().take_while(|byte| **byte == 255).count();
        let last = *rest.get(at + full)?;
        at += full + 1;
        Some(255 * full + usize::from(last))
    };
    let (first, second) = (length()?, length()?);
    let (first, rest) = rest.get(at..)?.split_at_checked(first)?;
    let (second, third) = rest.split_at_checked(second)?;
    Some([first, second, third])
}
