//! What an index stores of a video whose tables lie between its packets: it need not be passed over again.

use super::{
    Video, VideoTable, VideoTrack, encode_video_table,
    excerpt::{append_part, read_track, take_part, track_bytes},
    packet::MAX_PACKETS,
};
use crate::MediaError;

/// The first bytes of what is stored. No table of a sound begins so.
const MAGIC: [u8; 2] = [0, 1];

/// What is known of a video, without the bytes of its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVideo<'b> {
    /// What the head of the file says.
    pub track: VideoTrack,
    /// Where its packets lie, as [`VideoTable`] reads it.
    pub table: &'b [u8],
}

impl<'b> StoredVideo<'b> {
    /// Reads what [`encode_stored_video`] has made.
    ///
    /// # Errors
    /// If the bytes are not that, there are more than 16,777,216 packets, or a block of the table is not valid.
    pub fn read(bytes: &'b [u8]) -> Result<Self, MediaError> {
        let damaged = MediaError::Malformed { byte: 0, problem: "what is stored of a video is not valid" };
        let mut rest = bytes.strip_prefix(&MAGIC).ok_or(damaged.clone())?;
        let track = take_part(&mut rest).and_then(read_track).ok_or(damaged.clone())?.0;
        let table = VideoTable::read(rest)?;
        if table.packets() > MAX_PACKETS as u64 || table.place(0..table.blocks()).end != rest.len() as u64 {
            return Err(damaged);
        }
        // One by one, as few bytes may be many packets.
        for block in 0..table.blocks() {
            let place = table.place(block..block + 1);
            let [from, to] = [place.start, place.end].map(|byte| usize::try_from(byte).unwrap_or(usize::MAX));
            table.read_blocks(block..block + 1, rest.get(from..to).ok_or_else(|| damaged.clone())?)?;
        }
        Ok(Self { track, table: rest })
    }
}

/// Returns what an index stores of a video: its track and the table of its packets, in 3 to 5 bytes for each packet.
///
/// # Errors
/// As [`encode_video_table`].
pub fn encode_stored_video(video: &Video) -> Result<Vec<u8>, MediaError> {
    let mut bytes = MAGIC.to_vec();
    append_part(&mut bytes, &track_bytes(video));
    bytes.extend(encode_video_table(&video.packets)?);
    Ok(bytes)
}
