//! What is noted of a shard while its bytes pass, whether they are being written or read: the record index, the
//! blocks, the samples of annotated records, and what is odd.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use super::{DatasetError, blocks::BlockCutter};
use crate::{
    Fingerprint,
    index::{IndexBuilder, Segments},
    manifest::{BlockFacts, ShardFacts},
    tar::{RecordReader, ScannedRecord},
    voc::{Annotation, MAX_ANNOTATION_BYTES, VocError},
};

/// Notes that a report keeps at most; what is beyond is counted only.
pub(super) const MAX_NOTES: usize = 100;

/// Makes a shard's index while its bytes pass.
#[derive(Debug)]
pub(super) struct Catalog {
    shard: String,
    reader: RecordReader,
    records: Records,
}

#[derive(Debug)]
struct Records {
    boxes: Option<String>,
    index: IndexBuilder,
    blocks: BlockCutter,
    /// Tables of pictures whose records are not complete, in their order.
    tables: VecDeque<SegmentsOf>,
    odd: Oddities,
    error: Option<crate::FormatError>,
}

/// A table of segments, and the picture that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SegmentsOf {
    /// Key of its record.
    pub(super) key: String,
    /// Number of its field in the record.
    pub(super) field: u32,
    pub(super) step: u32,
    pub(super) lengths: Vec<[u8; 2]>,
}

/// What is worth telling of a shard's records.
#[derive(Debug, Default)]
pub(super) struct Oddities {
    /// Classes of the objects in annotations.
    pub(super) classes: BTreeSet<String>,
    pub(super) empty_fields: u64,
    pub(super) records_without_samples: u64,
    pub(super) bad_annotations: u64,
    pub(super) notes: Vec<String>,
}

/// A shard, catalogued.
#[derive(Debug)]
pub(super) struct Catalogued {
    pub(super) facts: ShardFacts,
    pub(super) blocks: Vec<BlockFacts>,
    pub(super) index: Bytes,
    pub(super) odd: Oddities,
}

impl Catalog {
    /// A catalogue of the shard at `shard` in its folder. With `boxes`, a record has as many samples as its field of
    /// that name has objects; otherwise one.
    pub(super) fn new(shard: &str, boxes: Option<&str>, block_bytes: u64) -> Self {
        let reader = RecordReader::new(shard);
        let reader = match boxes {
            Some(field) => reader.keep(field, MAX_ANNOTATION_BYTES),
            None => reader,
        };
        let records = Records {
            boxes: boxes.map(str::to_owned),
            index: IndexBuilder::new(),
            blocks: BlockCutter::new(block_bytes),
            tables: VecDeque::new(),
            odd: Oddities::default(),
            error: None,
        };
        Self { shard: shard.to_owned(), reader, records }
    }

    /// Notes the records in the shard's next bytes.
    pub(super) fn read(&mut self, chunk: &[u8]) -> Result<(), DatasetError> {
        let (shard, records) = (&self.shard, &mut self.records);
        self.reader.read(chunk, |record| records.record(shard, record))?;
        self.check()
    }

    /// Notes the table of a picture in a record that is read next, or behind others that are known to come.
    pub(super) fn expect(&mut self, table: SegmentsOf) {
        self.records.tables.push_back(table);
    }

    /// Records that are complete so far.
    pub(super) fn record_count(&self) -> u32 {
        self.records.index.record_count()
    }

    /// Ends the shard, whose object has `etag`.
    pub(super) fn finish(mut self, etag: Option<String>) -> Result<Catalogued, DatasetError> {
        let (last, shard_bytes) = self.reader.finish()?;
        if let Some(record) = last {
            self.records.record(&self.shard, record);
        }
        let Records { index, blocks, odd, error, .. } = self.records;
        let unwritable = |source| DatasetError::Unwritable { url: self.shard.clone(), source };
        error.map_or(Ok(()), |error| Err(unwritable(error)))?;
        let (index, index_hash): (_, Fingerprint) = index.finish(shard_bytes).map_err(unwritable)?;
        let too_long = || crate::FormatError::Unwritable("one of its records has 4 GiB or more".to_owned());
        let blocks = blocks.finish().ok_or_else(|| unwritable(too_long()))?;
        let facts = ShardFacts {
            url: self.shard.clone(),
            bytes: shard_bytes,
            etag,
            records: index.record_count(),
            index_bytes: index.bytes().len() as u64,
            index_hash,
        };
        Ok(Catalogued { facts, blocks, index: index.bytes().clone(), odd })
    }

    fn check(&mut self) -> Result<(), DatasetError> {
        match self.records.error.take() {
            Some(source) => Err(DatasetError::Unwritable { url: self.shard.clone(), source }),
            None => Ok(()),
        }
    }
}

impl Records {
    fn record(&mut self, shard: &str, record: ScannedRecord) {
        let number = self.index.record_count();
        for field in record.fields.iter().filter(|field| field.bytes == 0) {
            self.odd.empty_fields += 1;
            self.odd.note(|| format!("shard `{shard}`, record `{}`: field `{}` is empty", record.key, field.name));
        }
        let samples = self.samples(shard, &record);
        self.odd.records_without_samples += u64::from(samples == 0);
        self.blocks.record(number, record.start, record.end, samples);
        let fields = record.fields.iter().map(|field| (field.name.as_str(), field.offset, field.bytes, field.crc32c));
        let mut added = self.index.record(&record.key, samples, fields);
        if let Some(table) = self.tables.pop_front_if(|table| table.key == record.key) {
            let segments = Segments { step: table.step, lengths: &table.lengths };
            added = added.and_then(|()| self.index.segments(table.field, segments));
        }
        if let Err(error) = added {
            self.error.get_or_insert(error);
        }
    }

    fn samples(&mut self, shard: &str, record: &ScannedRecord) -> u32 {
        let Some(boxes) = &self.boxes else { return 1 };
        let Some(field) = record.fields.iter().find(|field| field.name == *boxes) else { return 0 };
        let annotation = match &field.content {
            Some(content) => Annotation::parse(content),
            None => Err(VocError::TooLong(field.bytes as usize)),
        };
        match annotation {
            Ok(annotation) => {
                let samples = annotation.objects.len() as u32;
                self.odd.classes.extend(annotation.objects.into_iter().map(|object| object.class));
                samples
            }
            Err(error) => {
                self.odd.bad_annotations += 1;
                self.odd.note(|| format!("shard `{shard}`, record `{}`: {error}", record.key));
                0
            }
        }
    }
}

impl Oddities {
    pub(super) fn note(&mut self, note: impl FnOnce() -> String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note());
        }
    }
}
