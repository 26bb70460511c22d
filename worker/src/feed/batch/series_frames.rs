//! The frames of videos that records of series name: chosen by the tables of the videos, before the packets are read that decoding them
//! takes. Samples of a batch that want the same packets share their bytes.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use spdl_media::VideoTrack;
use spdl_shard::{
    format::{ShardIndex, StoredFrame},
    ranges::merge,
};

use super::{
    sample::BatchSample,
    series::{place_in, series_in},
    video_parts::{VIDEO_GAP_BYTES, place, read_packets},
    video_tables::{ChosenFrames, NoTables, VideoKey, tables_of},
};
use crate::{
    decode::{SeriesFrames, WantedSeries},
    feed::{FeedError, open::Feed},
    fetch::{BlockPlace, Pieces, Transit},
};

/// The frames of a group's records that columns want.
#[derive(Debug, Default)]
pub(super) struct GroupFrames {
    frames: Vec<RecordFrames>,
    /// The memory of the packets.
    _transit: Option<Transit>,
}

/// The frames that a column wants of a record.
#[derive(Debug)]
pub(super) struct RecordFrames {
    pub(super) record: u32,
    wanted: Arc<WantedSeries>,
    /// The field that names them.
    pub(super) field: String,
    /// The frames, or what is wrong with them.
    pub(super) frames: Result<SeriesFrames, String>,
}

/// The frames of a group's records, and which packets decoding them takes.
pub(super) struct PlannedFrames {
    records: Vec<PlannedSeries>,
    /// Ranges of the shard to read.
    ranges: Vec<Range<u64>>,
}

struct PlannedSeries {
    record: u32,
    wanted: Arc<WantedSeries>,
    field: String,
    chosen: Result<ChosenVideo, String>,
}

struct ChosenVideo {
    /// Where the video begins in the shard.
    start: u64,
    track: Arc<VideoTrack>,
    chosen: ChosenFrames,
}

impl GroupFrames {
    /// Returns the frames of a record that a column wants.
    pub(super) fn of(&self, record: u32, wanted: &WantedSeries) -> Option<&RecordFrames> {
        self.frames.iter().find(|frames| frames.record == record && *frames.wanted == *wanted)
    }

    /// Returns the bytes that were read for a record.
    pub(super) fn bytes_of(&self, record: u32) -> u64 {
        let of_record = self.frames.iter().filter(|frames| frames.record == record);
        of_record.filter_map(|frames| frames.frames.as_ref().ok()).map(|frames| frames.video.bytes()).sum()
    }
}

/// Chooses the frames that columns want of the records of a group's samples; `None` if no column wants any.
pub(super) async fn plan(
    feed: &Feed,
    index: &dyn ShardIndex,
    samples: &[BatchSample],
) -> Result<Option<PlannedFrames>, FeedError> {
    let mut all_wanted: Vec<&Arc<WantedSeries>> = Vec::new();
    for wanted in feed.decoder.wanted_series() {
        if !all_wanted.contains(&wanted) {
            all_wanted.push(wanted);
        }
    }
    if all_wanted.is_empty() || samples.is_empty() {
        return Ok(None);
    }
    let place = feed.datasets.place(samples[0].block);
    let numbers: BTreeSet<u32> = samples.iter().map(|sample| sample.record).collect();
    let mut records = Vec::new();
    for record in numbers {
        for wanted in &all_wanted {
            let Some((field, frames)) = stored_frames(feed, index, (samples[0].block, record), wanted) else {
                continue;
            };
            let chosen = match frames {
                Ok(frames) => choose(feed, &place, frames, wanted).await?,
                Err(problem) => Err(problem),
            };
            records.push(PlannedSeries { record, wanted: Arc::clone(wanted), field, chosen });
        }
    }
    let chosen = records.iter().filter_map(|record| record.chosen.as_ref().ok());
    let packets = chosen.flat_map(|ChosenVideo { start, chosen, .. }| {
        chosen.packets.iter().map(|packet| self::place(&chosen.blocks, *packet, *start))
    });
    let ranges = merge(packets.collect(), VIDEO_GAP_BYTES);
    Ok(Some(PlannedFrames { records, ranges }))
}

/// Frames of a video, of which the path is known.
struct NamedFrames {
    path: String,
    video: Range<u64>,
    numbers: Vec<u64>,
    fps: u32,
}

/// Finds the frames that a column wants of a record; `None` if the record names none.
fn stored_frames(
    feed: &Feed,
    index: &dyn ShardIndex,
    (block, record): (u32, u32),
    wanted: &WantedSeries,
) -> Option<(String, Result<NamedFrames, String>)> {
    let facts = feed.datasets.of(block).facts();
    let of_record = index.record(record);
    let (name, nth) = wanted.from.iter().find_map(|name| Some((name, index.field_number(&of_record, name)?)))?;
    let series = series_in(index, record, &facts)?;
    let frame = |delta: &i32| {
        let place = place_in(&series, record, *delta);
        index.frame(&index.record(record.saturating_add_signed(place)), nth)
    };
    let frames = wanted.deltas.iter().map(frame).collect::<Option<Result<Vec<StoredFrame>, String>>>()?;
    let named = frames.and_then(|frames| {
        let first = frames.first().ok_or("has no frames")?;
        let (video, fps) = (first.video.clone(), first.fps);
        // The episodes of a series lie in one video each.
        if frames.iter().any(|frame| frame.video != video) {
            return Err("is of an episode whose frames lie in several videos".to_owned());
        }
        let path = index.field(&of_record, nth).value.unwrap_or_default();
        let path = String::from_utf8_lossy(path).into_owned();
        Ok(NamedFrames { path, video, numbers: frames.iter().map(|frame| frame.number).collect(), fps })
    });
    Some((name.clone(), named))
}

/// Chooses frames by the tables of their video. The inner error is what is wrong with it.
async fn choose(
    feed: &Feed,
    place: &BlockPlace,
    NamedFrames { path, video, numbers, fps }: NamedFrames,
    wanted: &WantedSeries,
) -> Result<Result<ChosenVideo, String>, FeedError> {
    let of_video = |problem: String| Ok(Err(format!("lies in `{path}`, which {problem}")));
    let known = match tables_of(feed, VideoKey::Object(place.key.dataset, path.clone()), place, &video).await {
        Ok(known) => known,
        Err(NoTables::Video(problem)) => return of_video(problem),
        Err(NoTables::Fetch(error)) => return Err(error),
    };
    match known.choose(&numbers, fps, wanted.drift) {
        Ok(chosen) => Ok(Ok(ChosenVideo { start: video.start, track: Arc::clone(&known.track), chosen })),
        Err(problem) => of_video(problem),
    }
}

impl PlannedFrames {
    /// Returns the number of bytes to read.
    pub(super) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Reads the packets, for which memory is reserved.
    pub(super) async fn read(
        self,
        feed: &Feed,
        place: &BlockPlace,
        transit: Option<Transit>,
    ) -> Result<GroupFrames, FeedError> {
        let read = feed.fetcher.read_ranges(place, self.ranges, VIDEO_GAP_BYTES).await?;
        let frames = self.records.into_iter().map(|record| record.read(&read)).collect();
        Ok(GroupFrames { frames, _transit: transit })
    }
}

impl PlannedSeries {
    fn read(self, read: &Pieces) -> RecordFrames {
        let Self { record, wanted, field, chosen } = self;
        let frames =
            chosen.and_then(|ChosenVideo { start, track, chosen: ChosenFrames { blocks, numbers, packets } }| {
                let video = read_packets((&track, &Arc::new(blocks)), &packets, start, read);
                let video = video.ok_or("lies in a video that is cut off")?;
                Ok(SeriesFrames { video, numbers })
            });
        RecordFrames { record, wanted, field, frames }
    }
}
