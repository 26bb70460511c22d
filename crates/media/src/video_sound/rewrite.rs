//! Packets of sound in containers of sounds, as the readers of this crate take them.

use crate::{
    MediaError, PcmSample,
    packets::{AacForm, OggPageWriter, OpusForm, VorbisBlocks, opus_frames},
};

/// The bytes of a WAV file behind its length and before its samples.
const WAV_HEAD_BYTES: u32 = 36;

/// Samples as a video has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredPcm {
    pub(super) sample: PcmSample,
    pub(super) rate: u32,
    pub(super) channels: u16,
    /// Whether the first byte of a sample is the highest.
    pub(super) is_big_endian: bool,
    /// Whether a sample of one byte has a sign, which it has not in WAV.
    pub(super) is_signed_byte: bool,
}

fn damaged(problem: &'static str) -> MediaError {
    MediaError::Malformed { byte: 0, problem }
}

/// Returns packets of AAC as a file of ADTS.
pub(super) fn adts<'p>(form: AacForm, packets: impl Iterator<Item = &'p [u8]>) -> Result<Vec<u8>, MediaError> {
    let mut file = Vec::new();
    for packet in packets {
        let head = form.adts_head(packet.len()).ok_or_else(|| damaged("a packet of AAC has more than 8 KiB"))?;
        file.extend(head);
        file.extend_from_slice(packet);
    }
    Ok(file)
}

/// Returns packets of Opus as a file of Ogg; `head` is what the first packet of one is.
pub(super) fn opus<'p>(head: &[u8], packets: impl Iterator<Item = &'p [u8]>) -> Vec<u8> {
    let mut pages = OggPageWriter::default();
    pages.write(head, 0);
    pages.write(b"OpusTags\0\0\0\0\0\0\0\0", 0);
    let mut frames = 0;
    for packet in packets {
        // A reader passes packets that are not valid, too.
        frames += u64::from(opus_frames(packet).unwrap_or_default());
        pages.write(packet, frames);
    }
    pages.finish()
}

/// Returns packets of Vorbis as a file of Ogg. Also returns how many packets come before the first of which frames are decoded.
pub(super) fn vorbis<'p>(
    headers: [&[u8]; 3],
    packets: impl Iterator<Item = &'p [u8]>,
) -> Result<(Vec<u8>, usize), MediaError> {
    let [first, _, third] = headers;
    let mut blocks = VorbisBlocks::read(first, &mut third.to_vec()).map_err(damaged)?;
    let mut pages = OggPageWriter::default();
    headers.iter().for_each(|header| pages.write(header, 0));
    let (mut frames, mut silent) = (0, None);
    for (nth, packet) in packets.enumerate() {
        frames += u64::from(blocks.frames(packet).map_err(damaged)?.unwrap_or_default());
        pages.write(packet, frames);
        silent = silent.or((frames > 0).then_some(nth));
    }
    Ok((pages.finish(), silent.unwrap_or_default()))
}

/// Returns packets end to end behind a head, as a file of FLAC has them behind its marker and its metadata.
pub(super) fn joined<'p>(head: &[u8], packets: impl Iterator<Item = &'p [u8]>) -> Vec<u8> {
    let mut file = head.to_vec();
    packets.for_each(|packet| file.extend_from_slice(packet));
    file
}

/// Returns samples as a WAV file.
pub(super) fn wav(form: StoredPcm, mut samples: Vec<u8>) -> Result<Vec<u8>, MediaError> {
    let StoredPcm { sample, rate, channels, .. } = form;
    let width = sample.bytes();
    if form.is_big_endian {
        samples.chunks_exact_mut(width as usize).for_each(<[u8]>::reverse);
    }
    if form.is_signed_byte && sample == PcmSample::U8 {
        samples.iter_mut().for_each(|byte| *byte ^= 0x80);
    }
    let tag: u16 = match sample {
        PcmSample::U8 | PcmSample::I16 | PcmSample::I24 | PcmSample::I32 => 1,
        PcmSample::F32 | PcmSample::F64 => 3,
        PcmSample::ALaw => 6,
        PcmSample::MuLaw => 7,
    };
    let unsupported = || MediaError::Unsupported { what: "samples of more than 4 GiB in a video".to_owned() };
    let bytes = u32::try_from(samples.len()).ok().filter(|bytes| *bytes < u32::MAX - WAV_HEAD_BYTES);
    let bytes = bytes.ok_or_else(unsupported)?;
    let frame_bytes = u16::try_from(u32::from(channels) * width).map_err(|_| unsupported())?;
    let bits = u16::try_from(8 * width).expect("at most 64");
    let mut file = Vec::with_capacity(samples.len() + 8 + WAV_HEAD_BYTES as usize);
    file.extend_from_slice(b"RIFF");
    file.extend((WAV_HEAD_BYTES + bytes).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt \x10\0\0\0");
    file.extend([tag, channels].map(u16::to_le_bytes).as_flattened());
    file.extend([rate, rate.saturating_mul(frame_bytes.into())].map(u32::to_le_bytes).as_flattened());
    file.extend([frame_bytes, bits].map(u16::to_le_bytes).as_flattened());
    file.extend_from_slice(b"data");
    file.extend(bytes.to_le_bytes());
    file.append(&mut samples);
    Ok(file)
}

/// Returns the frames before the sound that a decoder of Opus needs.
pub(super) fn opus_pre_skip(head: &[u8]) -> Result<u64, MediaError> {
    let form = OpusForm::read(head).map_err(|problem| problem.error(0, "the head of Opus is not valid"))?;
    Ok(form.pre_skip.into())
}
