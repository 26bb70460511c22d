//! Evaluates a view for the records of one block.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use spdl_job::ViewFile;
use spdl_order::view::{Expression, Value};
use spdl_shard::{
    format::{DecodedBlock, ObjectRange, OpenError, Record, ShardIndex},
    json,
    manifest::{Block, Manifest},
    store::DatasetStore,
};
use spdl_types::Fingerprint;

use tokio::sync::OnceCell;

use super::{
    class_names::ClassNames,
    field::{FoundValue, ResolvedName, number},
    keys::ViewKeys,
};
use crate::{DatasetError, fields::read_together, slice};

/// Number of reads of a shard that are kept for the blocks that follow.
const KEPT_READS: usize = 64;

/// A view that was parsed.
pub(super) struct ViewRules {
    pub(super) file: ViewFile,
    pub(super) filter: Option<Expression>,
    /// The names whose values are read: those of the expression, then that of `unique`.
    pub(super) names: Vec<String>,
    /// For each name whether its value is needed, and not only whether there is one.
    pub(super) needs_value: Vec<bool>,
    pub(super) keys: Option<ViewKeys>,
    /// For each name of the filter which classes it is compared with, if with any.
    pub(super) class_names: Vec<Option<ClassNames>>,
}

/// A record that is kept, before `unique` and `first`.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptRecord {
    /// The global number of its first sample.
    pub(super) first_sample: u64,
    pub(super) samples: u32,
    /// The hash of the value that has to be unique, if it has one.
    pub(super) identity: Option<u128>,
}

/// The findings in a block.
#[derive(Debug, Default)]
pub(super) struct BlockResult {
    pub(super) kept: Vec<KeptRecord>,
    /// Hashes of the keys that are wanted and that are there.
    pub(super) keys: Vec<u128>,
    /// For each name whether a record has it.
    pub(super) has: Vec<bool>,
    /// Records whose fields cannot be read.
    pub(super) undecided: Vec<UndecidedRecord>,
    /// Names of the fields of a record, for errors.
    pub(super) fields: Vec<String>,
    pub(super) bytes: u64,
}

/// A record for which it cannot be decided whether a view keeps it.
#[derive(Debug)]
pub(super) struct UndecidedRecord {
    shard: String,
    record: String,
    problem: String,
}

impl UndecidedRecord {
    /// Returns the error for a record beyond the `allowed` ones that the view may leave out.
    pub(super) fn beyond(self, allowed: u64) -> DatasetError {
        let Self { shard, record, mut problem } = self;
        if allowed > 0 {
            problem.push_str(&format!(
                "; the view leaves out {allowed} such records, and no more: `max_bad_fraction` of the job allows others"
            ));
        }
        DatasetError::Undecided { shard, record, problem }
    }
}

impl fmt::Display for UndecidedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shard, record, problem } = self;
        write!(f, "shard `{shard}`, record `{record}`: {problem}")
    }
}

/// A block of a shard that is open.
#[derive(Clone)]
pub(super) struct OpenBlock {
    pub(super) manifest: Arc<Manifest>,
    pub(super) index: Arc<dyn ShardIndex>,
    pub(super) reads: Arc<SharedReads>,
    pub(super) block: Block,
}

/// The latest reads of a shard. Neighbouring blocks share pages of narrow columns: each is read once for all of them.
#[derive(Debug, Default)]
pub(super) struct SharedReads(Mutex<VecDeque<SharedRead>>);

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
struct Fetched {
    pieces: Vec<(u64, Bytes)>,
    ranges: Vec<Range<u64>>,
    /// Number of bytes that were read for this block. Bytes that were read for an earlier one do not count.
    bytes: u64,
}

impl ViewRules {
    /// Returns whether the view reads the content of records.
    pub(super) fn reads_fields(&self) -> bool {
        !self.names.is_empty()
    }

    /// Returns the number of the name that has to be unique.
    fn unique(&self) -> Option<usize> {
        self.file.unique.as_ref().map(|_| self.names.len() - 1)
    }
}

impl OpenBlock {
    fn records(&self) -> Range<u32> {
        self.block.first_record..self.block.first_record + self.block.records
    }

    /// Returns the ranges of the shard that hold the fields of these names.
    pub(super) fn ranges(&self, rules: &ViewRules) -> Vec<Range<u64>> {
        if !rules.reads_fields() {
            return Vec::new();
        }
        let index = &*self.index;
        if self.manifest.format().is_columnar() {
            let record = index.record(self.block.first_record);
            let fields = rules.names.iter().filter_map(|name| ResolvedName::of(name, index, &record).field());
            let names: Vec<String> = fields.map(|field| index.field(&record, field).name.to_owned()).collect();
            return index.project(self.block.offset..self.block.offset + self.block.bytes, &names);
        }
        let mut ranges = Vec::new();
        for record in self.records().map(|record| index.record(record)) {
            let names = rules.names.iter().enumerate().map(|(nth, name)| (nth, ResolvedName::of(name, index, &record)));
            let names =
                names.filter(|(nth, place)| !matches!(place, ResolvedName::Field(_)) || rules.needs_value[*nth]);
            let fields = names.filter_map(|(_, place)| place.field());
            ranges.extend(fields.filter_map(|field| index.field(&record, field).range()));
        }
        read_together(index, &self.manifest.shard(self.block.shard), ranges)
    }

    /// Reads these ranges of the shard.
    async fn read(&self, at: &DatasetStore, ranges: Vec<Range<u64>>) -> Result<Fetched, DatasetError> {
        if ranges.is_empty() {
            return Ok(Fetched { pieces: Vec::new(), ranges, bytes: 0 });
        }
        let shard = self.manifest.shard(self.block.shard);
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        for part in self.index.plan(&shard, &ranges) {
            let (piece, read) = self.reads.read(at, &part).await?;
            bytes += read;
            pieces.push((part.at, piece));
        }
        Ok(Fetched { pieces, ranges, bytes })
    }

    /// Reads the block's fields that the view names, and evaluates it for each record.
    pub(super) async fn evaluate(
        self,
        at: &DatasetStore,
        rules: Arc<ViewRules>,
        ranges: Vec<Range<u64>>,
    ) -> Result<BlockResult, DatasetError> {
        let fetched = self.read(at, ranges).await?;
        spdl_store::blocking(move || self.records_kept(&rules, fetched)).await
    }

    fn records_kept(&self, rules: &ViewRules, fetched: Fetched) -> Result<BlockResult, DatasetError> {
        let fetched = self.decompressed(fetched)?;
        let pieces = &fetched.pieces;
        let slice = |range: Range<u64>| slice(pieces, range);
        let decoded = match self.manifest.format().is_columnar() {
            true => self.index.decode(&fetched.ranges, &slice),
            false => None,
        };
        let reader = ValueReader {
            index: &*self.index,
            slice: &slice,
            decoded: decoded.as_deref(),
            documents: RefCell::default(),
        };
        let mut result =
            BlockResult { has: vec![false; rules.names.len()], bytes: fetched.bytes, ..BlockResult::default() };
        // All records of a columnar format have the same fields.
        let mut places: Vec<ResolvedName> = Vec::new();
        let mut values: Vec<FoundValue> = Vec::new();
        let first_of_shard = self.manifest.shard(self.block.shard).first_sample;
        for number in self.records() {
            let record = self.index.record(number);
            let wrong = |problem: String| self.wrong(&record, problem);
            if rules.file.fraction.is_some() || rules.file.folds.is_some() || rules.keys.is_some() {
                let key = record.key.text();
                if let Some(keys) = &rules.keys {
                    let Some(hash) = keys.find(&key) else { continue };
                    result.keys.push(hash);
                }
                if !rules.file.draws(&key) {
                    continue;
                }
            }
            if places.is_empty() || decoded.is_none() {
                places.clear();
                places.extend(rules.names.iter().map(|name| ResolvedName::of(name, &*self.index, &record)));
                for (has, place) in result.has.iter_mut().zip(&places) {
                    *has |= *place != ResolvedName::Nothing;
                }
            }
            if result.fields.is_empty() {
                result.fields = record.fields().map(|field| field.name.to_owned()).collect();
            }
            values.clear();
            let mut problem = None;
            for (nth, (name, place)) in rules.names.iter().zip(&places).enumerate() {
                let found = match place {
                    ResolvedName::Field(_) if decoded.is_none() && !rules.needs_value[nth] => {
                        Ok(FoundValue::Opaque("a value"))
                    }
                    place => reader.value(&record, place),
                };
                match found {
                    Ok(found) => values.push(found),
                    Err(found) => {
                        problem = Some(format!("field `{name}` {found}"));
                        break;
                    }
                }
            }
            reader.documents.borrow_mut().clear();
            if let Some(problem) = problem {
                result.undecided.push(self.undecided(&record, problem));
                continue;
            }
            if let Some(filter) = &rules.filter {
                let called = |name: usize| match &rules.class_names[name] {
                    Some(classes) => classes.called(&self.manifest, values[name].value()),
                    None => Ok(values[name].value()),
                };
                for name in 0..rules.class_names.len() {
                    let problem = |problem| wrong(format!("`view.where` {}", filter.name_error(name, problem)));
                    called(name).map_err(problem)?;
                }
                let kept = filter.evaluate(&|name: usize| called(name).unwrap_or(Value::Null));
                if !kept.map_err(|error| wrong(format!("`view.where` {error}")))? {
                    continue;
                }
            }
            if let Some(name) = rules.unique()
                && let FoundValue::Opaque(what) = values[name]
            {
                return Err(wrong(format!("field `{}` is {what}", rules.names[name])));
            }
            let identity = rules.unique().and_then(|name| values[name].identity());
            let identity = identity.map(|bytes| Fingerprint::of(&bytes).0);
            let first_sample = first_of_shard + u64::from(record.first_sample);
            result.kept.push(KeptRecord { first_sample, samples: record.samples, identity });
        }
        Ok(result)
    }

    /// Returns the error that something is wrong with a record.
    fn wrong(&self, record: &Record<'_>, problem: String) -> DatasetError {
        self.undecided(record, problem).beyond(0)
    }

    fn undecided(&self, record: &Record<'_>, problem: String) -> UndecidedRecord {
        let shard = self.manifest.shard(self.block.shard).url.to_owned();
        UndecidedRecord { shard, record: record.key.text().into_owned(), problem }
    }

    /// Decompresses a shard that was read as a whole.
    fn decompressed(&self, fetched: Fetched) -> Result<Fetched, DatasetError> {
        let Some(compressed) = self.index.compressed().filter(|_| !fetched.pieces.is_empty()) else {
            return Ok(fetched);
        };
        let pieces: Vec<Bytes> = fetched.pieces.iter().map(|(_, bytes)| bytes.clone()).collect();
        let shard = compressed.decompress(&pieces).map_err(|error| DatasetError::Source {
            path: self.manifest.shard(self.block.shard).url.to_owned(),
            problem: error.to_string(),
        })?;
        Ok(Fetched { pieces: vec![(0, shard)], ..fetched })
    }
}

/// Reads the values of records of a block.
struct ValueReader<'b> {
    index: &'b dyn ShardIndex,
    slice: &'b dyn Fn(Range<u64>) -> Option<Bytes>,
    decoded: Option<&'b dyn DecodedBlock>,
    /// The JSON documents of the record, by the number of the field.
    documents: RefCell<Vec<(u32, serde_json::Value)>>,
}

impl ValueReader<'_> {
    fn value(&self, record: &Record<'_>, place: &ResolvedName) -> Result<FoundValue, String> {
        match place {
            ResolvedName::Nothing => Ok(FoundValue::Nothing),
            ResolvedName::Key => Ok(FoundValue::Key(record.key.text().into_owned())),
            ResolvedName::Field(field) => self.field(record, *field),
            ResolvedName::Member(field, path) => {
                let mut documents = self.documents.borrow_mut();
                if let Some((_, document)) = documents.iter().find(|(number, _)| number == field) {
                    return Ok(FoundValue::of_member(document, path));
                }
                let document = match self.field(record, *field)? {
                    FoundValue::Text(bytes) => {
                        json::read(&bytes).map_err(|error| format!("is not a JSON document: {error}"))?
                    }
                    FoundValue::Nothing => return Ok(FoundValue::Nothing),
                    _ => return Err("is not a JSON document".to_owned()),
                };
                let found = FoundValue::of_member(&document, path);
                documents.push((*field, document));
                Ok(found)
            }
        }
    }

    fn field(&self, record: &Record<'_>, nth: u32) -> Result<FoundValue, String> {
        if let Some(decoded) = self.decoded
            && let Some((dtype, bytes)) = decoded.number(record.number(), nth)
            && let Some(value) = number(dtype, bytes)
        {
            return Ok(FoundValue::Number(value));
        }
        let field = self.index.field(record, nth);
        let opened = match self.decoded {
            Some(decoded) if field.value.is_none() => decoded.open(record.number(), nth),
            _ => self.index.open(&field, self.slice).map(Some),
        };
        match opened {
            Ok(Some(content)) => FoundValue::of(content),
            Ok(None) => Ok(FoundValue::Nothing),
            Err(OpenError::Missing) => Err("is not where its index has it".to_owned()),
            Err(OpenError::Checksum { .. }) => Err("has other bytes than its index says".to_owned()),
            Err(OpenError::Malformed(problem)) => Err(problem),
            Err(OpenError::Damaged { problem, .. }) => Err(problem.to_string()),
        }
    }
}
