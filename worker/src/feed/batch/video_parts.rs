//! The parts of long videos that the clips of a batch need: the tables that say where packets lie are read first, and then the packets
//! that decoding the clips takes. Matroska and fragments of MP4 have their tables between the packets, and are read whole.
//!
//! What is read of a video has no checksum. A table that cannot be read means that the video is read whole, and decoding says
//! what is wrong with it.

use std::ops::Range;

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use spdl_media::{OpenVideo, Video, VideoReader, encode_video_excerpt};
use spdl_shard::format::ShardIndex;

use super::{
    field_parts::{FieldParts, bytes_of},
    sample::{BatchSample, CutField, WantedField},
};
use crate::{
    feed::{FeedError, open::Feed},
    fetch::{BlockPlace, Pieces},
};

/// Videos of at least this many bytes are read in parts. Of shorter ones, the tables and two requests more cost what that saves.
pub(super) const LARGE_VIDEO_BYTES: u64 = 4 << 20;
/// Maximum bytes of the tables that a feed keeps. When raised, the tables of more videos are read once.
const KEPT_TABLE_BYTES: usize = 16 << 20;
/// The memory that is reserved while the tables of a video are read.
const TABLE_BYTES: u64 = 1 << 20;
/// Maximum bytes of the tables of one video: those of some 80 hours of frames.
const MAX_TABLE_BYTES: u64 = 256 << 20;

/// A video, and the packets of it to read.
pub(super) struct VideoParts<'f> {
    field: &'f WantedField,
    video: Video,
    packets: Vec<usize>,
}

/// What the tables of the videos that were read last say, by block, record and field.
pub(in crate::feed) struct KeptTables(Mutex<TablesInUse>);

struct TablesInUse {
    tables: LruCache<(u32, u32, u32), Bytes>,
    bytes: usize,
}

impl FieldParts for VideoParts<'_> {
    /// What lies between packets is mostly sound, and packets that no other one needs.
    const GAP_BYTES: u64 = 64 << 10;

    fn field(&self) -> &WantedField {
        self.field
    }

    fn wanted(&self) -> Vec<Range<u64>> {
        self.packets.iter().map(|packet| self.place(*packet)).collect()
    }

    fn cut(&self, read: &Pieces) -> Option<CutField> {
        let excerpt = encode_video_excerpt(&self.video, &self.packets, |packet| read.slice(self.place(packet)));
        let content = excerpt.ok()??.into();
        Some(CutField { record: self.field.record, nth: self.field.nth, content })
    }
}

impl VideoParts<'_> {
    fn place(&self, packet: usize) -> Range<u64> {
        let packet = self.video.packets[packet];
        let start = self.field.range.start + packet.offset;
        start..start + u64::from(packet.bytes)
    }
}

/// Plans which packets of a video to read; `None` if the field is no long video, most of it is needed, or its tables cannot be read.
pub(super) async fn plan<'f>(
    feed: &Feed,
    index: &dyn ShardIndex,
    samples: &[BatchSample],
    field: &'f WantedField,
) -> Result<Option<VideoParts<'f>>, FeedError> {
    if field.bytes() < LARGE_VIDEO_BYTES {
        return Ok(None);
    }
    let record = index.record(field.record);
    let name = index.field(&record, field.nth).name;
    if !feed.decoder.reads_video(name) {
        return Ok(None);
    }
    let block = samples[0].block;
    let key = (block, field.record, field.nth);
    let video = match feed.parts.tables.get(key) {
        Some(table) => OpenVideo::open(&table).ok().map(|open| open.video),
        None => {
            let video = read_tables(feed, &feed.datasets.place(block), field).await?;
            if let Some(video) = &video
                && let Ok(Some(table)) = encode_video_excerpt(video, &[], |_| None::<&[u8]>)
            {
                feed.parts.tables.keep(key, table.into());
            }
            video
        }
    };
    let Some(video) = video else { return Ok(None) };
    let of_record = samples.iter().filter(|sample| sample.record == field.record).map(BatchSample::key);
    let Some(packets) = feed.decoder.video_packets(of_record, (name, &video)) else { return Ok(None) };
    let planned = VideoParts { field, video, packets };
    let bytes = bytes_of(std::slice::from_ref(&planned));
    // If most of the field is needed, one request is better than several.
    Ok((bytes <= field.bytes() / 4 * 3).then_some(planned))
}

/// Reads where the packets of a video lie; `None` if its tables are damaged, too long or spread over the file, or say that packets lie
/// outside.
async fn read_tables(feed: &Feed, place: &BlockPlace, field: &WantedField) -> Result<Option<Video>, FeedError> {
    let _transit = feed.fetcher.transit(TABLE_BYTES).await;
    let mut reader = VideoReader::new(field.bytes());
    let mut read_bytes = 0;
    loop {
        let wanted = reader.wants();
        read_bytes += wanted.end - wanted.start;
        if wanted.is_empty() || reader.is_pass() || read_bytes > MAX_TABLE_BYTES {
            return Ok(None);
        }
        let range = field.range.start + wanted.start..field.range.start + wanted.end;
        let read = feed.fetcher.read_ranges(place, vec![range.clone()], 0).await?;
        let Some(bytes) = read.slice(range) else { return Ok(None) };
        match reader.read(&bytes) {
            Ok(None) => {}
            Ok(Some(video)) => {
                let is_inside = |end: u64| end <= field.bytes();
                let ends = video.packets.iter().map(|packet| packet.offset.saturating_add(packet.bytes.into()));
                return Ok(ends.into_iter().all(is_inside).then_some(video));
            }
            Err(_) => return Ok(None),
        }
    }
}

impl KeptTables {
    pub(super) fn new() -> Self {
        Self(Mutex::new(TablesInUse { tables: LruCache::unbounded(), bytes: 0 }))
    }

    fn get(&self, key: (u32, u32, u32)) -> Option<Bytes> {
        self.0.lock().tables.get(&key).cloned()
    }

    fn keep(&self, key: (u32, u32, u32), table: Bytes) {
        let kept = &mut *self.0.lock();
        kept.bytes += table.len();
        if let Some((_, before)) = kept.tables.push(key, table) {
            kept.bytes -= before.len();
        }
        while kept.bytes > KEPT_TABLE_BYTES {
            let Some((_, oldest)) = kept.tables.pop_lru() else { break };
            kept.bytes -= oldest.len();
        }
    }
}

impl std::fmt::Debug for KeptTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptTables").field("bytes", &self.0.lock().bytes).finish_non_exhaustive()
    }
}
