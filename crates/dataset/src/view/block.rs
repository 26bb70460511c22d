//! Evaluates a view for the records of one block.

use std::{cell::RefCell, collections::HashMap, fmt, ops::Range, sync::Arc};

use spdl_job::ViewFile;
use spdl_order::view::{Expression, Value};
use spdl_shard::{
    format::{Record, ShardIndex},
    json,
    store::DatasetStore,
};
use spdl_types::Fingerprint;

use super::{
    class_names::{ClassNames, class_of},
    field::{FoundValue, ResolvedName, number},
    keys::ViewKeys,
};
use crate::{
    DatasetError,
    open_block::{BlockFields, OpenBlock, ReadBlock},
    slice,
};

/// Characters of a text that a message shows.
const MAX_SHOWN: usize = 60;

/// A view that was parsed.
pub(super) struct ViewRules {
    pub(super) file: ViewFile,
    pub(super) filter: Option<Expression>,
    /// The names whose values are read: those of the expression, then those of `unique`, `each` and `sampling.by`.
    pub(super) names: Vec<String>,
    /// For each name whether its value is needed, and not only whether there is one.
    pub(super) needs_value: Vec<bool>,
    pub(super) keys: Option<ViewKeys>,
    /// For each name of the filter which classes it is compared with, if with any.
    pub(super) class_names: Vec<Option<ClassNames>>,
}

/// A record that is kept, before `unique`, `most_of_each` and `first`.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptRecord {
    /// The global number of its first sample.
    pub(super) first_sample: u64,
    pub(super) samples: u32,
    /// The hash of the value that has to be unique, if it has one.
    pub(super) identity: Option<u128>,
    /// The hash of the value of `each`, and the record's place among those of that value, if it has one.
    pub(super) of_each: Option<(u128, u64)>,
    /// The number of its class in the block, if it has one.
    pub(super) class: Option<u32>,
}

/// The findings in a block.
#[derive(Debug, Default)]
pub(super) struct BlockResult {
    pub(super) kept: Vec<KeptRecord>,
    /// The names of the classes of these records, if the view has `sampling`.
    pub(super) classes: Vec<String>,
    /// The first record that has no class.
    pub(super) without_class: Option<String>,
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

/// Adds to a problem that no more than `allowed` records are left out by `what`, if some are.
pub(crate) fn add_limit(problem: &mut String, what: &str, allowed: u64) {
    if allowed > 0 {
        problem.push_str(&format!(
            "; {what} leaves out {allowed} such records, and no more: `max_bad_fraction` of the job allows others"
        ));
    }
}

impl UndecidedRecord {
    /// Returns the error for a record beyond the `allowed` ones that the view may leave out.
    pub(super) fn beyond(self, allowed: u64) -> DatasetError {
        let Self { shard, record, mut problem } = self;
        add_limit(&mut problem, "the view", allowed);
        DatasetError::Undecided { shard, record, problem }
    }
}

impl fmt::Display for UndecidedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shard, record, problem } = self;
        write!(f, "shard `{shard}`, record `{record}`: {problem}")
    }
}

impl ViewRules {
    /// Returns the numbers of the names that have to be unique, by whose values records are counted, and that tell classes.
    fn single_values(&self) -> [Option<usize>; 3] {
        let ViewFile { unique, each, sampling, .. } = &self.file;
        let mut next = self.filter.as_ref().map_or(0, |filter| filter.names().len());
        [unique.is_some(), each.is_some(), sampling.is_some()].map(|is_there| {
            is_there.then(|| {
                next += 1;
                next - 1
            })
        })
    }

    /// Returns the key of the view that has a name.
    pub(super) fn key_of(&self, name: usize) -> &'static str {
        let keys = ["unique", "each", "sampling.by"];
        let found = self.single_values().iter().position(|single| *single == Some(name));
        found.map_or("where", |found| keys[found])
    }
}

impl OpenBlock {
    /// Returns the ranges of the shard that hold the fields that a view reads.
    pub(super) fn ranges(&self, rules: &ViewRules) -> Vec<Range<u64>> {
        let is_columnar = self.manifest.format().is_columnar();
        self.ranges_of(|index, record| {
            let places = rules.names.iter().map(|name| ResolvedName::of(name, index, record)).enumerate();
            let is_read = |(nth, place): &(usize, ResolvedName)| {
                is_columnar || !matches!(place, ResolvedName::Field(_)) || rules.needs_value[*nth]
            };
            places.filter(is_read).filter_map(|(_, place)| place.field()).collect::<Vec<_>>()
        })
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

    fn records_kept(&self, rules: &ViewRules, fetched: ReadBlock) -> Result<BlockResult, DatasetError> {
        let fetched = self.decompressed(fetched)?;
        let slice = |range: Range<u64>| slice(&fetched.pieces, range);
        let decoded = self.decode(&fetched, &slice);
        let fields = BlockFields { index: &*self.index, slice: &slice, decoded: decoded.as_deref() };
        let reader = ValueReader::new(fields);
        let mut result =
            BlockResult { has: vec![false; rules.names.len()], bytes: fetched.bytes, ..BlockResult::default() };
        // All records of a columnar format have the same fields.
        let mut places: Vec<ResolvedName> = Vec::new();
        let mut values: Vec<FoundValue> = Vec::new();
        let first_of_shard = self.manifest.shard(self.block.shard).first_sample;
        let [unique, each, by] = rules.single_values();
        let mut classes: HashMap<String, u32> = HashMap::new();
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
            for name in [unique, each, by].into_iter().flatten() {
                if let FoundValue::Opaque(what) = values[name] {
                    return Err(wrong(format!("field `{}` is {what}", rules.names[name])));
                }
            }
            let hash = |name: usize| values[name].identity().map(|bytes| Fingerprint::of(&bytes).0);
            let identity = unique.and_then(hash);
            let of_each = each.and_then(hash).map(|value| (value, rules.file.place_of_each(&record.key.text())));
            let mut class = None;
            if let Some(by) = by {
                let field = &rules.names[by];
                let named = class_of(field, &self.manifest, &values[by]);
                match named.map_err(|what| wrong(format!("field `{field}` is {what}")))? {
                    Some(name) => {
                        let next = classes.len() as u32;
                        class = Some(*classes.entry(name).or_insert(next));
                    }
                    None => _ = result.without_class.get_or_insert_with(|| self.name_of(&record)),
                }
            }
            let first_sample = first_of_shard + u64::from(record.first_sample);
            result.kept.push(KeptRecord { first_sample, samples: record.samples, identity, of_each, class });
        }
        let mut named: Vec<(String, u32)> = classes.into_iter().collect();
        named.sort_unstable_by_key(|(_, number)| *number);
        result.classes = named.into_iter().map(|(name, _)| name).collect();
        Ok(result)
    }

    /// Returns the error that something is wrong with a record.
    fn wrong(&self, record: &Record<'_>, problem: String) -> DatasetError {
        self.undecided(record, problem).beyond(0)
    }

    /// Returns a record by its shard and its key.
    fn name_of(&self, record: &Record<'_>) -> String {
        format!("record `{}` of shard `{}`", record.key.text(), self.manifest.shard(self.block.shard).url)
    }

    fn undecided(&self, record: &Record<'_>, problem: String) -> UndecidedRecord {
        let shard = self.manifest.shard(self.block.shard).url.to_owned();
        UndecidedRecord { shard, record: record.key.text().into_owned(), problem }
    }
}

/// Reads the values of records of a block.
pub(crate) struct ValueReader<'b> {
    fields: BlockFields<'b>,
    /// The JSON documents of the record, by the number of the field.
    documents: RefCell<Vec<(u32, serde_json::Value)>>,
}

impl<'b> ValueReader<'b> {
    pub(crate) fn new(fields: BlockFields<'b>) -> Self {
        Self { fields, documents: RefCell::default() }
    }

    /// Returns the index of the block's shard.
    pub(crate) fn index(&self) -> &'b dyn ShardIndex {
        self.fields.index
    }

    /// Returns the number that a record has in the place of a name; `None` if it has no value.
    ///
    /// # Errors
    /// If it cannot be read, or is no number.
    pub(crate) fn number(&self, record: &Record<'_>, name: &str, place: &ResolvedName) -> Result<Option<f64>, String> {
        let found = self.value(record, place).map_err(|problem| format!("field `{name}` {problem}"))?;
        // Each name may be a member of another document.
        self.documents.borrow_mut().clear();
        let not_a_number = |what: &str| Err(format!("field `{name}` is {what}, and not a number"));
        match found.value() {
            Value::Null => Ok(None),
            Value::Int(number) => Ok(Some(number as f64)),
            Value::F32(number) => Ok(Some(number.into())),
            Value::F64(number) => Ok(Some(number)),
            Value::Untyped(text) if text.trim().is_empty() => Ok(None),
            Value::Untyped(text) => match text.trim().parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => not_a_number(&format!("{:?}", text.chars().take(MAX_SHOWN).collect::<String>())),
            },
            Value::Text(text) => {
                not_a_number(&format!("the text {:?}", text.chars().take(MAX_SHOWN).collect::<String>()))
            }
            Value::Bool(truth) => not_a_number(&truth.to_string()),
            Value::Opaque(what) => not_a_number(what),
        }
    }

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
        if let Some(decoded) = self.fields.decoded
            && let Some((dtype, bytes)) = decoded.number(record.number(), nth)
            && let Some(value) = number(dtype, bytes)
        {
            return Ok(FoundValue::Number(value));
        }
        self.fields.open(record, nth)?.map_or(Ok(FoundValue::Nothing), FoundValue::of)
    }
}
