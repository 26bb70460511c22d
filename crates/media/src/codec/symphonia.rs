//! The decoders of Symphonia: MP3, Vorbis and AAC.

use symphonia_bundle_mp3::MpaDecoder;
use symphonia_codec_aac::AacDecoder;
use symphonia_codec_vorbis::VorbisDecoder;
use symphonia_core::{
    audio::{Audio, GenericAudioBufferRef, layouts},
    codecs::audio::{
        AudioCodecParameters, AudioDecoder, AudioDecoderOptions,
        well_known::{CODEC_ID_AAC, CODEC_ID_MP3, CODEC_ID_VORBIS},
    },
    errors::Error,
    packet::PacketRef,
    units::{Duration, Timestamp},
};

use super::PacketFault;
use crate::packets::AacForm;

/// A decoder of Symphonia.
pub(super) struct SymphoniaDecoder {
    decoder: Box<dyn AudioDecoder>,
    /// Where it puts each channel of the file; empty if they have the file's order.
    places: &'static [usize],
}

impl SymphoniaDecoder {
    pub(super) fn mp3() -> Result<Self, PacketFault> {
        let parameters = AudioCodecParameters { codec: CODEC_ID_MP3, ..AudioCodecParameters::default() };
        let options = AudioDecoderOptions::default().gapless(false);
        let decoder = MpaDecoder::try_new(&parameters, &options).map_err(fault)?;
        Ok(Self { decoder: Box::new(decoder), places: &[] })
    }

    pub(super) fn aac(form: AacForm) -> Result<Self, PacketFault> {
        let mut parameters = AudioCodecParameters { codec: CODEC_ID_AAC, ..AudioCodecParameters::default() };
        let channels = if form.channels == 1 { layouts::CHANNEL_LAYOUT_MONO } else { layouts::CHANNEL_LAYOUT_STEREO };
        parameters.with_sample_rate(form.rate).with_channels(channels);
        let options = AudioDecoderOptions::default().gapless(false);
        let decoder = AacDecoder::try_new(&parameters, &options).map_err(fault)?;
        Ok(Self { decoder: Box::new(decoder), places: &[] })
    }

    /// `headers` are the first packet of the stream and the third one, end to end.
    pub(super) fn vorbis(headers: &[u8]) -> Result<Self, PacketFault> {
        let mut parameters = AudioCodecParameters { codec: CODEC_ID_VORBIS, ..AudioCodecParameters::default() };
        parameters.with_extra_data(headers.into());
        // The first packet has no frames then.
        let options = AudioDecoderOptions::default().gapless(true);
        let decoder = VorbisDecoder::try_new(&parameters, &options).map_err(fault)?;
        let channels = headers.get(11).copied().unwrap_or_default();
        Ok(Self { decoder: Box::new(decoder), places: vorbis_places(channels) })
    }

    /// Decodes a packet: the samples of a frame lie side by side.
    pub(super) fn decode(&mut self, packet: &[u8], samples: &mut Vec<f32>) -> Result<(), PacketFault> {
        let packet = PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, packet);
        match self.decoder.decode_ref(&packet) {
            Ok(GenericAudioBufferRef::F32(decoded)) => decoded.copy_to_vec_interleaved(samples),
            Ok(_) => return Err("the packet has samples of an unknown kind"),
            Err(error) => return Err(fault(error)),
        }
        if !self.places.is_empty() {
            for frame in samples.chunks_exact_mut(self.places.len()) {
                let mut placed = [0.0; 8];
                placed[..frame.len()].copy_from_slice(frame);
                for (sample, place) in frame.iter_mut().zip(self.places) {
                    *sample = placed[*place];
                }
            }
        }
        Ok(())
    }
}

/// Returns where the decoder puts the channels of Vorbis, which has the centre second and the low frequencies last.
const fn vorbis_places(channels: u8) -> &'static [usize] {
    match channels {
        3 => &[0, 2, 1],
        5 => &[0, 2, 1, 3, 4],
        6 => &[0, 2, 1, 4, 5, 3],
        7 => &[0, 2, 1, 5, 6, 4, 3],
        8 => &[0, 2, 1, 6, 7, 4, 5, 3],
        _ => &[],
    }
}

/// Returns what is wrong in words of ours: those of an error name functions.
fn fault(error: Error) -> PacketFault {
    match error {
        Error::IoError(_) => "the packet ends too early",
        Error::Unsupported(_) => "the packet has something that is not supported",
        _ => "the packet cannot be decoded",
    }
}
