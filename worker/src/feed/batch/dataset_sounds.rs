//! The recordings of other datasets that operations take for the samples of a group. Which ones follows from the draws of the samples,
//! so that they are read before anything of the samples is.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::try_join_all;
use spdl_job::SoundDataset;
use spdl_shard::format::{FieldValue, OpenError, ShardIndex};
use tokio::sync::OwnedSemaphorePermit;

use super::sample::BatchSample;
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

/// Reads the recordings that operations take for these samples: those of a small dataset from memory, where its blocks stay, and others
/// one by one.
pub(super) async fn fetch(feed: &Feed, samples: &[BatchSample]) -> Result<GroupSounds, FeedError> {
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
    let is_left = |(_, kept): &&(FoundSound, Option<KeptSound>)| kept.is_none();
    let left = found.iter().filter(is_left).filter_map(|(found, _)| found.range.clone());
    // No memory for bytes of one use is held yet: who holds some waits for nobody.
    let memory = feed.sounds.memory(left.map(|range| range.end - range.start).sum()).await;
    let read = drawn.iter().zip(found).map(|((dataset, sample), (found, kept))| async move {
        let (file, block) = match kept {
            Some(KeptSound { file, block }) => (file, Some(block)),
            None => (copied(feed, &found).await?, None),
        };
        let key = found.index.record(found.record).key.text().into_owned();
        let sound = DatasetSound { key, file };
        Ok::<_, FeedError>(GroupSound { dataset: (*dataset).clone(), sample: *sample, sound, _block: block })
    });
    Ok(GroupSounds { sounds: try_join_all(read).await?, _memory: memory })
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
