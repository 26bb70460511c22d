//! Videos of which a feed has read what columns take: their tables, and some of their packets.

use std::sync::Arc;

use bytes::Bytes;
use spdl_job::{FrameDrift, VideoClip};
use spdl_media::{Video, VideoBlocks, VideoTrack, encode_video_excerpt, is_whole_key};

/// A video of which some packets were read.
#[derive(Debug)]
pub(crate) struct ReadVideo {
    /// What the file says of it.
    pub(crate) track: Arc<VideoTrack>,
    /// Where its packets lie: of all, or of those near the frames that are taken.
    pub(crate) blocks: Arc<VideoBlocks>,
    /// The packets that were read: their places among those of the blocks, ascending, and their bytes.
    packets: Vec<(usize, Bytes)>,
}

/// Which frames of videos a column has.
#[derive(Debug)]
pub(crate) enum FrameChoice {
    /// Those of a clip of a video.
    Clip(VideoClip),
    /// Those that records of its series name.
    Series(Arc<WantedSeries>),
}

/// The frames of series that a column has, whose fields are frames of videos.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WantedSeries {
    /// Fields that they can come from; the first that exists is used.
    pub(crate) from: Vec<String>,
    /// The places in the series, counted from the sample's record.
    pub(crate) deltas: Vec<i32>,
    /// What becomes of frames that are not shown when they are due.
    pub(crate) drift: FrameDrift,
}

/// The frames that a column has of a record, with the packets that decoding them takes.
#[derive(Debug)]
pub(crate) struct SeriesFrames {
    pub(crate) video: ReadVideo,
    /// The numbers of the frames, in the order of the places.
    pub(crate) numbers: Vec<u64>,
}

impl FrameChoice {
    /// Returns the frames of series.
    pub(crate) const fn series(&self) -> Option<&Arc<WantedSeries>> {
        match self {
            Self::Clip(_) => None,
            Self::Series(wanted) => Some(wanted),
        }
    }
}

impl ReadVideo {
    /// Takes the packets at these places of the blocks, ascending. Decoding begins at none of them whose picture is not whole at once.
    pub(crate) fn new(track: Arc<VideoTrack>, mut blocks: Arc<VideoBlocks>, packets: Vec<(usize, Bytes)>) -> Self {
        let is_broken = |(place, bytes): &&(usize, Bytes)| {
            blocks.packets()[*place].is_key && !is_whole_key(&track.codec, &track.extra_data, bytes)
        };
        let broken: Vec<usize> = packets.iter().filter(is_broken).map(|(place, _)| *place).collect();
        if !broken.is_empty() {
            Arc::make_mut(&mut blocks).unmark_keys(&broken);
        }
        Self { track, blocks, packets }
    }

    /// Returns the bytes of the packet at a place of the blocks, if it was read.
    pub(crate) fn packet(&self, place: usize) -> Option<&[u8]> {
        let found = self.packets.binary_search_by_key(&place, |(packet, _)| *packet).ok()?;
        Some(&self.packets[found].1)
    }

    /// Returns the bytes that were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.packets.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// Returns the video with these packets as a file, if the blocks are all of it.
    pub(crate) fn excerpt(&self) -> Option<Bytes> {
        let packets = self.blocks.packets().to_vec();
        let video = Video { track: (*self.track).clone(), tracks: 1, packets };
        let places: Vec<usize> = self.packets.iter().map(|(place, _)| *place).collect();
        encode_video_excerpt(&video, &places, |place| self.packet(place)).ok()?.map(Bytes::from)
    }
}
