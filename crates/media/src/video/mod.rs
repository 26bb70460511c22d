//! Video files: what a track of pictures is, and where its packets lie.

mod block;
mod block_entry;
mod column;
mod excerpt;
mod packet;
mod reader;
mod reference;
mod stored;
mod table;
mod track;

pub use block::VideoBlocks;
pub(crate) use column::{decode_number, encode_number};
pub use excerpt::{OpenVideo, VideoBytes, encode_video_excerpt};
pub use packet::VideoPacket;
pub(crate) use packet::{MAX_PACKETS, MAX_TIME};
pub use reader::{Video, VideoReader};
pub(crate) use reference::is_key_picture;
pub use reference::{is_reference, is_whole_key};
pub use stored::{StoredVideo, encode_stored_video};
pub use table::{VideoTable, encode_video_table};
pub(crate) use track::ratio;
pub use track::{VideoCodec, VideoColor, VideoRotation, VideoTrack};
