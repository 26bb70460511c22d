//! What a decoder of packets has to know before the first one.

use super::{aac::AacForm, opus::OpusForm};

/// What a decoder has to know.
#[derive(Clone, Debug)]
pub(crate) enum CodecSetup {
    /// MP3.
    Mp3,
    /// Vorbis: the first packet of the stream and the third one, end to end.
    Vorbis(Vec<u8>),
    /// AAC-LC.
    Aac(AacForm),
    /// Opus.
    Opus(OpusForm),
}
