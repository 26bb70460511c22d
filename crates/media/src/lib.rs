//! Sound files: what their heads say, and their samples. WAV and FLAC are decoded here; both are exact, so a decoder has
//! no choices to make. Files of other codecs are read here too, and others' code decodes their packets.
//!
//! - [`HeadReader`] reads the head of a file that lies elsewhere: it asks for a range of bytes, takes them, and in the end
//!   returns a [`Track`].
//! - [`Sound`] is a file in memory. It decodes a range of its frames, and reads no more of the file than that takes.
//!
//! A *frame* is one sample of each channel, as `libsndfile` has it. A unit of the FLAC format, which that calls a frame, is
//! a *packet* here.
//!
//! Files are untrusted: a damaged one is a [`MediaError`], and the memory in use is at most some megabytes beside the file,
//! whatever its head says.

#![forbid(unsafe_code)]

mod checksum;
mod codec;
mod error;
mod flac;
mod head;
mod input;
mod matroska;
mod mix;
mod mp4;
mod packets;
mod pcm;
mod sound;
mod track;
mod video;
mod wav;
mod write;

pub use error::MediaError;
pub use head::HeadReader;
pub use mix::ChannelMix;
pub use sound::{Sound, SoundScratch};
pub use track::{FlacStream, PcmSample, SoundCodec, Track};
pub use video::{
    Video, VideoBlocks, VideoCodec, VideoColor, VideoPacket, VideoReader, VideoRotation, VideoTable, VideoTrack,
    encode_video_table, is_reference,
};
pub use write::{SampleForm, SampleWriter};
