//! The recordings of other datasets that operations take for the samples of a group. Which ones follows from the draws of the samples,
//! so that they are found before anything of the samples is read. Of a long recording whose table the index has, the part is read that
//! noise may come from, beside what is read of the samples.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::future::try_join_all;
use spdl_job::SoundDataset;
use spdl_media::{SoundSegment, SoundTable, encode_sound_excerpt};
use spdl_shard::format::{FieldValue, OpenError, ShardIndex};
use tokio::sync::OwnedSemaphorePermit;

use super::{sample::BatchSample, sound_parts::SOUND_GAP_BYTES};
use crate::{
    decode::DatasetSound,
    feed::{FeedError, dataset::FoundSound, open::Feed},
    fetch::{BlockBytes, Wanted},
};

/// How often a recording is read whose bytes are not those that were indexed.
const MAX_READS: u32 = 4;

/// The recordings that operations take for the samples of a group.
#[derive(Debug, Default)]
pub(super) struct GroupSounds {
    sounds: Vec<GroupSound>,
    /// The memory of those that are copies.
    _memory: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
struct GroupSound {
    dataset: SoundDataset,
    sample: u64,
    sound: DatasetSound,
    /// The block in memory whose bytes these are.
    _block: Option<BlockBytes>,
}

/// The bytes of a recording's block are not those that were indexed.
struct WrongBytes;

impl GroupSounds {
    /// Returns the recording that is a sample of a dataset.
    pub(super) fn of(&self, dataset: &SoundDataset, sample: u64) -> Option<&DatasetSound> {
        let is_it = |sound: &&GroupSound| sound.sample == sample && sound.dataset == *dataset;
        self.sounds.iter().find(is_it).map(|sound| &sound.sound)
    }
}

/// Recordings of which some are still to be read, with the memory for these.
pub(super) struct FoundSounds {
    whole: GroupSounds,
    parts: Vec<PartOfSound>,
}

/// A part of a recording that is to be read.
struct PartOfSound {
    dataset: SoundDataset,
    sample: u64,
    found: FoundSound,
    segment: SoundSegment,
}

/// Finds the recordings that operations take for these samples, and reads them: those of a small dataset from memory, where its blocks
/// stay, and others one by one. Parts are left to [`FoundSounds::read`].
pub(super) async fn find(feed: &Feed, samples: &[BatchSample]) -> Result<FoundSounds, FeedError> {
    let mut drawn: Vec<(&SoundDataset, u64)> = Vec::new();
    for sample in samples {
        for sound in feed.decoder.drawn_sounds(sample.key()) {
            if !drawn.contains(&(sound.dataset, sound.sample)) {
                drawn.push((sound.dataset, sound.sample));
            }
        }
    }
    let found = drawn.iter().map(|(dataset, sample)| kept(feed, dataset, *sample));
    let found = try_join_all(found).await?;
    let (mut wholes, mut parts, mut left_bytes) = (Vec::new(), Vec::new(), 0);
    for ((dataset, sample), (found, kept)) in drawn.into_iter().zip(found) {
        let segment = if kept.is_none() { segment_of(feed, samples, (dataset, sample), &found) } else { None };
        if let Some(segment) = segment {
            // An excerpt is a copy, beside what was read.
            left_bytes += 2 * segment.bytes();
            parts.push(PartOfSound { dataset: dataset.clone(), sample, found, segment });
            continue;
        }
        let bytes = found.range.as_ref().filter(|_| kept.is_none()).map_or(0, |range| range.end - range.start);
        left_bytes += bytes;
        wholes.push((dataset, sample, found, kept));
    }
    // No memory for bytes of one use is held yet: who holds some waits for nobody.
    let memory = feed.sounds.memory(left_bytes).await;
    let read = wholes.into_iter().map(|(dataset, sample, found, kept)| async move {
        let (file, block) = match kept {
            Some(KeptSound { file, block }) => (file, Some(block)),
            None => (copied(feed, &found).await?, None),
        };
        let key = found.index.record(found.record).key.text().into_owned();
        let sound = DatasetSound { key, file };
        Ok::<_, FeedError>(GroupSound { dataset: dataset.clone(), sample, sound, _block: block })
    });
    let whole = GroupSounds { sounds: try_join_all(read).await?, _memory: memory };
    Ok(FoundSounds { whole, parts })
}

impl FoundSounds {
    /// Reads the parts that are left, for which there is memory: it waits for none.
    pub(super) async fn read(self, feed: &Feed) -> Result<GroupSounds, FeedError> {
        let Self { whole: mut all, parts } = self;
        let read = parts.into_iter().map(|part| async move {
            let file = part.read(feed).await?;
            let key = part.found.index.record(part.found.record).key.text().into_owned();
            let sound = DatasetSound { key, file };
            Ok::<_, FeedError>(GroupSound { dataset: part.dataset, sample: part.sample, sound, _block: None })
        });
        all.sounds.extend(try_join_all(read).await?);
        Ok(all)
    }
}

impl PartOfSound {
    /// Reads the part, and returns an excerpt of the recording with it, or what is wrong.
    async fn read(&self, feed: &Feed) -> Result<Result<Bytes, String>, FeedError> {
        let Self { found, segment, .. } = self;
        let (table, range) = table_of(found).expect("the segment is of the table");
        let at = |part: &Range<u64>| range.start + part.start..range.start + part.end;
        let ranges = segment.ranges.iter().map(at).collect();
        let read = feed.fetcher.read_ranges(&found.place, ranges, SOUND_GAP_BYTES).await?;
        let parts = segment.ranges.iter().map(|part| read.slice(at(part))).collect::<Option<Vec<_>>>();
        Ok(parts.map(|parts| encode_sound_excerpt(&table, segment, parts).into()).ok_or_else(wrong))
    }
}

/// Returns the table of a recording and where its file lies in the shard; `None` if it has none, or its bytes do not lie there as they are.
fn table_of(found: &FoundSound) -> Option<(SoundTable<'_>, Range<u64>)> {
    let index: &dyn ShardIndex = &*found.index;
    if !index.has_plain_fields() || found.place.shard.is_read_whole() {
        return None;
    }
    let table = index.packet_table(&index.record(found.record), found.field?)?;
    // A table that cannot be read means that the recording is read whole.
    Some((SoundTable::read(table).ok()?, found.range.clone()?))
}

/// Returns the part of a recording that the samples take; `None` if it is read whole.
fn segment_of(
    feed: &Feed,
    samples: &[BatchSample],
    drawn: (&SoundDataset, u64),
    found: &FoundSound,
) -> Option<SoundSegment> {
    let (table, range) = table_of(found)?;
    let frames = feed.decoder.drawn_frames(samples.iter().map(BatchSample::key), drawn, &table)?;
    let bytes = range.end - range.start;
    let is_inside = |segment: &SoundSegment| segment.ranges.last().is_none_or(|last| last.end <= bytes);
    // If most of it is needed, nothing is saved.
    table.segment(frames).filter(|segment| is_inside(segment) && segment.bytes() <= bytes / 4 * 3)
}

/// A recording in a block that stays in memory.
struct KeptSound {
    file: Result<Bytes, String>,
    block: BlockBytes,
}

/// Finds a recording, and its file if its block is in memory, or can be kept there.
async fn kept(feed: &Feed, dataset: &SoundDataset, sample: u64) -> Result<(FoundSound, Option<KeptSound>), FeedError> {
    let found = feed.sounds.find(dataset, sample).await?;
    if found.range.is_none() {
        return Ok((found, None));
    }
    let Some(block) = feed.fetcher.keep(&found.place, found.dataset_bytes).await? else { return Ok((found, None)) };
    match file_of(&found, Some(&block)) {
        Ok(file) => Ok((found, Some(KeptSound { file, block }))),
        Err(WrongBytes) => {
            feed.fetcher.discard(&found.place.key);
            Ok((found, None))
        }
    }
}

/// Reads the file of a recording for one use, and returns it, or what is wrong with it.
async fn copied(feed: &Feed, found: &FoundSound) -> Result<Result<Bytes, String>, FeedError> {
    let Some(range) = &found.range else { return Ok(file_of(found, None).unwrap_or_else(|WrongBytes| Err(wrong()))) };
    for _ in 0..MAX_READS {
        let wanted = Wanted { ranges: vec![range.clone()], records: Arc::from([found.record]) };
        let block = feed.fetcher.fetch(&found.place, wanted).await?;
        if let Ok(file) = file_of(found, Some(&block)) {
            // A copy, as the memory of the block is for as long as it is read alone.
            return Ok(file.map(|file| Bytes::copy_from_slice(&file)));
        }
        drop(block);
        feed.fetcher.discard(&found.place.key);
    }
    Ok(Err(wrong()))
}

fn wrong() -> String {
    "has other bytes than when its dataset was indexed: index it again".to_owned()
}

/// Returns the file of a recording, or what is wrong with it.
fn file_of(found: &FoundSound, block: Option<&BlockBytes>) -> Result<Result<Bytes, String>, WrongBytes> {
    let index: &dyn ShardIndex = &*found.index;
    let record = index.record(found.record);
    let Some(nth) = found.field else { return Ok(Err("has none of the fields that may have a sound".to_owned())) };
    let field = index.field(&record, nth);
    let opened = match block.and_then(BlockBytes::decoded) {
        Some(decoded) if field.value.is_none() => decoded.open(record.number(), nth),
        _ => index.open(&field, &|range| block?.slice(range)).map(Some),
    };
    let name = field.name;
    Ok(match opened.map(|value| value.map(FieldValue::into_one)) {
        Ok(Some(Ok(content))) => Ok(content.into_file()),
        Ok(Some(Err(problem))) => Err(format!("has the field `{name}`, which {problem}")),
        Ok(None) => Err(format!("has nothing in the field `{name}`")),
        Err(OpenError::Checksum { .. } | OpenError::Missing) => return Err(WrongBytes),
        Err(OpenError::Malformed(problem)) => Err(format!("has the field `{name}`, which {problem}")),
        Err(OpenError::Damaged { problem, .. }) => Err(format!("is damaged: {problem}")),
    })
}
