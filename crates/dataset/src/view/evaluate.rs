//! Evaluates a view for all records of a dataset, with bounded memory.

use std::{collections::HashSet, sync::Arc};

use futures::TryStreamExt;
use spdl_job::{KeyProblem, ViewFile};
use spdl_order::view::{SampleSetBuilder, SetError, ViewSamples};
use spdl_shard::{manifest::Manifest, store::DatasetStore};
use spdl_types::{Fingerprint, SampleId};

use super::{
    block::{BlockResult, ViewRules},
    class_names::ClassNames,
    classes::ClassTally,
    each::MostOfEach,
    field::SHORT_KEY_NAME,
    keys::{MAX_HASHES, MissingKeys, ViewKeys},
};
use crate::{DatasetError, DatasetProgress, MemoryBound, open_block::open_blocks};

/// Number of blocks that are read and evaluated at once, if the bound on memory allows it.
const BLOCKS_AT_ONCE: usize = 8;
/// Bytes of memory for each byte that is read: what it becomes when it is decoded.
const MEMORY_FACTOR: u64 = 4;

/// The result of evaluating a view.
#[derive(Clone, Debug)]
pub struct EvaluatedView {
    /// The samples that it keeps.
    pub set: ViewSamples,
    /// The fingerprint of the samples.
    pub samples: Fingerprint,
    /// Bytes of shards that were read.
    pub bytes: u64,
    /// The wanted keys that no record has.
    pub missing_keys: Option<MissingKeys>,
    /// Records that the view leaves out because they are damaged, so that it cannot be decided whether it keeps them.
    pub undecided: Undecided,
}

/// Records that a view leaves out because their fields cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undecided {
    /// Number of records.
    pub records: u64,
    /// What is wrong with the first of them.
    pub first: Option<String>,
}

/// Finds the samples that a view keeps. `at` is the folder of the manifest. Reads only the columns or fields that the
/// view names; in formats without columns also what lies between fields that are close to each other. Leaves out at
/// most `undecided_allowed` records whose fields cannot be read.
///
/// # Errors
/// If the view is invalid, names a field that no record has, or compares a value with one of another type; if it keeps
/// no sample; and if the dataset cannot be read.
pub async fn evaluate(
    at: &DatasetStore,
    manifest: &Manifest,
    view: &ViewFile,
    undecided_allowed: u64,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<EvaluatedView, DatasetError> {
    let problem = |(key, problem): KeyProblem| DatasetError::View { key, problem };
    view.check().map_err(problem)?;
    let filter = view.filter().map_err(problem)?;
    let names = filter.iter().flat_map(|filter| filter.names().map(str::to_owned));
    let by = view.sampling.as_ref().map(|sampling| &sampling.by);
    let single: Vec<&String> = view.unique.iter().chain(&view.each).chain(by).collect();
    let names = names.chain(single.iter().map(|name| (*name).clone()));
    let needs_value = filter.iter().flat_map(|filter| (0..filter.names().len()).map(|name| filter.compares(name)));
    let needs_value = needs_value.chain(single.iter().map(|_| true)).collect();
    let keys = view.keys.as_deref().map(ViewKeys::read).transpose().map_err(problem)?;
    let names: Vec<String> = names.collect();
    let class_names = filter.as_ref().map_or_else(Vec::new, |filter| ClassNames::of(filter, manifest));
    let rules = Arc::new(ViewRules { names, needs_value, file: view.clone(), filter, keys, class_names });
    let (shards, manifest, memory) = (at.shards(manifest)?, Arc::new(manifest.clone()), MemoryBound::new());
    let (shards, manifest, memory) = (&shards, &manifest, &memory);
    let blocks = open_blocks(at, manifest);
    let evaluated = blocks.map_ok(|block| {
        let rules = Arc::clone(&rules);
        async move {
            let ranges = block.ranges(&rules);
            let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            let _memory = memory.take(bytes * MEMORY_FACTOR).await;
            let records = block.block.records;
            Ok((records, block.evaluate(shards, rules, ranges).await?))
        }
    });
    let mut evaluated = std::pin::pin!(evaluated.try_buffered(BLOCKS_AT_ONCE));
    let mut tally = ViewTally::new(&rules, undecided_allowed);
    let total_records = Some(manifest.records());
    while let Some((records, block)) = evaluated.try_next().await? {
        tally.records += u64::from(records);
        tally.is_full = tally.add(block)?;
        let (records, bytes) = (tally.records, tally.bytes);
        progress(DatasetProgress { records, bytes, total_records, ..DatasetProgress::default() });
        if tally.is_full {
            break;
        }
    }
    tally.finish(manifest)
}

/// Adds up what was found in blocks, in their order.
struct ViewTally<'r> {
    rules: &'r ViewRules,
    set: SampleSetBuilder,
    unique: HashSet<u128>,
    /// Of a view with `most_of_each`, the records that it keeps so far.
    each: Option<MostOfEach>,
    /// Of a view with `sampling`, the classes of the samples that it keeps so far.
    classes: Option<ClassTally>,
    keys: HashSet<u128>,
    has: Vec<bool>,
    fields: Vec<String>,
    undecided_allowed: u64,
    undecided: Undecided,
    records: u64,
    bytes: u64,
    /// Whether the view needs no more records, so that those that follow were not read.
    is_full: bool,
}

impl<'r> ViewTally<'r> {
    fn new(rules: &'r ViewRules, undecided_allowed: u64) -> Self {
        Self {
            rules,
            undecided_allowed,
            undecided: Undecided::default(),
            set: SampleSetBuilder::default(),
            unique: HashSet::new(),
            each: rules.file.most_of_each.map(MostOfEach::new),
            classes: rules.file.sampling.as_ref().map(|_| ClassTally::default()),
            keys: HashSet::new(),
            has: vec![false; rules.names.len()],
            fields: Vec::new(),
            records: 0,
            bytes: 0,
            is_full: false,
        }
    }

    /// Adds a block; returns whether the view needs no more.
    fn add(&mut self, mut block: BlockResult) -> Result<bool, DatasetError> {
        self.bytes += block.bytes;
        self.classes.as_mut().map_or(Ok(()), |classes| classes.begin(&mut block))?;
        self.keys.extend(block.keys);
        for (has, more) in self.has.iter_mut().zip(block.has) {
            *has |= more;
        }
        if self.fields.is_empty() {
            self.fields = block.fields;
        }
        for error in block.undecided {
            self.undecided.records += 1;
            if self.undecided.records > self.undecided_allowed {
                return Err(error.beyond(self.undecided_allowed));
            }
            self.undecided.first.get_or_insert_with(|| error.to_string());
        }
        for record in block.kept {
            if record.identity.is_some_and(|identity| !self.unique.insert(identity)) {
                continue;
            }
            if self.unique.len() > MAX_HASHES {
                let problem = format!("has more than {MAX_HASHES} different values");
                return Err(DatasetError::View { key: "unique", problem });
            }
            if let Some(each) = &mut self.each {
                each.add(&record)?;
            } else if self.keep(record.first_sample, record.samples, record.class)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Keeps the samples of a record, which has this class in its block; returns whether the view needs no more.
    fn keep(&mut self, first_sample: u64, samples: u32, class: Option<u32>) -> Result<bool, DatasetError> {
        let most = self.rules.file.first.unwrap_or(u64::MAX);
        for sample in 0..u64::from(samples) {
            if self.set.len() == most {
                return Ok(true);
            }
            self.set.keep(SampleId(first_sample + sample)).map_err(too_long)?;
            if let Some(classes) = &mut self.classes {
                classes.add(class);
            }
        }
        Ok(self.set.len() == most)
    }

    fn finish(mut self, manifest: &Manifest) -> Result<EvaluatedView, DatasetError> {
        for (first_sample, samples) in self.each.take().map(MostOfEach::finish).into_iter().flatten() {
            if self.keep(first_sample, samples, None)? {
                break;
            }
        }
        if let Some(name) = self.has.iter().position(|has| !has).filter(|_| !self.fields.is_empty()) {
            return Err(self.no_field(name));
        }
        let keys = self.rules.keys.as_ref().filter(|_| !self.is_full);
        let missing_keys = keys.map(|keys| keys.missing(&self.keys)).transpose();
        let missing_keys = missing_keys.map_err(|(key, problem)| DatasetError::View { key, problem })?.flatten();
        if let Some(missing) = missing_keys.as_ref().filter(|_| self.keys.is_empty()) {
            return Err(DatasetError::View { key: "keys", problem: format!("keeps no sample: {missing}") });
        }
        if self.set.is_empty() {
            return Err(DatasetError::EmptyView { samples: manifest.samples() });
        }
        let set = self.set.finish(manifest.samples()).map_err(too_long)?;
        let set = match (self.classes, &self.rules.file.sampling) {
            (Some(classes), Some(sampling)) => classes.finish(sampling, set, manifest)?,
            _ => ViewSamples::from(set),
        };
        let (samples, bytes, undecided) = (set.fingerprint(), self.bytes, self.undecided);
        Ok(EvaluatedView { set, samples, bytes, missing_keys, undecided })
    }

    /// Returns the error that no record has the field called by this name.
    fn no_field(&self, name: usize) -> DatasetError {
        let mut fields = self.fields.clone();
        fields.sort();
        let called = &self.rules.names[name];
        let problem =
            format!("no record has the field `{called}`; there are {}, and `{SHORT_KEY_NAME}`", fields.join(", "));
        match self.rules.filter.as_ref().filter(|filter| name < filter.names().len()) {
            Some(filter) => DatasetError::View { key: "where", problem: filter.name_error(name, problem).to_string() },
            None => DatasetError::View { key: self.rules.key_of(name), problem: format!("is `{called}`: {problem}") },
        }
    }
}

fn too_long(error: SetError) -> DatasetError {
    DatasetError::View { key: "where", problem: format!("keeps too many samples: their set {error}") }
}
