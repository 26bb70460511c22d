//! The input and the results of a format that scans a folder for the shards of a dataset.

use std::collections::{BTreeMap, BTreeSet};

use spdl_shard::{
    index::IndexFile,
    manifest::{BlockFacts, ShardFacts},
    store::DatasetStore,
};
use spdl_store::TemporaryFolder;

use super::{DatasetError, IndexOptions, LeftOutTally, listing::Listing, progress::Meter};
use crate::tar::OddTally;

/// Upper limit of the notes that a report keeps; more are only counted.
pub(super) const MAX_NOTES: usize = 100;

/// A folder to scan.
pub(crate) struct Scan<'s> {
    pub(crate) from: &'s DatasetStore,
    /// The objects in the folder, or those that the caller chose.
    pub(crate) folder: Listing,
    /// Whether the caller chose the objects.
    pub(crate) is_chosen: bool,
    pub(crate) options: &'s IndexOptions,
    /// Size at which blocks are cut, in bytes.
    pub(crate) block_bytes: u64,
    /// The folder for what does not fit into memory.
    pub(crate) temporary: TemporaryFolder,
    /// The classes whose numbers are fixed, in the order of their numbers; others follow, by name.
    pub(crate) classes: Vec<String>,
    pub(crate) meter: &'s Meter<'s>,
}

impl Scan<'_> {
    /// Returns what becomes of shards that are bad.
    pub(crate) fn bad_shards(&self) -> BadShards {
        if self.options.skip_bad_shards > 0 { BadShards::AreNamed } else { BadShards::EndTheScan }
    }
}

/// What becomes of shards that are bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadShards {
    EndTheScan,
    /// They are results of the scan, in their order among the others.
    AreNamed,
}

impl BadShards {
    /// Returns the result of scanning the shard called `shard`.
    pub(crate) fn result(
        self,
        shard: &str,
        scanned: Result<ScannedShard, DatasetError>,
    ) -> Result<ShardResult, DatasetError> {
        match scanned {
            Ok(scanned) => Ok(ShardResult::Scanned(Box::new(scanned))),
            Err(error) if self == Self::AreNamed && error.is_of_shard() => {
                Ok(ShardResult::Bad(BadShard { shard: shard.to_owned(), error }))
            }
            Err(error) => Err(error),
        }
    }
}

/// The result of scanning a shard.
#[derive(Debug)]
pub(crate) enum ShardResult {
    /// It can be read.
    Scanned(Box<ScannedShard>),
    /// It cannot be read, because the shard itself is at fault.
    Bad(BadShard),
}

/// A shard that cannot be read.
#[derive(Debug)]
pub(crate) struct BadShard {
    /// Its name.
    pub(crate) shard: String,
    pub(crate) error: DatasetError,
}

/// A shard that was found: its entries in the manifest, and its index.
#[derive(Debug)]
pub(crate) struct ScannedShard {
    pub(crate) facts: ShardFacts,
    pub(crate) blocks: Vec<BlockFacts>,
    pub(crate) index: IndexFile,
    pub(crate) odd: DatasetOddities,
}

/// The oddities and statistics of a shard's records, for the report.
#[derive(Debug, Default)]
pub(crate) struct DatasetOddities {
    /// Fields: the number of records that have each, and the field's number in the order of first appearance.
    pub(crate) fields: BTreeMap<String, (u64, usize)>,
    /// The fields that some records may lack and whose records were not counted. For these, `fields` has the number of
    /// records that can have them.
    pub(crate) uncounted: BTreeSet<String>,
    /// Classes of the objects in annotations.
    pub(crate) classes: BTreeSet<String>,
    /// The classes whose numbers fields have, where shards state them: by the field, in the order of their numbers.
    pub(crate) class_lists: BTreeMap<String, Vec<String>>,
    pub(crate) empty_fields: u64,
    /// Members and records, counted by what is odd about them.
    pub(crate) members: OddTally,
    /// The first record with a picture that may be meant as a record of its own.
    pub(crate) dotted: Option<DottedRecord>,
    /// The first and the last record.
    pub(crate) ends: Option<[Outline; 2]>,
    pub(crate) records_without_samples: u64,
    pub(crate) bad_annotations: u64,
    /// Files that are in no record.
    pub(crate) left_out: LeftOutTally,
    pub(crate) notes: Vec<String>,
}

/// A record with a picture whose field has a dot in its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DottedRecord {
    pub(super) shard: String,
    pub(super) key: String,
}

/// The key of a record and the names of its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outline {
    pub(crate) key: String,
    pub(crate) fields: Vec<String>,
}

impl DatasetOddities {
    /// Counts a field of a record.
    pub(crate) fn field(&mut self, name: &str) {
        match self.fields.get_mut(name) {
            Some((records, _)) => *records += 1,
            None => drop(self.fields.insert(name.to_owned(), (1, self.fields.len()))),
        }
    }

    /// Adds a field of a format whose records all have the same, with the number of the records that have it, if that is known.
    pub(crate) fn shared_field(&mut self, name: &str, records: u32, having: Option<u64>) {
        if records == 0 {
            return;
        }
        let number = self.fields.len();
        self.fields.insert(name.to_owned(), (having.unwrap_or(records.into()), number));
        if having.is_none() {
            self.uncounted.insert(name.to_owned());
        }
    }

    /// Returns the number of a field that occurred before.
    pub(crate) fn field_number(&self, name: &str) -> usize {
        self.fields[name].1
    }

    /// Notes the next record of the shard.
    pub(crate) fn end(&mut self, record: Outline) {
        match &mut self.ends {
            Some([_, last]) => *last = record,
            none => *none = Some([record.clone(), record]),
        }
    }

    pub(crate) fn note(&mut self, note: impl FnOnce() -> String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note());
        }
    }
}
