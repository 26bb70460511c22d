//! The tables of videos, which say where their packets lie: each is read once and kept for its next use. Matroska and fragments of MP4
//! have their tables between the packets: of fields, an index may have them, and objects, of which many samples take frames, are passed
//! over once.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use spdl_job::{FrameDrift, SteadyFrames};
use spdl_media::{
    MediaError, StoredVideo, Video, VideoBlocks, VideoReader, VideoTable, VideoTrack, encode_video_table,
};
use spdl_types::Fingerprint;
use tokio::sync::OnceCell;

use crate::{
    feed::{FeedError, open::Feed},
    fetch::BlockPlace,
};

/// Maximum bytes of the tables that a feed keeps. When raised, the tables of more videos are read once.
const KEPT_TABLE_BYTES: usize = 16 << 20;
/// The memory that is reserved while the tables of a video are read.
const TABLE_BYTES: u64 = 1 << 20;
/// Maximum bytes of the tables of one video: those of some 80 hours of frames.
const MAX_TABLE_BYTES: u64 = 256 << 20;

/// A video whose tables were read.
#[derive(Debug)]
pub(super) struct KnownVideo {
    pub(super) track: Arc<VideoTrack>,
    /// Its packets, as [`VideoTable`] reads them.
    table: Bytes,
}

/// Frames of a video that were chosen, and the packets near them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChosenFrames {
    pub(super) blocks: VideoBlocks,
    /// The numbers of the frames.
    pub(super) numbers: Vec<u64>,
    /// The places among the blocks of the packets that decoding the frames takes.
    pub(super) packets: Vec<usize>,
}

/// Which video it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum VideoKey {
    /// That in a field of a record of a block.
    Field(u32, u32, u32),
    /// An object of a dataset.
    Object(Fingerprint, String),
}

/// Why the tables of a video are not known.
#[derive(Debug)]
pub(super) enum NoTables {
    /// They could not be fetched.
    Fetch(FeedError),
    /// The video has none that can be read, or they lie between its packets.
    Video(String),
}

/// What the tables of the videos that were read last say.
pub(in crate::feed) struct KeptTables(Mutex<LruCache<VideoKey, Arc<TableCell>>>);

/// A video whose tables are read once, by the batch that needs them first.
type TableCell = OnceCell<Arc<KnownVideo>>;

/// Returns what the tables of the video in a range of a shard say. Batches that need them at once wait for one reading.
pub(super) async fn tables_of(
    feed: &Feed,
    key: VideoKey,
    place: &BlockPlace,
    range: &Range<u64>,
) -> Result<Arc<KnownVideo>, NoTables> {
    let cell = feed.parts.tables.cell(&key);
    if let Some(known) = cell.get() {
        return Ok(Arc::clone(known));
    }
    let may_pass = matches!(key, VideoKey::Object(..));
    let read = || async {
        let video = read_tables(feed, place, range, may_pass).await?;
        KnownVideo::new(video).map(Arc::new).map_err(|error| NoTables::Video(error.to_string()))
    };
    let known = cell.get_or_try_init(read).await.cloned()?;
    feed.parts.tables.trim_to(KEPT_TABLE_BYTES);
    Ok(known)
}

/// Returns what an index has stored of a video of so many bytes; `None` if that is not valid.
pub(super) fn stored_tables(feed: &Feed, key: &VideoKey, stored: &[u8], video_bytes: u64) -> Option<Arc<KnownVideo>> {
    let cell = feed.parts.tables.cell(key);
    if cell.get().is_none() {
        let StoredVideo { track, table } = StoredVideo::read(stored).ok()?;
        let known = KnownVideo { track: Arc::new(track), table: Bytes::copy_from_slice(table) };
        let blocks = known.all_blocks();
        let end = blocks.packets().iter().map(|packet| packet.offset.saturating_add(packet.bytes.into())).max();
        if end.is_some_and(|end| end > video_bytes) {
            return None;
        }
        // Another batch may have done it meanwhile.
        let _ = cell.set(Arc::new(known));
        feed.parts.tables.trim_to(KEPT_TABLE_BYTES);
    }
    cell.get().cloned()
}

/// Reads where the packets of a video lie; where its tables lie between these, only if it `may_pass` over all of it.
async fn read_tables(feed: &Feed, place: &BlockPlace, video: &Range<u64>, may_pass: bool) -> Result<Video, NoTables> {
    let problem = |problem: &str| Err(NoTables::Video(problem.to_owned()));
    let _transit = feed.fetcher.transit(TABLE_BYTES).await;
    let video_bytes = video.end - video.start;
    let mut reader = VideoReader::new(video_bytes);
    let mut read_bytes = 0;
    loop {
        let wanted = reader.wants();
        read_bytes += wanted.end - wanted.start;
        if wanted.is_empty() {
            return problem("is empty");
        }
        if reader.is_pass() && (!may_pass || read_bytes > MAX_TABLE_BYTES) {
            return problem(
                "has its tables between its packets, as fragments of MP4 and Matroska have, and more than 256 MiB would be read for \
                 them: write them to its beginning, with `ffmpeg -i IN -c copy -movflags +faststart OUT.mp4`",
            );
        }
        if read_bytes > MAX_TABLE_BYTES {
            return problem("has tables of more than 256 MiB");
        }
        let range = video.start + wanted.start..video.start + wanted.end;
        let read = feed.fetcher.read_ranges(place, vec![range.clone()], 0).await;
        let read = read.map_err(|error| NoTables::Fetch(error.into()))?;
        let Some(bytes) = read.slice(range) else { return problem("is cut off") };
        match reader.read(&bytes) {
            Ok(None) => {}
            Ok(Some(video)) => {
                let ends = video.packets.iter().map(|packet| packet.offset.saturating_add(packet.bytes.into()));
                return match ends.max() {
                    Some(end) if end > video_bytes => problem("has tables that name packets behind its end"),
                    _ => Ok(video),
                };
            }
            Err(error) => return problem(&error.to_string()),
        }
    }
}

impl KnownVideo {
    /// Takes what was read of a video.
    ///
    /// # Errors
    /// As [`encode_video_table`].
    pub(super) fn new(Video { track, packets, .. }: Video) -> Result<Self, MediaError> {
        Ok(Self { track: Arc::new(track), table: encode_video_table(&packets)?.into() })
    }

    fn bytes(&self) -> usize {
        self.table.len() + self.track.extra_data.len() + size_of::<VideoTrack>()
    }

    fn table(&self) -> VideoTable<'_> {
        VideoTable::read(&self.table).expect("the table was just encoded")
    }

    /// Returns all packets.
    pub(super) fn all_blocks(&self) -> VideoBlocks {
        self.blocks(0..self.table().blocks())
    }

    fn blocks(&self, blocks: Range<usize>) -> VideoBlocks {
        let table = self.table();
        let place = table.place(blocks.clone());
        let bytes = &self.table[place.start as usize..place.end as usize];
        table.read_blocks(blocks, bytes).expect("the blocks were just encoded")
    }

    /// Chooses the frames with these numbers, of a video of `fps` frames a second; what is not shown when it is due becomes what `drift` says.
    ///
    /// # Errors
    /// What is wrong with the video.
    pub(super) fn choose(&self, numbers: &[u64], fps: u32, drift: FrameDrift) -> Result<ChosenFrames, String> {
        let steady = SteadyFrames { fps, time_base: self.track.time_base };
        let numbers: Vec<u64> = match drift {
            FrameDrift::Fail => numbers.to_vec(),
            FrameDrift::Nearest => {
                numbers.iter().map(|number| self.nearest(&steady, *number)).collect::<Result<_, _>>()?
            }
        };
        let ends = numbers.iter().min().zip(numbers.iter().max());
        let Some((first, last)) = ends else { return Err("has no frames".to_owned()) };
        let table = self.table();
        let found = table.blocks_of(*first..last + 1);
        let found =
            found.ok_or_else(|| format!("has {} frames, and that of the sample is frame {last}", table.frames()))?;
        let blocks = self.blocks(found);
        if drift == FrameDrift::Fail {
            for number in &numbers {
                let shown = shown_at(&blocks, *number);
                if !shown.is_some_and(|time| steady.is_due(time, *number)) {
                    let [numerator, denominator] = self.track.time_base.map(f64::from);
                    let at = shown.unwrap_or_default() as f64 * numerator / denominator;
                    return Err(format!(
                        "shows its frame {number} at {at:.4} s and not after {number}/{fps} s; drift = \"nearest\" takes the frame \
                         that is shown nearest to that"
                    ));
                }
            }
        }
        let mut wanted = numbers.clone();
        wanted.sort_unstable();
        wanted.dedup();
        let packets = blocks.needed(&wanted).ok_or("has a frame without a key frame before it")?;
        Ok(ChosenFrames { blocks, numbers, packets })
    }

    /// Returns the frame that is shown nearest to when frame `number` is due.
    fn nearest(&self, steady: &SteadyFrames, number: u64) -> Result<u64, String> {
        let table = self.table();
        let found = table.blocks_at(steady.due(number)).ok_or("has no frames")?;
        // The frame that is shown then, and the next one, which may be the first of the next block.
        let around = found.end.saturating_sub(1)..(found.end + 1).min(table.blocks());
        let blocks = self.blocks(around);
        let before = blocks.frame_at(steady.due(number)).ok_or("has no frames")?;
        let near: Vec<(u64, i64)> =
            [before, before + 1].into_iter().filter_map(|frame| Some((frame, shown_at(&blocks, frame)?))).collect();
        let times: Vec<i64> = near.iter().map(|(_, time)| *time).collect();
        let (frame, time) = near[steady.nearest(&times, number).ok_or("has no frames")?];
        // Behind the end, the last frame is nearest to all times.
        if (frame == 0 || frame + 1 == table.frames()) && steady.distance(time, number) > steady.frame_units() {
            let frames = table.frames();
            return Err(format!("has {frames} frames, none of which is shown after {number}/{} s", steady.fps));
        }
        Ok(frame)
    }
}

/// Returns when a frame is shown.
fn shown_at(blocks: &VideoBlocks, frame: u64) -> Option<i64> {
    blocks.packet_of(frame).map(|packet| blocks.packets()[packet].pts)
}

impl KeptTables {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::unbounded()))
    }

    fn cell(&self, key: &VideoKey) -> Arc<TableCell> {
        Arc::clone(self.0.lock().get_or_insert_ref(key, Arc::default))
    }

    /// Drops those that were not used for longest, until the others take at most so many bytes.
    fn trim_to(&self, max_bytes: usize) {
        let kept = &mut *self.0.lock();
        let of_cell = |cell: &TableCell| cell.get().map_or(0, |video| video.bytes());
        let mut bytes: usize = kept.iter().map(|(_, cell)| of_cell(cell)).sum();
        while bytes > max_bytes && kept.len() > 1 {
            let Some((_, oldest)) = kept.pop_lru() else { break };
            bytes -= of_cell(&oldest);
        }
    }
}

impl std::fmt::Debug for KeptTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptTables").field("videos", &self.0.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use spdl_media::{OpenVideo, VideoPacket};

    use super::*;

    const FILE: &[u8] = include_bytes!("../../../../crates/media/tests/videos/tables.mp4");

    /// A video whose frames are shown at these times, of 10 a second and 1,280 units each, with a key frame before every fifth.
    fn shown(times: impl IntoIterator<Item = i64>) -> KnownVideo {
        let track = VideoTrack { time_base: [1, 12_800], ..OpenVideo::open(FILE).unwrap().video.track };
        let packet = |(nth, pts): (usize, i64)| VideoPacket {
            offset: 100 * nth as u64,
            bytes: 100,
            pts,
            dts: pts,
            duration: 1280,
            is_key: nth % 5 == 0,
            is_droppable: false,
            is_shown: true,
        };
        let packets = times.into_iter().enumerate().map(packet).collect();
        KnownVideo::new(Video { track, tracks: 1, packets }).unwrap()
    }

    fn numbers(video: &KnownVideo, numbers: &[u64], drift: FrameDrift) -> Result<Vec<u64>, String> {
        video.choose(numbers, 10, drift).map(|chosen| chosen.numbers)
    }

    #[test]
    fn frames_are_found_by_their_numbers_with_the_packets_from_their_key_frames_on() {
        let video = shown((0..1000).map(|frame| frame * 1280));
        for wanted in [&[0][..], &[999], &[7, 3, 3, 4], &[500, 200, 998]] {
            let chosen = video.choose(wanted, 10, FrameDrift::Fail).unwrap();
            assert_eq!(chosen, video.choose(wanted, 10, FrameDrift::Nearest).unwrap());
            assert_eq!(chosen.numbers, wanted);
            let place = |packet: u64| chosen.blocks.packets().iter().position(|other| other.offset == 100 * packet);
            let mut needed: Vec<usize> =
                wanted.iter().flat_map(|frame| frame / 5 * 5..=*frame).filter_map(place).collect();
            needed.sort_unstable();
            needed.dedup();
            assert_eq!(chosen.packets, needed, "{wanted:?}");
        }
        assert_eq!(
            numbers(&video, &[999, 1000], FrameDrift::Fail).unwrap_err(),
            "has 1000 frames, and that of the sample is frame 1000"
        );
        let error = numbers(&video, &[1001], FrameDrift::Nearest).unwrap_err();
        assert_eq!(error, "has 1000 frames, none of which is shown after 1001/10 s");
    }

    #[test]
    fn frames_that_are_not_shown_when_they_are_due_fail_or_are_found_by_their_time() {
        // Frames 300 to 302 are missing, and all are shown a little late.
        let video = shown((0..1000).filter(|frame| !(300..303).contains(frame)).map(|frame| frame * 1280 + 200));
        assert_eq!(numbers(&video, &[299], FrameDrift::Fail), Ok(vec![299]));
        let error = numbers(&video, &[299, 300], FrameDrift::Fail).unwrap_err();
        assert!(
            error.starts_with("shows its frame 300 at 30.3156 s and not after 300/10 s; drift = \"nearest\""),
            "{error}"
        );
        let found = numbers(&video, &[299, 300, 301, 302, 303, 999], FrameDrift::Nearest);
        assert_eq!(found, Ok(vec![299, 299, 299, 300, 300, 996]));
        // The borders of the table's blocks make no difference.
        for frame in 303..1000 {
            assert_eq!(numbers(&video, &[frame], FrameDrift::Nearest), Ok(vec![frame - 3]));
        }
        assert_eq!(numbers(&shown([]), &[0], FrameDrift::Nearest), Err("has no frames".to_owned()));
    }

    #[test]
    fn tables_beyond_the_limit_are_those_that_were_not_used_for_longest() {
        let kept = KeptTables::new();
        let key = |nth| VideoKey::Field(nth, 0, 0);
        let mut bytes = 0;
        for nth in 0..3 {
            let video = shown((0..10).map(|frame| frame * 1280));
            bytes = video.bytes();
            kept.cell(&key(nth)).set(Arc::new(video)).unwrap();
        }
        let _ = kept.cell(&key(0));
        kept.trim_to(2 * bytes);
        let is_known = |nth| kept.cell(&key(nth)).get().is_some();
        assert_eq!([0, 1, 2].map(is_known), [true, false, true]);
        kept.trim_to(0);
        assert_eq!([0, 1, 2].map(is_known), [false, false, true], "the last one is in use");
    }
}
