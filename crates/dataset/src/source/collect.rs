//! Collects the files of a source and makes records of them, in the source's order and in bounded memory.

use std::sync::Arc;

use spdl_store::{TemporaryError, TemporaryFolder};

use super::{
    DatasetError, LeftOutTally, SORT_BYTES, SourceRecord,
    fields::{note_of_pictures, pictures},
    stems::{FoundRecord, Rules, SourceFile, StemGroups, last_dot},
    twins,
};
use crate::sorter::{Sorted, SortedItems, Sorter};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Collects files.
pub(super) struct FileCollector<'c> {
    rules: Rules<'c>,
    temporary: TemporaryFolder,
    files: Sorter,
    key: Vec<u8>,
    pub(super) left_out: LeftOutTally,
}

/// The files and records that were found in a source.
pub(super) struct Collected {
    pub(super) records: RecordList,
    pub(super) classes: Vec<String>,
    pub(super) left_out: LeftOutTally,
    pub(super) notes: Vec<String>,
}

/// Records in their order, on disk if they are many.
pub(crate) struct RecordList {
    records: Arc<Sorted>,
    /// Numbers that distinguish records with the same key, by the records' numbers in the list.
    twins: Arc<Sorted>,
    temporary: TemporaryFolder,
}

impl<'c> FileCollector<'c> {
    pub(super) fn new(rules: Rules<'c>, temporary: &TemporaryFolder) -> Self {
        let files = Sorter::new(temporary, SORT_BYTES);
        Self { rules, temporary: temporary.clone(), files, key: Vec::new(), left_out: LeftOutTally::default() }
    }

    /// Returns whether the file at `path` makes a record.
    pub(super) fn makes_a_record(&self, path: &str) -> bool {
        last_dot(path).is_some_and(|dot| self.rules.ends_at(dot, path))
    }

    pub(super) fn add(&mut self, label: Option<i64>, path: &str, line: u32) -> Result<(), DatasetError> {
        self.rules.key(label, path, &mut self.key);
        Ok(self.files.push(&self.key, &line.to_le_bytes())?)
    }

    /// Adds a file whose size is known.
    pub(super) fn add_listed(&mut self, label: i64, path: &str, bytes: u64) -> Result<(), DatasetError> {
        self.rules.key(Some(label), path, &mut self.key);
        Ok(self.files.push(&self.key, &[&[0; 4][..], &bytes.to_le_bytes()].concat())?)
    }

    /// Groups the files into records, in the order of the keys that `key_of` makes of them; it may change their labels.
    /// Calls `on_file` with the path of each file.
    pub(super) fn records(
        self,
        mut key_of: impl FnMut(&mut FoundRecord) -> Vec<u8>,
        mut on_file: impl FnMut(&str),
    ) -> Result<Collected, DatasetError> {
        let Self { rules, temporary, files, mut left_out, .. } = self;
        let mut records = Sorter::new(&temporary, SORT_BYTES);
        let mut note = None;
        let mut take = |mut found: FoundRecord| {
            if note.is_none() && rules.choice.is_none() {
                note = note_of_several(&found.record);
            }
            let key = key_of(&mut found);
            Ok(records.push(&key, &found.record.payload())?)
        };
        let mut groups = StemGroups::new(&rules);
        for item in files.finish()?.iter()? {
            let item = item?;
            let (line, bytes) = item.payload.split_first_chunk().expect("the payload begins with a number");
            let bytes = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            let file = SourceFile::of_key(&item.key, u32::from_le_bytes(*line), bytes);
            on_file(&file.path);
            groups.add(file, &mut left_out, &mut take)?;
        }
        groups.finish(&mut left_out, &mut take)?;
        let records = records.finish()?;
        assert!(u32::try_from(records.len()).is_ok(), "{} records", records.len());
        let twins = twins::distinguish(&records, &temporary)?;
        let records = RecordList { records, twins, temporary };
        Ok(Collected { records, classes: Vec::new(), left_out, notes: note.into_iter().collect() })
    }
}

/// Describes a record with several pictures.
fn note_of_several(record: &SourceRecord) -> Option<String> {
    let fields: Vec<String> = record.files().map(|path| record.field(path, None)).collect();
    note_of_pictures(&record.key(), &pictures(fields.iter().map(String::as_str)))
}

impl RecordList {
    pub(crate) fn len(&self) -> u64 {
        self.records.len()
    }

    /// Iterates over the records.
    pub(crate) fn iter(&self) -> Result<ListedRecords, DatasetError> {
        let mut twins = TwinNumbers { items: self.twins.iter()?, next: None };
        twins.advance()?;
        Ok(ListedRecords { records: self.records.iter()?, number: 0, twins })
    }

    /// Returns the records in an order that is mixed by a hash of their numbers, keyed with the seed.
    pub(crate) fn shuffled(self, seed: u64) -> Result<Self, DatasetError> {
        let mut records = Sorter::new(&self.temporary, SORT_BYTES);
        for (number, record) in (0_u32..).zip(self.iter()?) {
            let hash = xxh3_64_with_seed(&number.to_le_bytes(), seed);
            records.push(&[&hash.to_be_bytes()[..], &number.to_be_bytes()].concat(), &record?.payload())?;
        }
        let twins = Sorter::new(&self.temporary, SORT_BYTES).finish()?;
        Ok(Self { records: records.finish()?, twins, ..self })
    }
}

/// Iterates over the records of a list.
pub(crate) struct ListedRecords {
    records: SortedItems,
    number: u32,
    twins: TwinNumbers,
}

struct TwinNumbers {
    items: SortedItems,
    /// The next record that has such a number, and the number.
    next: Option<(u32, u32)>,
}

impl Iterator for ListedRecords {
    type Item = Result<SourceRecord, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.records.next()?;
        Some(item.and_then(|item| self.record(&item.payload)).map_err(Into::into))
    }
}

impl ListedRecords {
    fn record(&mut self, payload: &[u8]) -> Result<SourceRecord, TemporaryError> {
        let mut record = SourceRecord::of_payload(payload);
        if let Some((_, twin)) = self.twins.next.filter(|(number, _)| *number == self.number) {
            record.twin = twin;
            self.twins.advance()?;
        }
        self.number += 1;
        Ok(record)
    }
}

impl TwinNumbers {
    fn advance(&mut self) -> Result<(), TemporaryError> {
        let item = self.items.next().transpose()?;
        let chunk = |bytes: &[u8]| *bytes.first_chunk().expect("4 bytes");
        self.next = item.map(|item| (u32::from_be_bytes(chunk(&item.key)), u32::from_le_bytes(chunk(&item.payload))));
        Ok(())
    }
}
