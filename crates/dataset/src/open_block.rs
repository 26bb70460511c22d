//! Blocks of a dataset that are read for a measurement: all of them in order, and of each only the wanted fields.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use spdl_order::view::SampleSet;
use spdl_shard::{
    format::{DecodedBlock, Field, FieldValue, ObjectRange, OpenError, Record, ShardIndex},
    manifest::{Block, Manifest},
    store::DatasetStore,
};
use spdl_store::in_task;
use spdl_types::SampleId;
use tokio::sync::OnceCell;

use crate::{DatasetError, fields::read_together};

/// Number of shards whose indexes are read ahead.
const SHARDS_AT_ONCE: usize = 2;
/// Number of ranges of a block that are read at once.
const READS_AT_ONCE: usize = 8;
/// Number of reads of a shard that are kept for the blocks that follow.
const KEPT_READS: usize = 64;
/// Upper limit of their bytes. The latest is kept whatever its length: it can be a compressed shard.
const KEPT_BYTES: u64 = 16 << 20;

/// A block of a shard that is open.
#[derive(Clone)]
pub(crate) struct OpenBlock {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) index: Arc<dyn ShardIndex>,
    pub(crate) reads: Arc<SharedReads>,
    pub(crate) block: Block,
}

/// The latest reads of a shard. Neighbouring blocks share pages of narrow columns: each is read once for all of them.
#[derive(Debug, Default)]
pub(crate) struct SharedReads(Mutex<VecDeque<SharedRead>>);

type SharedRead = (ObjectRange, Arc<OnceCell<Bytes>>);

impl SharedReads {
    /// Reads a range, unless it was one of the latest; returns its bytes, and how many were read for it.
    async fn read(&self, at: &DatasetStore, part: &ObjectRange) -> Result<(Bytes, u64), DatasetError> {
        let is_same = |(other, _): &&SharedRead| (&other.object, &other.range) == (&part.object, &part.range);
        let cell = {
            let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let known = reads.iter().find(is_same).map(|(_, cell)| cell.clone());
            known.unwrap_or_else(|| {
                reads.truncate(KEPT_READS - 1);
                let cell = Arc::<OnceCell<Bytes>>::default();
                reads.push_front((part.clone(), cell.clone()));
                let mut bytes = 0;
                reads.retain(|(other, _)| {
                    let is_latest = bytes == 0;
                    bytes += other.range.end - other.range.start;
                    is_latest || bytes <= KEPT_BYTES
                });
                cell
            })
        };
        let mut read = 0;
        let bytes = cell.get_or_try_init(async || {
            let bytes = at.read_range(part).await?;
            read = bytes.len() as u64;
            Ok::<_, DatasetError>(bytes)
        });
        Ok((bytes.await?.clone(), read))
    }
}

/// The bytes of a block that were read.
pub(crate) struct ReadBlock {
    pub(crate) pieces: Vec<(u64, Bytes)>,
    pub(crate) ranges: Vec<Range<u64>>,
    /// Number of bytes that were read for this block. Bytes that were read for an earlier one do not count.
    pub(crate) bytes: u64,
}

/// Opens all blocks of a dataset, in order. `at` is the folder of the manifest.
pub(crate) fn open_blocks<'m>(
    at: &'m DatasetStore,
    manifest: &'m Arc<Manifest>,
) -> impl Stream<Item = Result<OpenBlock, DatasetError>> + 'm {
    stream::iter(0..manifest.shard_count())
        .map(move |shard| {
            let (at, manifest) = (at.clone(), manifest.clone());
            // A long index takes a while to be checked: the blocks of the one before are measured meanwhile.
            in_task(async move { Ok::<_, DatasetError>((shard, at.index(&manifest.shard(shard)).await?)) })
        })
        .buffered(SHARDS_AT_ONCE)
        .map_ok(move |(shard, index)| {
            let reads = Arc::<SharedReads>::default();
            let open = move |number| {
                let (block, manifest) = (manifest.block(number), manifest.clone());
                Ok::<_, DatasetError>(OpenBlock { manifest, index: index.clone(), reads: reads.clone(), block })
            };
            stream::iter(manifest.shard_blocks(shard)).map(open)
        })
        .try_flatten()
}

impl OpenBlock {
    /// Returns the numbers of its records in the shard.
    pub(crate) fn records(&self) -> Range<u32> {
        self.block.first_record..self.block.first_record + self.block.records
    }

    /// Returns where a record is, for a message: its shard and its key.
    pub(crate) fn place_of(&self, record: &Record<'_>) -> String {
        format!("shard `{}`, record `{}`", self.manifest.shard(self.block.shard).url, record.key.text())
    }

    /// Returns how many of a record's samples a view has, or all.
    pub(crate) fn kept(&self, record: &Record<'_>, view: Option<&SampleSet>) -> u64 {
        let samples = u64::from(record.samples);
        view.map_or(samples, |set| {
            let first = self.manifest.shard(self.block.shard).first_sample + u64::from(record.first_sample);
            set.below(SampleId(first + samples)) - set.below(SampleId(first))
        })
    }

    /// Returns the ranges of the shard that hold the fields that `fields_of` numbers in a record. In a columnar format, all records
    /// have the fields of the first.
    pub(crate) fn ranges_of<F: IntoIterator<Item = u32>>(
        &self,
        fields_of: impl Fn(&dyn ShardIndex, &Record<'_>) -> F,
    ) -> Vec<Range<u64>> {
        self.begins_of(|index, record| fields_of(index, record).into_iter().map(|field| (field, u64::MAX)))
    }

    /// Returns like [`ranges_of`](Self::ranges_of) the ranges that hold the beginnings of fields, each with the most bytes that it has, where
    /// these can be read alone.
    pub(crate) fn begins_of<F: IntoIterator<Item = (u32, u64)>>(
        &self,
        fields_of: impl Fn(&dyn ShardIndex, &Record<'_>) -> F,
    ) -> Vec<Range<u64>> {
        let index = &*self.index;
        if self.manifest.format().is_columnar() {
            let record = index.record(self.block.first_record);
            let name = |(field, _)| index.field(&record, field).name.to_owned();
            let names: Vec<String> = fields_of(index, &record).into_iter().map(name).collect();
            return match names.is_empty() {
                true => Vec::new(),
                false => index.project(self.block.offset..self.block.offset + self.block.bytes, &names),
            };
        }
        let mut ranges = Vec::new();
        for record in self.records().map(|record| index.record(record)) {
            let fields = fields_of(index, &record).into_iter().map(|(field, most)| (index.field(&record, field), most));
            ranges.extend(fields.filter_map(|(field, most)| self.begin_of(&field, most).or_else(|| field.range())));
        }
        read_together(index, &self.manifest.shard(self.block.shard), ranges)
    }

    /// Returns the range of the shard that holds at most `most` bytes of the beginning of a field; `None` if these cannot be read alone.
    pub(crate) fn begin_of(&self, field: &Field<'_>, most: u64) -> Option<Range<u64>> {
        let is_plain = self.index.has_plain_fields() && !self.manifest.format().is_columnar();
        let range = field.range().filter(|_| is_plain)?;
        Some(range.start..range.end.min(range.start.saturating_add(most)))
    }

    /// Reads these ranges of the shard.
    pub(crate) async fn read(&self, at: &DatasetStore, ranges: Vec<Range<u64>>) -> Result<ReadBlock, DatasetError> {
        if ranges.is_empty() {
            return Ok(ReadBlock { pieces: Vec::new(), ranges, bytes: 0 });
        }
        let shard = self.manifest.shard(self.block.shard);
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        let read =
            |part: ObjectRange| async move { Ok::<_, DatasetError>((part.at, self.reads.read(at, &part).await?)) };
        let mut reads = stream::iter(self.index.plan(&shard, &ranges)).map(read).buffered(READS_AT_ONCE);
        while let Some((place, (piece, read))) = reads.try_next().await? {
            bytes += read;
            pieces.push((place, piece));
        }
        drop(reads);
        Ok(ReadBlock { pieces, ranges, bytes })
    }

    /// Decompresses a shard that was read as a whole.
    pub(crate) fn decompressed(&self, read: ReadBlock) -> Result<ReadBlock, DatasetError> {
        let Some(compressed) = self.index.compressed().filter(|_| !read.pieces.is_empty()) else {
            return Ok(read);
        };
        let pieces: Vec<Bytes> = read.pieces.iter().map(|(_, bytes)| bytes.clone()).collect();
        let shard = compressed.decompress(&pieces).map_err(|error| DatasetError::Source {
            path: self.manifest.shard(self.block.shard).url.to_owned(),
            problem: error.to_string(),
        })?;
        Ok(ReadBlock { pieces: vec![(0, shard)], ..read })
    }

    /// Decodes what was read, if the format is columnar. `slice` returns the bytes of a range of the shard that was read.
    pub(crate) fn decode(
        &self,
        read: &ReadBlock,
        slice: &dyn Fn(Range<u64>) -> Option<Bytes>,
    ) -> Option<Arc<dyn DecodedBlock>> {
        let is_columnar = self.manifest.format().is_columnar();
        is_columnar.then(|| self.index.decode(&read.ranges, slice)).flatten()
    }
}

/// The fields of a block that were read.
#[derive(Clone, Copy)]
pub(crate) struct BlockFields<'b> {
    pub(crate) index: &'b dyn ShardIndex,
    pub(crate) slice: &'b dyn Fn(Range<u64>) -> Option<Bytes>,
    pub(crate) decoded: Option<&'b dyn DecodedBlock>,
}

impl BlockFields<'_> {
    /// Returns the value of field number `nth` of a record; `None` if the field has none.
    ///
    /// # Errors
    /// If it cannot be read: what follows the field's name in a message.
    pub(crate) fn open(&self, record: &Record<'_>, nth: u32) -> Result<Option<FieldValue>, String> {
        let field = self.index.field(record, nth);
        let opened = match self.decoded {
            Some(decoded) if field.value.is_none() => decoded.open(record.number(), nth),
            _ => self.index.open(&field, self.slice).map(Some),
        };
        opened.map_err(|error| match error {
            OpenError::Missing => "is not where its index has it".to_owned(),
            OpenError::Checksum { .. } => "has other bytes than its index says".to_owned(),
            OpenError::Malformed(problem) => problem,
            OpenError::Damaged { problem, .. } => problem.to_string(),
        })
    }
}

/// Returns the names of a record's fields, as a message has them.
pub(crate) fn names_of(record: &Record<'_>) -> String {
    record.fields().map(|field| field.name).collect::<Vec<_>>().join(", ")
}
