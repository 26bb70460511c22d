//! Sound and video files: what their heads say, the samples of sounds, and where the packets of videos lie. PCM and FLAC are
//! decoded here; both are exact, so a decoder has no choices to make. Sounds of other codecs are read here too, and others' code
//! decodes their packets. Pictures of videos are not decoded here.
//!
//! - [`HeadReader`] reads the head of a sound file that lies elsewhere: it asks for a range of bytes, takes them, and in the end
//!   returns a [`Track`].
//! - [`Sound`] is a sound file in memory. It decodes a range of its frames, and reads no more of the file than that takes.
//! - [`encode_sound_table`] keeps where the packets of a long sound lie. A [`SoundTable`] says which bytes of the file a segment takes, of
//!   which [`encode_sound_excerpt`] makes what [`Sound`] opens in place of the file.
//! - [`VideoReader`] reads MP4, MOV, Matroska and WebM in the same way, and returns a [`Video`]: what a decoder has to know, and
//!   where each packet lies, when it is decoded and shown, and whether decoding can begin there.
//! - [`encode_video_table`] keeps these packets in some 2 to 4 bytes each, in blocks. A [`VideoTable`] says which block has a frame, by
//!   its number or its time, and [`VideoBlocks`] which packets decoding it takes.
//! - [`sound_begin_nanos`] says when the sound of a video file in memory is heard, which [`Sound`] opens.
//! - [`Still`] says of an AVIF or HEIC file how its picture is coded, and where.
//! - [`OpenVideo`] is a video file in memory, or an excerpt with the packets that some frames need ([`encode_video_excerpt`]).
//!
//! A *frame* of a sound is one sample of each channel, as `libsndfile` has it. A unit of the FLAC format, which that calls a frame, is
//! a *packet* here. A frame of a video is a picture that is shown.
//!
//! Files are untrusted: a damaged one is a [`MediaError`]. The memory in use is at most some megabytes beside the file, whatever
//! its head says; of videos it is 40 bytes for each packet, too.

#![forbid(unsafe_code)]

mod aiff;
mod au;
mod caf;
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
mod sound_table;
mod still;
mod track;
mod video;
mod video_sound;
mod wav;
mod write;

pub use error::MediaError;
pub use head::HeadReader;
pub use mix::ChannelMix;
pub use sound::{Sound, SoundScratch};
pub use sound_table::{SoundSegment, SoundTable, encode_pcm_table, encode_sound_excerpt, encode_sound_table};
pub use still::{Still, StillMirror, StillTile};
pub use track::{FlacStream, PcmSample, SoundCodec, SoundContainer, Track};
pub use video::{
    OpenVideo, StoredVideo, Video, VideoBlocks, VideoBytes, VideoCodec, VideoColor, VideoPacket, VideoReader,
    VideoRotation, VideoTable, VideoTrack, encode_stored_video, encode_video_excerpt, encode_video_table, is_reference,
    is_whole_key,
};
pub use video_sound::sound_begin_nanos;
pub use write::{SampleForm, SampleWriter};
