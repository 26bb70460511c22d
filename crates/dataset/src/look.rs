//! Reads whole records of a dataset, of every format: a few that are spread over it, all, or the one of a sample.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use spdl_shard::{
    format::{FieldValue, ShardIndex},
    manifest::{Block, Manifest, Shard},
    store::DatasetStore,
};
use spdl_store::{StoreError, blocking};

use super::{DatasetError, fields::problem_of, slice};

/// Maximum number of blocks that spread records are of.
const SPREAD_BLOCKS: u32 = 16;
/// After so many bytes of spread records no more are read.
const SPREAD_BYTES: u64 = 256 << 20;
/// The largest gap between two ranges that are read with one request, in bytes.
const MERGE_GAP_BYTES: u64 = 64 << 10;

/// Which records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookAt {
    /// All.
    All,
    /// About as many, spread over the dataset; fewer where they are large.
    Spread(u32),
}

/// A record that was read.
#[derive(Clone, Debug)]
pub struct SeenRecord {
    /// Its key.
    pub key: String,
    /// The fields that have a value, by their names.
    pub fields: Vec<SeenField>,
}

/// A field that was read.
#[derive(Clone, Debug)]
pub struct SeenField {
    /// Its name.
    pub name: String,
    /// Its value, or what is wrong with it.
    pub value: Result<FieldValue, String>,
}

/// Reads records of a dataset.
#[derive(Clone, Debug)]
pub struct RecordReader {
    shards: DatasetStore,
    manifest: Manifest,
}

impl RecordReader {
    /// Reads the manifest of a dataset.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn open(dataset: &DatasetStore) -> Result<Self, DatasetError> {
        let manifest = dataset.manifest().await?;
        Ok(Self { shards: dataset.shards(&manifest)?, manifest })
    }

    /// Returns the manifest.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Reads records in the dataset's order and passes each to `each`.
    ///
    /// # Errors
    /// If a store cannot be reached, or an index cannot be read. What is wrong with a field is in its place.
    pub async fn read(&self, which: LookAt, mut each: impl FnMut(SeenRecord)) -> Result<(), DatasetError> {
        let blocks = self.manifest.block_count();
        let step = match which {
            LookAt::All => 1,
            LookAt::Spread(_) => blocks.div_ceil(SPREAD_BLOCKS).max(1),
        };
        let chosen: Vec<Block> = (0..blocks).step_by(step as usize).map(|block| self.manifest.block(block)).collect();
        let (count, mut read_bytes) = (chosen.len() as u32, 0);
        for of_shard in chosen.chunk_by(|a, b| a.shard == b.shard) {
            let shard = self.manifest.shard(of_shard[0].shard);
            let index = self.shards.index(&shard).await?;
            let records = |block: &Block| match which {
                LookAt::All => (block.first_record..block.first_record + block.records).collect(),
                LookAt::Spread(wanted) => spread(block, wanted.div_ceil(count)),
            };
            // All of a compressed object is read, so once.
            let reads = if index.compressed().is_some() { of_shard.len() } else { 1 };
            for blocks in of_shard.chunks(reads) {
                if which != LookAt::All && read_bytes > SPREAD_BYTES {
                    return Ok(());
                }
                let records = blocks.iter().flat_map(records).collect();
                let (records, bytes) = self.records(&shard, &index, &blocks[0], records).await?;
                records.into_iter().for_each(&mut each);
                read_bytes += bytes;
            }
        }
        Ok(())
    }

    /// Reads the record of sample number `sample` of the dataset, and returns the sample's number in it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Panics
    /// If there is no such sample.
    pub async fn sample(&self, sample: u64) -> Result<(SeenRecord, u32), DatasetError> {
        let block = self.manifest.block_of(sample).expect("the dataset has this sample");
        let block = self.manifest.block(block);
        let shard = self.manifest.shard(block.shard);
        let index = self.shards.index(&shard).await?;
        let (record, nth) = index.locate((sample - shard.first_sample) as u32);
        let (mut records, _) = self.records(&shard, &index, &block, vec![record]).await?;
        Ok((records.remove(0), nth))
    }

    /// Reads these records, which are of one block, or of a compressed shard; returns them, and the number of bytes that were read.
    async fn records(
        &self,
        shard: &Shard<'_>,
        index: &Arc<dyn ShardIndex>,
        block: &Block,
        records: Vec<u32>,
    ) -> Result<(Vec<SeenRecord>, u64), DatasetError> {
        let is_columnar = shard.format.is_columnar();
        let ranges = match is_columnar {
            true => vec![block.offset..block.offset + block.bytes],
            false => ranges(&**index, &records, if index.object(shard).is_some() { MERGE_GAP_BYTES } else { 0 }),
        };
        let mut pieces: Vec<(u64, Bytes)> = Vec::new();
        if !ranges.is_empty() {
            for part in index.plan(shard, &ranges) {
                match self.shards.read_range(&part).await {
                    Ok(bytes) => pieces.push((part.at, bytes)),
                    // A file that is missing is the fault of its own field.
                    Err(StoreError::Missing { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let bytes = pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let (index, url) = (Arc::clone(index), self.shards.url_of(shard.url));
        blocking(move || {
            if let Some(compressed) = index.compressed().filter(|_| !pieces.is_empty()) {
                let bytes: Vec<Bytes> = pieces.iter().map(|(_, bytes)| bytes.clone()).collect();
                let bytes = compressed.decompress(&bytes);
                let bytes = bytes.map_err(|error| StoreError::Changed { url, problem: error.to_string() })?;
                pieces = vec![(0, bytes)];
            }
            let fetched = |range: Range<u64>| slice(&pieces, range);
            let decoded = if is_columnar { index.decode(&ranges, &fetched) } else { None };
            let seen = |number: u32| {
                let record = index.record(number);
                let fields = record.fields().zip(0..).filter_map(|(field, nth)| {
                    let opened = match &decoded {
                        Some(decoded) if field.value.is_none() => decoded.open(number, nth),
                        _ => index.open(&field, &fetched).map(Some),
                    };
                    let value = opened.map_err(|error| problem_of(error, &field)).transpose()?;
                    Some(SeenField { name: field.name.to_owned(), value })
                });
                SeenRecord { key: record.key.text().into_owned(), fields: fields.collect() }
            };
            Ok((records.into_iter().map(seen).collect(), bytes))
        })
        .await
    }
}

/// Returns up to `wanted` records that are spread over a block.
fn spread(block: &Block, wanted: u32) -> Vec<u32> {
    let step = block.records.div_ceil(wanted.max(1)).max(1);
    (block.first_record..block.first_record + block.records).step_by(step as usize).collect()
}

/// Returns the ranges of the shard that these records take. Those with at most `gap` bytes between them are one.
fn ranges(index: &dyn ShardIndex, records: &[u32], gap: u64) -> Vec<Range<u64>> {
    let fields = records.iter().flat_map(|record| index.record(*record).fields());
    let mut ranges: Vec<Range<u64>> = fields.filter_map(|field| field.range()).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end + gap => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}
