//! The decoder of Opus of `opus-pure`, and the streams of sounds of several channels.
//!
//! Six decoders in Rust were compared with libopus 1.3.1, 1.4 and 1.6.1, by 827 files: speech and music in all modes, 6 to 192 kbit/s, packets
//! of 2.5 to 120 ms, mono and stereo, and the 220 of two games in Debian. `opus-pure` 0.2.2 is within 4e-5 for 822 of them, and 1e-6 for 772; it
//! takes about half of libsndfile's CPU time, has no dependencies, and returned from 92,000 packets that were changed at random without a
//! panic. Its `unsafe` code is in vector instructions, and as these round differently, the last bits (5e-7) depend on the processor. The five others are
//! loud music in modes for speech: the limit of a reflection coefficient, `A_LIMIT` in its `silk/lpc_analysis.rs`, is 1.3e-6 too high.
//!
//! `ruopus` 0.1.2 is within 2e-5, but takes 6 to 200 times as long without `rustfft`. `opus-decoder` 0.1.1, `opus-rs` 0.1.40, `rusty-opus` 1.0.2
//! and `ropus` 0.12.18 differ by more than 1e-4 in a fifth of the files.

use opus_pure::OpusDecoder;

use super::PacketFault;
use crate::packets::{DelimitedPacket, OpusForm, opus_frames};

/// Decoders of all streams of a sound.
pub(super) struct OpusStreams {
    form: OpusForm,
    decoders: Vec<OpusDecoder>,
    /// A packet as it is alone, and its samples.
    packet: Vec<u8>,
    decoded: Vec<f32>,
}

impl OpusStreams {
    pub(super) fn new(form: OpusForm) -> Result<Self, PacketFault> {
        let new = |stream| {
            let channels = if stream < form.coupled { 2 } else { 1 };
            let mut decoder = OpusDecoder::new(48_000, channels).map_err(|_| "the decoder failed at the head")?;
            decoder.gain_q8 = form.gain.into();
            Ok(decoder)
        };
        let decoders = (0..form.streams).map(new).collect::<Result<_, PacketFault>>()?;
        Ok(Self { form, decoders, packet: Vec::new(), decoded: Vec::new() })
    }

    /// Decodes a packet: the samples of a frame lie side by side.
    pub(super) fn decode(&mut self, packet: &[u8], samples: &mut Vec<f32>) -> Result<(), PacketFault> {
        let frames = opus_frames(packet).ok_or("the packet has no valid head")?;
        let frames = usize::try_from(frames).unwrap_or_default();
        let Self { form, decoders, packet: alone, decoded } = self;
        let channels = usize::from(form.channels);
        samples.clear();
        samples.resize(frames * channels, 0.0);
        let mut rest = packet;
        let (last, mut first_place) = (decoders.len() - 1, 0);
        for (nth, decoder) in decoders.iter_mut().enumerate() {
            let of_stream = if nth == last {
                rest
            } else {
                let delimited = DelimitedPacket::read(rest).ok_or("a stream of the packet ends too early")?;
                alone.clear();
                delimited.parts.iter().for_each(|part| alone.extend_from_slice(part));
                rest = delimited.rest;
                &alone[..]
            };
            let width = decoder.channels();
            // Nothing is written where a packet is shorter than it says, which is an error.
            decoded.clear();
            decoded.resize(frames * width, 0.0);
            if of_stream.is_empty()
                || !matches!(decoder.decode(of_stream, frames, decoded), Ok(count) if count == frames)
            {
                return Err("the packet cannot be decoded");
            }
            for (channel, place) in form.places[..channels].iter().enumerate() {
                let Some(within) = usize::from(*place).checked_sub(first_place).filter(|within| *within < width) else {
                    continue;
                };
                let written = samples[channel..].iter_mut().step_by(channels);
                written.zip(decoded[within..].iter().step_by(width)).for_each(|(to, from)| *to = *from);
            }
            first_place += width;
        }
        Ok(())
    }
}
