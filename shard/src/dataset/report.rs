//! What is told of a dataset while and after it is made.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use serde::Serialize;

use super::{
    LeftOut,
    catalog::{Catalogued, DatasetOddities, MAX_NOTES, Outline},
};
use crate::{
    Fingerprint,
    index::Segments,
    manifest::Manifest,
    tar::{OddMembers, TarOddity},
};

/// How far the work is. Totals are known for records when packing, for bytes otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DatasetProgress {
    pub shards: u64,
    pub records: u64,
    pub bytes: u64,
    pub total_records: Option<u64>,
    pub total_bytes: Option<u64>,
}

/// A dataset that was made, and what was odd about what it was made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DatasetReport {
    /// URL of its folder.
    pub url: String,
    /// Fingerprint of its manifest.
    pub fingerprint: Fingerprint,
    /// Shards in it.
    pub shards: u32,
    /// Blocks in it.
    pub blocks: u32,
    /// Records in it.
    pub records: u64,
    /// Samples in it.
    pub samples: u64,
    /// Bytes of its shards.
    pub bytes: u64,
    /// Number of its classes.
    pub classes: usize,
    /// Their names, in the order of their numbers; the first hundred.
    pub class_names: Vec<String>,
    /// Its fields, and how many records have each.
    pub fields: BTreeMap<String, u64>,
    /// Members and records of its shards that are not read as one would think, by what is odd about them.
    pub odd_members: Vec<OddMembers>,
    /// Fields without a byte: whoever decodes them finds a bad sample.
    pub empty_fields: u64,
    /// Records that give no sample because their annotation has no objects or is missing or bad.
    pub records_without_samples: u64,
    /// Annotations that could not be parsed; counted in `records_without_samples` too.
    pub bad_annotations: u64,
    /// Pictures that were left out for want of an annotation.
    pub pictures_without_annotation: u64,
    /// Files that were left out, whatever the reason.
    pub skipped_files: u64,
    /// The same by suffix and reason.
    pub left_out: Vec<LeftOut>,
    /// Pictures that were made crop-ready; those that could not be are as they were.
    pub crop_ready_pictures: u64,
    /// Bytes that these had before.
    pub crop_ready_source_bytes: u64,
    /// Bytes that they have, with their tables of segments in the record indexes.
    pub crop_ready_bytes: u64,
    /// The first hundred of these, by name.
    pub notes: Vec<String>,
}

/// Adds up what the catalogues of shards tell.
#[derive(Debug, Default)]
pub(super) struct DatasetTally {
    pub(super) odd: DatasetOddities,
    pub(super) pictures_without_annotation: u64,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) growth: Growth,
    pub(super) bytes: u64,
}

impl DatasetTally {
    pub(super) fn add(&mut self, shard: &mut Catalogued) {
        self.bytes += shard.facts.bytes;
        let odd = std::mem::take(&mut shard.odd);
        self.odd.empty_fields += odd.empty_fields;
        self.odd.records_without_samples += odd.records_without_samples;
        self.odd.bad_annotations += odd.bad_annotations;
        self.odd.classes.extend(odd.classes);
        for (field, (records, _)) in odd.fields {
            self.odd.fields.entry(field).or_default().0 += records;
        }
        self.odd.members.join(odd.members);
        self.ends(&shard.facts.url, odd.ends);
        let room = MAX_NOTES - self.odd.notes.len();
        self.odd.notes.extend(odd.notes.into_iter().take(room));
    }

    /// Notes a record that goes on in the next shard.
    fn ends(&mut self, shard: &str, ends: Option<[Outline; 2]>) {
        let Some([first, last]) = ends else { return };
        if let Some([_, before]) = &self.odd.ends
            && before.key == first.key
            && first.fields.iter().all(|field| !before.fields.contains(field))
        {
            self.odd.members.add(TarOddity::Torn, shard, &first.key);
        }
        self.odd.ends = Some([first, last]);
    }

    /// The dataset's classes: those that are `fixed`, then the others that annotations name, by name.
    pub(super) fn classes(&self, fixed: Vec<String>) -> Vec<String> {
        let known: BTreeSet<&str> = fixed.iter().map(String::as_str).collect();
        let others: Vec<String> =
            self.odd.classes.iter().filter(|class| !known.contains(class.as_str())).cloned().collect();
        [fixed, others].concat()
    }

    pub(super) fn report(self, url: &str, manifest: &Manifest) -> DatasetReport {
        DatasetReport {
            url: url.to_owned(),
            fingerprint: manifest.fingerprint(),
            shards: manifest.shard_count(),
            blocks: manifest.block_count(),
            records: manifest.records(),
            samples: manifest.samples(),
            bytes: self.bytes,
            classes: manifest.classes().len(),
            class_names: manifest.classes().take(MAX_NOTES).map(str::to_owned).collect(),
            fields: self.odd.fields.into_iter().map(|(field, (records, _))| (field, records)).collect(),
            odd_members: self.odd.members.list(),
            empty_fields: self.odd.empty_fields,
            records_without_samples: self.odd.records_without_samples,
            bad_annotations: self.odd.bad_annotations,
            pictures_without_annotation: self.pictures_without_annotation,
            skipped_files: self.left_out.iter().map(|entry| entry.files).sum(),
            left_out: self.left_out,
            crop_ready_pictures: self.growth.pictures,
            crop_ready_source_bytes: self.growth.source_bytes,
            crop_ready_bytes: self.growth.bytes,
            notes: self.odd.notes,
        }
    }
}

/// What it costs to make pictures crop-ready.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    pictures: u64,
    source_bytes: u64,
    bytes: u64,
}

impl Growth {
    /// One picture's, with as many entries in its table of segments.
    pub(super) fn of(source_bytes: usize, bytes: usize, table_entries: Option<usize>) -> Self {
        let table_bytes = table_entries.map_or(0, Segments::index_bytes);
        Self { pictures: 1, source_bytes: source_bytes as u64, bytes: (bytes + table_bytes) as u64 }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.pictures += other.pictures;
        self.source_bytes += other.source_bytes;
        self.bytes += other.bytes;
    }
}

/// Counts what parallel readers have done and tells of it.
pub(super) struct Meter<'a> {
    shards: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    total_bytes: u64,
    tell: &'a (dyn Fn(DatasetProgress) + Send + Sync),
}

impl<'a> Meter<'a> {
    pub(super) fn new(total_bytes: u64, tell: &'a (dyn Fn(DatasetProgress) + Send + Sync)) -> Self {
        Self { shards: AtomicU64::new(0), records: AtomicU64::new(0), bytes: AtomicU64::new(0), total_bytes, tell }
    }

    pub(super) fn add(&self, shards: u64, records: u64, bytes: u64) {
        (self.tell)(DatasetProgress {
            shards: self.shards.fetch_add(shards, Relaxed) + shards,
            records: self.records.fetch_add(records, Relaxed) + records,
            bytes: self.bytes.fetch_add(bytes, Relaxed) + bytes,
            total_records: None,
            total_bytes: Some(self.total_bytes),
        });
    }
}
