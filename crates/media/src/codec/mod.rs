//! Decoders of packets, each of another project.

mod opus;
mod symphonia;

use std::panic::{AssertUnwindSafe, catch_unwind};

use self::{opus::OpusStreams, symphonia::SymphoniaDecoder};
use crate::packets::CodecSetup;

/// Decodes the packets of one sound.
pub(crate) struct PacketDecoder {
    decoder: CodecDecoder,
    /// Whether it has panicked, and cannot be used any more.
    is_broken: bool,
}

enum CodecDecoder {
    Symphonia(SymphoniaDecoder),
    Opus(OpusStreams),
}

/// Why a packet cannot be decoded.
pub(crate) type PacketFault = &'static str;

impl PacketDecoder {
    /// Makes a decoder that begins at any packet.
    pub(crate) fn new(setup: &CodecSetup) -> Result<Self, PacketFault> {
        let made = catch_unwind(|| match setup {
            CodecSetup::Mp3 => SymphoniaDecoder::mp3().map(CodecDecoder::Symphonia),
            CodecSetup::Vorbis(headers) => SymphoniaDecoder::vorbis(headers).map(CodecDecoder::Symphonia),
            CodecSetup::Aac(form) => SymphoniaDecoder::aac(*form).map(CodecDecoder::Symphonia),
            CodecSetup::Opus(form) => OpusStreams::new(*form).map(CodecDecoder::Opus),
        });
        made.unwrap_or(Err("the decoder failed at the head")).map(|decoder| Self { decoder, is_broken: false })
    }

    /// Decodes a packet: the samples of a frame lie side by side.
    pub(crate) fn decode(&mut self, packet: &[u8], samples: &mut Vec<f32>) -> Result<(), PacketFault> {
        samples.clear();
        if self.is_broken {
            return Err("the packet comes after one that the decoder failed at");
        }
        // The decoders are others' code, which damaged packets may lead to a panic.
        let decoded = catch_unwind(AssertUnwindSafe(|| match &mut self.decoder {
            CodecDecoder::Symphonia(decoder) => decoder.decode(packet, samples),
            CodecDecoder::Opus(streams) => streams.decode(packet, samples),
        }));
        decoded.unwrap_or_else(|_| {
            self.is_broken = true;
            Err("the decoder failed at this packet")
        })
    }
}
