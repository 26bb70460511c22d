//! Reads whole records of a dataset, of every format: a few that are spread over it, all, or the one of a sample.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use spdl_shard::{
    format::{FieldValue, ShardIndex},
    manifest::{Block, Manifest, Shard},
    store::DatasetStore,
};
use spdl_store::{StoreError, blocking};
use spdl_types::SampleId;

use super::{DatasetError, cut::problem_of, fields::read_together, slice};

/// Maximum number of blocks that spread records are of, and of shards whose indexes are looked through for further fields.
const SPREAD_BLOCKS: u32 = 16;
/// After so many bytes of spread records no more are read.
const SPREAD_BYTES: u64 = 256 << 20;

/// Which records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookAt {
    /// All.
    All,
    /// About as many, spread over the dataset; fewer where they are large.
    Spread(u32),
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRecord {
    /// Its key.
    pub key: String,
    /// The fields that have a value, by their names.
    pub fields: Vec<SeenField>,
}

/// A field that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenField {
    /// Its name.
    pub name: String,
    /// Its value, or what is wrong with it.
    pub value: Result<FieldValue, String>,
    /// Whether it is a frame of a video, of which the value is the path.
    pub is_frame: bool,
}

/// Reads records of a dataset.
#[derive(Debug)]
pub struct SampleReader {
    shards: DatasetStore,
    manifest: Manifest,
    /// The fields that are read, if these are not all.
    only: Option<Vec<String>>,
    /// The index that was read last, with the number of its shard: neighbours are mostly of one shard.
    latest: Mutex<Option<(u32, Arc<dyn ShardIndex>)>>,
}

impl SampleReader {
    /// Reads the manifest of a dataset.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn open(dataset: &DatasetStore) -> Result<Self, DatasetError> {
        let manifest = dataset.manifest().await?;
        Ok(Self { shards: dataset.shards(&manifest)?, manifest, only: None, latest: Mutex::default() })
    }

    /// Creates a reader of these fields of a dataset.
    ///
    /// # Errors
    /// If the place of its shards is invalid.
    pub(crate) fn of_fields(
        dataset: &DatasetStore,
        manifest: Manifest,
        fields: Vec<String>,
    ) -> Result<Self, DatasetError> {
        Ok(Self { shards: dataset.shards(&manifest)?, manifest, only: Some(fields), latest: Mutex::default() })
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
        let wanted = match which {
            LookAt::Spread(wanted) if u64::from(wanted) < self.manifest.records() => Some(wanted),
            LookAt::Spread(_) | LookAt::All => None,
        };
        let step = wanted.map_or(1, |wanted| blocks.div_ceil(wanted.clamp(1, SPREAD_BLOCKS)).max(1));
        let chosen: Vec<Block> = (0..blocks).step_by(step as usize).map(|block| self.manifest.block(block)).collect();
        let (count, mut read_bytes) = (chosen.len() as u32, 0);
        for of_shard in chosen.chunk_by(|a, b| a.shard == b.shard) {
            let (shard, index) = self.shard(of_shard[0].shard).await?;
            let records = |block: &Block| match wanted {
                None => (block.first_record..block.first_record + block.records).collect(),
                Some(wanted) => spread(block, wanted.div_ceil(count)),
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
        let (shard, index) = self.shard(block.shard).await?;
        let (record, nth) = index.locate((sample - shard.first_sample) as u32);
        let (mut records, _) = self.records(&shard, &index, &block, vec![record]).await?;
        Ok((records.remove(0), nth))
    }

    /// Returns a sample with each field that is not known, such as the few PNGs among many JPEGs; of at most `most` fields. Looks through
    /// the indexes of shards that are spread over the dataset, and reads no values.
    ///
    /// # Errors
    /// If an index cannot be read.
    pub async fn samples_of_further_fields(
        &self,
        is_known: impl Fn(&str) -> bool,
        most: usize,
    ) -> Result<Vec<u64>, DatasetError> {
        let (mut names, mut samples) = (BTreeSet::new(), Vec::new());
        let step = self.manifest.shard_count().div_ceil(SPREAD_BLOCKS).max(1);
        for number in (0..self.manifest.shard_count()).step_by(step as usize) {
            let (shard, index) = self.shard(number).await?;
            // All records of a columnar shard have the same fields, some of them without a value.
            if shard.format.is_columnar() {
                continue;
            }
            for record in index.records().filter(|record| record.samples > 0) {
                let further = record.fields().filter(|field| !is_known(field.name) && !names.contains(field.name));
                let further: Vec<String> = further.map(|field| field.name.to_owned()).collect();
                if !further.is_empty() {
                    samples.push(shard.first_sample + u64::from(record.first_sample));
                    names.extend(further);
                }
                if samples.len() >= most {
                    return Ok(samples);
                }
            }
        }
        Ok(samples)
    }

    /// Reads the records of the first of these samples and of those that follow it in its block.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Panics
    /// If there is no such sample.
    pub(crate) async fn of_one_block(
        &self,
        samples: impl IntoIterator<Item = SampleId>,
    ) -> Result<Vec<SeenRecord>, DatasetError> {
        let mut samples = samples.into_iter().peekable();
        let Some(first) = samples.peek() else { return Ok(Vec::new()) };
        let block = self.manifest.block(self.manifest.block_of(first.0).expect("the dataset has this sample"));
        let (shard, index) = self.shard(block.shard).await?;
        let range = block.first_sample..block.first_sample + u64::from(block.samples);
        let numbers =
            samples.take_while(|sample| range.contains(&sample.0)).map(|sample| sample.0 - shard.first_sample);
        let mut records: Vec<u32> = numbers.map(|number| index.locate(number as u32).0).collect();
        records.dedup();
        Ok(self.records(&shard, &index, &block, records).await?.0)
    }

    /// Returns a shard and its index.
    async fn shard(&self, number: u32) -> Result<(Shard<'_>, Arc<dyn ShardIndex>), DatasetError> {
        let shard = self.manifest.shard(number);
        let latest = || self.latest.lock().expect("nothing panics while it is locked");
        let known = latest().as_ref().filter(|(latest, _)| *latest == number).map(|(_, index)| Arc::clone(index));
        let index = match known {
            Some(index) => index,
            None => self.shards.index(&shard).await?,
        };
        *latest() = Some((number, Arc::clone(&index)));
        Ok((shard, index))
    }

    /// Passes the key and the first sample of each record that has samples to `each`. Reads the indexes of all shards.
    ///
    /// # Errors
    /// If an index cannot be read.
    pub async fn keys(&self, mut each: impl FnMut(&str, u64)) -> Result<(), DatasetError> {
        for shard in self.manifest.shards() {
            let index = self.shards.index(&shard).await?;
            for record in index.records().filter(|record| record.samples > 0) {
                each(&record.key.text(), shard.first_sample + u64::from(record.first_sample));
            }
        }
        Ok(())
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
        let is_wanted = |name: &str| self.only.as_ref().is_none_or(|only| only.iter().any(|wanted| wanted == name));
        let whole = block.offset..block.offset + block.bytes;
        let ranges = match (is_columnar, &self.only) {
            (true, None) => std::iter::once(whole).collect(),
            (true, Some(only)) => index.project(whole, only),
            (false, _) => {
                let fields = records.iter().flat_map(|record| index.record(*record).fields());
                let fields = fields.filter(|field| is_wanted(field.name));
                // Of a field without a byte there is nothing to read.
                let ranges = fields.filter_map(|field| field.range()).filter(|range| !range.is_empty());
                read_together(&**index, shard, ranges.collect())
            }
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
        let (index, url, only) = (Arc::clone(index), self.shards.url_of(shard.url), self.only.clone());
        blocking(move || {
            if let Some(compressed) = index.compressed().filter(|_| !pieces.is_empty()) {
                let bytes: Vec<Bytes> = pieces.iter().map(|(_, bytes)| bytes.clone()).collect();
                let bytes = compressed.decompress(&bytes);
                let bytes = bytes.map_err(|error| StoreError::Changed { url, problem: error.to_string() })?;
                pieces = vec![(0, bytes)];
            }
            let fetched = |range: Range<u64>| slice(&pieces, range);
            let decoded = if is_columnar && !ranges.is_empty() { index.decode(&ranges, &fetched) } else { None };
            let seen = |number: u32| {
                let record = index.record(number);
                let is_wanted = |name: &str| only.as_ref().is_none_or(|only| only.iter().any(|wanted| wanted == name));
                let fields = record.fields().zip(0..).filter(|(field, _)| is_wanted(field.name));
                let fields = fields.filter_map(|(field, nth)| {
                    let opened = match &decoded {
                        Some(decoded) if field.value.is_none() => decoded.open(number, nth),
                        _ => index.open(&field, &fetched).map(Some),
                    };
                    let value = opened.map_err(|error| problem_of(error, &field)).transpose()?;
                    let is_frame = index.frame(&record, nth).is_some();
                    Some(SeenField { name: field.name.to_owned(), value, is_frame })
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
    let count = wanted.min(block.records);
    let at = |nth: u32| (u64::from(nth) * u64::from(block.records) / u64::from(count)) as u32;
    (0..count).map(|nth| block.first_record + at(nth)).collect()
}
