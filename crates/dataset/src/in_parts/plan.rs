//! Assigns records to shards from the sizes of files alone: every part of a pack makes the same plan without reading a
//! file.

use std::sync::Arc;

use spdl_pipeline::{Op, Pipeline};
use spdl_types::Fingerprint;
use xxhash_rust::xxh3::Xxh3;

use super::super::{
    DatasetError, PackOptions,
    pack::{FILES_AT_ONCE, GROUPS_READY, no_annotation},
    record::{MEASURED_TOGETHER, MadeRecord, PlannedRecord, RecordMaker},
    scan::MAX_NOTES,
    source::SourceRecords,
    stages::RunningStages,
};

/// The shards of a pack.
pub(super) struct PackPlan {
    pub(super) shards: Vec<PlannedShard>,
    /// Number of records that the source lists.
    pub(super) listed: u64,
    /// Number of pictures without an annotation, although annotations are wanted.
    pub(super) without_annotation: u64,
    /// Notes about the first of them.
    pub(super) notes: Vec<String>,
    /// XXH3-128 of the classes, and of the headers and labels of all records.
    pub(super) fingerprint: Fingerprint,
}

/// A shard of a plan: a run of the listed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedShard {
    /// Its first record, counted in the source's list.
    pub(super) first: u64,
    /// The end of its records in that list. Some of the records before it may be left out.
    pub(super) end: u64,
    /// Number of records that it holds.
    pub(super) records: u32,
    /// Bytes of its members, if all files are copied as they are.
    bytes: u64,
}

impl PackPlan {
    /// Plans the pack of the listed records.
    pub(super) async fn of(options: &PackOptions, source: &SourceRecords) -> Result<Self, DatasetError> {
        let maker = Arc::new(RecordMaker::new(source.files.clone(), options));
        let stages = Pipeline::builder()
            .source(source.records.iter()?)
            .aggregate(MEASURED_TOGETHER)
            .pipe("plan", Op::blocking(move |records| maker.plan(records)), FILES_AT_ONCE)
            .sink(GROUPS_READY);
        let mut groups = RunningStages::start(stages)?;
        let mut planner = Planner::new(options, &source.classes);
        while let Some(group) = groups.next(|_| ()).await? {
            group.into_iter().for_each(|record| planner.add(record));
        }
        Ok(planner.finish())
    }
}

/// Assigns records to shards, in their order.
struct Planner {
    shard_bytes: u64,
    shard_records: Option<u32>,
    hasher: Xxh3,
    plan: PackPlan,
}

impl Planner {
    fn new(options: &PackOptions, classes: &[String]) -> Self {
        let mut hasher = Xxh3::new();
        for class in classes {
            hasher.update(&(class.len() as u64).to_le_bytes());
            hasher.update(class.as_bytes());
        }
        let (notes, fingerprint) = (Vec::new(), Fingerprint::default());
        let plan = PackPlan { shards: Vec::new(), listed: 0, without_annotation: 0, notes, fingerprint };
        Self { shard_bytes: options.shard_bytes, shard_records: options.shard_records, hasher, plan }
    }

    fn add(&mut self, record: MadeRecord<PlannedRecord>) {
        let plan = &mut self.plan;
        match record {
            MadeRecord::Whole(PlannedRecord { bytes, hash }) => {
                self.hasher.update(&hash.to_le_bytes());
                let is_full = |shard: &PlannedShard| {
                    shard.bytes + bytes > self.shard_bytes || Some(shard.records) == self.shard_records
                };
                if plan.shards.last().is_none_or(is_full) {
                    let first = plan.listed;
                    plan.shards.push(PlannedShard { first, end: first, records: 0, bytes: 0 });
                }
                let shard = plan.shards.last_mut().expect("there is one");
                shard.records += 1;
                shard.bytes += bytes;
            }
            MadeRecord::NoAnnotation(picture) => {
                plan.without_annotation += 1;
                if plan.notes.len() < MAX_NOTES {
                    plan.notes.push(no_annotation(&picture));
                }
            }
        }
        plan.listed += 1;
        if let Some(shard) = plan.shards.last_mut() {
            shard.end = plan.listed;
        }
    }

    fn finish(self) -> PackPlan {
        PackPlan { fingerprint: Fingerprint(self.hasher.digest128()), ..self.plan }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::PackSource, *};

    fn planned(options: &PackOptions, bytes: &[Option<u64>]) -> Vec<(u64, u64, u32)> {
        let mut planner = Planner::new(options, &[]);
        for bytes in bytes {
            planner.add(match bytes {
                Some(bytes) => MadeRecord::Whole(PlannedRecord { bytes: *bytes, hash: 0 }),
                None => MadeRecord::NoAnnotation("x.jpg".to_owned()),
            });
        }
        planner.finish().shards.iter().map(|shard| (shard.first, shard.end, shard.records)).collect()
    }

    #[test]
    fn a_shard_ends_before_the_record_that_would_make_it_too_long_or_at_its_number_of_records() {
        let options = PackOptions { shard_bytes: 10, ..PackOptions::new(PackSource::FileList("list".into())) };
        let sizes = [4, 6, 1, 30, 2, 8, 1].map(Some);
        assert_eq!(planned(&options, &sizes), [(0, 2, 2), (2, 3, 1), (3, 4, 1), (4, 6, 2), (6, 7, 1)]);
        let options = PackOptions { shard_records: Some(3), ..PackOptions::new(options.source) };
        assert_eq!(planned(&options, &sizes), [(0, 3, 3), (3, 6, 3), (6, 7, 1)]);
    }

    #[test]
    fn records_that_are_left_out_open_no_shard() {
        let options = PackOptions { shard_bytes: 10, ..PackOptions::new(PackSource::FileList("list".into())) };
        let sizes = [None, Some(9), None, None, Some(9), None];
        assert_eq!(planned(&options, &sizes), [(1, 4, 1), (4, 6, 1)]);
        assert_eq!(planned(&options, &[None, None]), []);
    }
}
