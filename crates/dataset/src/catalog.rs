//! Collects facts about a tar while its bytes are written or read: the record index, the blocks, the samples of
//! annotated records, and the oddities.

use std::{collections::VecDeque, sync::Arc};

use spdl_shard::{
    index::{IndexBuilder, Segments},
    manifest::{ShardFacts, is_class_name},
    voc::{Annotation, MAX_ANNOTATION_BYTES, VocError},
};
use spdl_store::{TemporaryError, TemporaryFolder};

use super::{
    DatasetError,
    blocks::BlockCutter,
    dots,
    keys::KeyCollector,
    scan::{DatasetOddities, Outline, ScannedShard},
};
use crate::{
    LeftOutReason, MemberTable,
    passing_tables::PassingTables,
    tar::{KeyEnd, RecordReader, ScannedRecord, TarEnd},
};

/// Builds a shard's index while its bytes pass.
#[derive(Debug)]
pub(crate) struct Catalog {
    shard: String,
    reader: RecordReader,
    records: Records,
}

#[derive(Debug)]
struct Records {
    boxes: Option<String>,
    index: IndexBuilder,
    blocks: BlockCutter,
    /// Tables of segments of pictures whose records are not complete, in their order.
    tables: VecDeque<SegmentsOf>,
    keys: KeyCollector,
    odd: DatasetOddities,
    /// Whether pictures with a dot in their fields' names are looked for: each may be meant as a record.
    looks_for_dots: bool,
    /// What is said of members. Records of which it says nothing are left out.
    table: Option<Arc<MemberTable>>,
    error: Option<DatasetError>,
}

/// A table of segments, with the key of the picture's record and the number of its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SegmentsOf {
    /// Key of its record.
    pub(super) key: String,
    /// Number of its field in the record.
    pub(super) field: u32,
    pub(super) step: u32,
    pub(super) lengths: Vec<[u8; 2]>,
}

impl Catalog {
    /// Creates a catalogue of the shard at `shard` in its folder. With `boxes`, a record has as many samples as its
    /// field of that name has objects; otherwise one.
    /// What does not fit into memory goes to `temporary`.
    pub(crate) fn new(shard: &str, boxes: Option<&str>, block_bytes: u64, temporary: &TemporaryFolder) -> Self {
        let reader = RecordReader::new(shard);
        let reader = match boxes {
            Some(field) => reader.keep(field, MAX_ANNOTATION_BYTES),
            None => reader,
        };
        let records = Records {
            boxes: boxes.map(str::to_owned),
            index: IndexBuilder::in_folder(temporary),
            blocks: BlockCutter::new(block_bytes),
            tables: VecDeque::new(),
            keys: KeyCollector::new(temporary),
            odd: DatasetOddities::default(),
            looks_for_dots: false,
            table: None,
            error: None,
        };
        Self { shard: shard.to_owned(), reader, records }
    }

    /// Sets where keys end. Without it, they end at the first dot, and the catalogue notes which pictures may be meant
    /// as records of their own.
    pub(crate) fn key_end(mut self, key_end: Option<KeyEnd>) -> Self {
        self.reader = self.reader.key_end(key_end.unwrap_or_default());
        self.records.looks_for_dots = key_end.is_none();
        self
    }

    /// Makes tables of the packets of long sounds and videos, of which a worker then reads parts; until one is made, what it takes lies in
    /// `temporary`.
    pub(crate) fn packet_tables(mut self, temporary: &TemporaryFolder) -> Self {
        self.reader = self.reader.packet_tables(Some(PassingTables::new(temporary)));
        self
    }

    /// Sets the table that says which records there are, and gives them values.
    pub(crate) fn table(mut self, table: Option<Arc<MemberTable>>) -> Self {
        self.records.odd.classes.extend(table.iter().flat_map(|table| table.classes()).cloned());
        self.records.table = table;
        self
    }

    /// Adds the records in the shard's next bytes.
    pub(crate) fn read(&mut self, chunk: &[u8]) -> Result<(), DatasetError> {
        let (shard, records) = (&self.shard, &mut self.records);
        self.reader.read(chunk, |record| records.record(shard, record))?;
        self.check()
    }

    /// Adds the table of a picture. Its record is the next to be read, or follows the records of tables that were added
    /// before.
    pub(super) fn expect(&mut self, table: SegmentsOf) {
        self.records.tables.push_back(table);
    }

    /// Returns the number of records that are complete so far.
    pub(crate) fn record_count(&self) -> u32 {
        self.records.index.record_count()
    }

    /// Finishes the shard, whose object has `etag`.
    pub(crate) fn finish(mut self, etag: Option<String>) -> Result<ScannedShard, DatasetError> {
        let TarEnd { record, bytes: shard_bytes, odd: members, temporary_error } = self.reader.finish()?;
        temporary_error.map_or(Ok(()), Err)?;
        if let Some(record) = record {
            self.records.record(&self.shard, record);
        }
        let Records { index, blocks, keys, mut odd, error, .. } = self.records;
        odd.members.join(members);
        let unwritable = |source| DatasetError::Unwritable { url: self.shard.clone(), source };
        error.map_or(Ok(()), Err)?;
        for (what, repeated) in keys.repeated()? {
            let key = index.key(repeated.first).map_err(unwritable)?;
            odd.members.add_some(what, repeated.count, &self.shard, &key);
        }
        let records = index.record_count();
        let index = index.write(shard_bytes).map_err(unwritable)?;
        let too_long = || spdl_shard::FormatError::Unwritable("one of its records has 4 GiB or more".to_owned());
        let blocks = blocks.finish().ok_or_else(|| unwritable(too_long()))?;
        let facts = ShardFacts {
            url: self.shard.clone(),
            bytes: shard_bytes,
            etag,
            records,
            index_bytes: index.bytes(),
            index_hash: index.hash(),
        };
        Ok(ScannedShard { facts, blocks, index, odd })
    }

    fn check(&mut self) -> Result<(), DatasetError> {
        if let Some(error) = self.reader.made_tables().and_then(PassingTables::error) {
            return Err(error.into());
        }
        self.records.error.take().map_or(Ok(()), Err)
    }
}

impl Records {
    fn record(&mut self, shard: &str, record: ScannedRecord) {
        let added = match self.table.clone() {
            Some(table) => self.with_rows(shard, record, &table),
            None => self.add(shard, &record),
        };
        if let Err(error) = added {
            self.error.get_or_insert(error);
        }
    }

    /// Adds the records that a table makes of one in the shard: one for each of its rows.
    fn with_rows(&mut self, shard: &str, mut record: ScannedRecord, table: &MemberTable) -> Result<(), DatasetError> {
        let mut rows = table.rows(&record)?;
        let Some(first) = rows.first() else {
            let name = record.fields.first().map_or_else(String::new, |field| format!("{}.{}", record.key, field.name));
            self.odd.left_out.add(&name, LeftOutReason::NoRow);
            return Ok(());
        };
        // A value replaces a member of the same field, but for the member that the row names.
        let named = record.fields[first.member].name.clone();
        rows.iter_mut().for_each(|row| row.values.retain(|(name, _)| *name != named));
        let is_taken = |field: &str| rows.iter().any(|row| row.values.iter().any(|(name, _)| name == field));
        let (key, left_out) = (&record.key, &mut self.odd.left_out);
        record.fields.retain(|field| {
            let is_kept = !is_taken(&field.name);
            if !is_kept {
                left_out.add(&format!("{key}.{}", field.name), LeftOutReason::FieldTaken);
            }
            is_kept
        });
        let unwritable = |source| DatasetError::Unwritable { url: shard.to_owned(), source };
        for (nth, row) in rows.into_iter().enumerate() {
            record.key = row.key;
            if nth == 0 {
                self.add(shard, &record)?;
            } else {
                self.add_sharing(shard, &record)?;
            }
            row.values.iter().for_each(|(name, _)| self.odd.field(name));
            let values = row.values.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            self.index.values(&record.key, values).map_err(unwritable)?;
        }
        Ok(())
    }

    /// Adds a record whose members are those of the one before.
    fn add_sharing(&mut self, shard: &str, record: &ScannedRecord) -> Result<(), DatasetError> {
        let number = self.index.record_count();
        record.fields.iter().for_each(|field| self.odd.field(&field.name));
        self.key(number, record)?;
        self.blocks.record(number, record.start, record.end, 1);
        let unwritable = |source| DatasetError::Unwritable { url: shard.to_owned(), source };
        self.index.record_sharing(&record.key, 1).map_err(unwritable)
    }

    fn add(&mut self, shard: &str, record: &ScannedRecord) -> Result<(), DatasetError> {
        let number = self.index.record_count();
        for field in &record.fields {
            self.odd.field(&field.name);
            if field.bytes == 0 {
                self.odd.empty_fields += 1;
                self.odd.note(|| format!("shard `{shard}`, record `{}`: field `{}` is empty", record.key, field.name));
            }
        }
        if self.looks_for_dots && self.odd.dotted.is_none() {
            self.odd.dotted = dots::dotted(shard, record);
        }
        self.key(number, record)?;
        let samples = self.samples(shard, record);
        self.odd.records_without_samples += u64::from(samples == 0);
        self.blocks.record(number, record.start, record.end, samples);
        let fields = record.fields.iter().map(|field| (field.name.as_str(), field.offset, field.bytes, field.crc32c));
        let mut added = self.index.record(&record.key, samples, fields);
        while let Some(table) = self.tables.pop_front_if(|table| table.key == record.key) {
            let segments = Segments { step: table.step, lengths: &table.lengths };
            added = added.and_then(|()| self.index.segments(table.field, segments));
        }
        for (field, table) in (0..).zip(record.fields.iter().map(|field| &field.packet_table)) {
            let Some(table) = table else { continue };
            added = added.and_then(|()| self.index.packet_table(field, table));
        }
        added.map_err(|source| DatasetError::Unwritable { url: shard.to_owned(), source })
    }

    /// Notes the key and the fields of a record.
    fn key(&mut self, number: u32, record: &ScannedRecord) -> Result<(), TemporaryError> {
        let fields = record.fields.iter().map(|field| self.odd.field_number(&field.name)).collect();
        let outline =
            Outline { key: record.key.clone(), fields: record.fields.iter().map(|f| f.name.clone()).collect() };
        self.odd.end(outline);
        self.keys.add(number, &record.key, fields)
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
                if let Some(object) = annotation.objects.iter().find(|object| !is_class_name(&object.class)) {
                    let class = object.class.escape_debug();
                    self.odd.bad_annotations += 1;
                    self.odd.note(|| {
                        format!("shard `{shard}`, record `{}`: `{class}` cannot be a class's name", record.key)
                    });
                    return 0;
                }
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
