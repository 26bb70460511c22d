//! Reads the tables of a video file from ranges of its bytes, in whatever way these are fetched.

use std::ops::Range;

use super::{VideoCodec, VideoPacket, VideoTrack};
use crate::{
    MediaError,
    input::{Cursor, Input},
    matroska::SegmentReader,
    mp4::MovieReader,
};

/// The bytes that formats are recognised by.
const FIRST_BYTES: u64 = 16;
/// The bytes that a request asks for where tables are in one place: those of most videos of some minutes.
const TABLE_REQUEST_BYTES: u64 = 1 << 18;
/// The bytes that a request asks for where heads lie between packets. Of longer packets or fragments, only the heads are asked for.
const PASS_REQUEST_BYTES: u64 = 1 << 20;
/// The bytes that a request for such a head asks for.
const HEAD_REQUEST_BYTES: u64 = 1 << 14;

/// A track of pictures, and its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Video {
    /// What the head says of it.
    pub track: VideoTrack,
    /// How many tracks of pictures the file has.
    pub tracks: usize,
    /// The packets, in the order in which they are decoded.
    pub packets: Vec<VideoPacket>,
}

/// Reads where the packets of a video lie: of MP4 and MOV with tables or fragments, and of Matroska and WebM.
/// [`wants`](Self::wants) is the range of bytes that it needs next, and [`read`](Self::read) takes them, until that returns a video.
///
/// - MP4 takes two or three ranges, wherever its tables lie: the beginning of the file, and the tables, the length of which
///   the beginning says.
/// - MP4 in fragments takes one range for each fragment, and one of 1 MiB for several fragments that are shorter.
/// - Matroska has its packets' heads between the packets. So a file takes one pass, in ranges of 1 MiB; packets that are longer
///   are left out. An index (`Cues`) does not shorten it, since it has key frames only.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = std::fs::read("clip.mp4")?;
/// let mut reader = spdl_media::VideoReader::new(file.len() as u64);
/// let video = loop {
///     let wanted = reader.wants();
///     if let Some(video) = reader.read(&file[wanted.start as usize..wanted.end as usize])? {
///         break video;
///     }
/// };
/// println!("{} of {} packets", video.track.codec, video.packets.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct VideoReader {
    format: VideoFormat,
    cursor: Cursor,
    nth: usize,
}

#[derive(Clone, Debug)]
enum VideoFormat {
    Unknown,
    Mp4(Box<MovieReader>),
    Matroska(Box<SegmentReader>),
}

impl VideoReader {
    /// Begins to read a file of `file_bytes` bytes, for its first track of pictures.
    #[must_use]
    pub const fn new(file_bytes: u64) -> Self {
        Self::with_track(file_bytes, 0)
    }

    /// Begins to read a file of `file_bytes` bytes, for the track of pictures of this number, from 0.
    #[must_use]
    pub const fn with_track(file_bytes: u64, nth: usize) -> Self {
        Self { format: VideoFormat::Unknown, cursor: Cursor::new(file_bytes, FIRST_BYTES), nth }
    }

    /// Returns the range of bytes that [`read`](Self::read) takes next. It lies in the file, and is empty only for an empty one.
    #[must_use]
    pub fn wants(&self) -> Range<u64> {
        self.cursor.wants(match self.is_pass() {
            false => TABLE_REQUEST_BYTES,
            true if self.cursor.skipped() >= PASS_REQUEST_BYTES => HEAD_REQUEST_BYTES,
            true => PASS_REQUEST_BYTES,
        })
    }

    /// Returns whether the tables lie between the packets, so that reading them passes over all of the file: in Matroska, and in
    /// fragments of MP4.
    #[must_use]
    pub fn is_pass(&self) -> bool {
        match &self.format {
            VideoFormat::Unknown => false,
            VideoFormat::Mp4(reader) => reader.is_in_fragments(),
            VideoFormat::Matroska(_) => true,
        }
    }

    /// Reads `bytes`, which begin at the first byte that is wanted, and returns the video once all of its tables were there.
    /// Otherwise, another range is wanted.
    ///
    /// # Errors
    /// If the file is of another format, has no such track, has what is not read, is cut off, or is damaged.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<Video>, MediaError> {
        let mut input = Input::new(&mut self.cursor, bytes);
        if matches!(self.format, VideoFormat::Unknown) {
            let most = input.file_bytes().min(FIRST_BYTES);
            let Some(begins) = input.peek(most, "its first bytes")? else { return Ok(None) };
            self.format = if MovieReader::recognise(begins) {
                VideoFormat::Mp4(Box::new(MovieReader::new(self.nth)))
            } else if SegmentReader::recognise(begins) {
                VideoFormat::Matroska(Box::new(SegmentReader::new(self.nth)))
            } else {
                return Err(MediaError::NotVideo { begins: begins.escape_ascii().to_string() });
            };
        }
        let mut video = match &mut self.format {
            VideoFormat::Unknown => None,
            VideoFormat::Mp4(reader) => reader.read(&mut input)?,
            VideoFormat::Matroska(reader) => reader.read(&mut input)?,
        };
        if let Some(video) = &mut video
            && matches!(video.track.codec, VideoCodec::Av1 | VideoCodec::Vp8 | VideoCodec::Vp9)
        {
            // A packet may have several pictures, and files of SVT-AV1 have the mark of the last one, while others refer to those before it.
            video.packets.iter_mut().for_each(|packet| packet.is_droppable = false);
        }
        Ok(video)
    }
}
