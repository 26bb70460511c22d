//! Compares what a job names with what its dataset has, before anything is decoded: fields with the record indexes, classes with
//! the manifest, and what neither knows, the values within fields, with some records.

use std::collections::BTreeSet;

use serde_json::Value;
use spdl_job::{
    Column, ColumnKind, DefaultValue, Job, JobError, LabelRule, SoundDataset, decoded_columns, named_in_dataset, redact,
};
use spdl_order::view::SampleSet;
use spdl_shard::{
    format::{Content, KEY_NAME, SHARD_NAME},
    json,
    manifest::Manifest,
    store::DatasetStore,
};
use spdl_store::StoreError;
use spdl_types::SampleId;

use crate::look::{SampleReader, SeenRecord};

/// Maximum number of shards, spread over the dataset, in which a field is looked for that those before lack.
const SHARDS: usize = 8;
/// Maximum number of records of a shard, spread over it, that are looked at.
const RECORDS: usize = 1000;
/// Maximum number of places of the dataset at which records are read for what those before lack.
const PLACES: u64 = 8;
/// Maximum number of records that are read at a place.
const READ_RECORDS: u64 = 32;
/// The first bytes of a compressed field.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// The most values of a field that an error shows.
const SHOWN_VALUES: usize = 5;

/// What a job names that its dataset does not have.
#[derive(Debug, Default)]
pub struct Misfits {
    /// The first one because of which samples would be bad samples.
    pub error: Option<JobError>,
    /// Those of columns with a `default`, and of jobs that allow many bad samples.
    pub warnings: Vec<String>,
}

impl Misfits {
    /// Adds something that no record has of those that were looked at.
    fn add(&mut self, job: &Job, column: &Column, error: JobError) {
        if column.value.default.is_some() || job.is_of_few_good_samples() {
            self.warnings.push(error.to_string());
        } else {
            self.error.get_or_insert(error);
        }
    }
}

/// Finds what the columns of a job name and its dataset does not have: fields, classes, and values within fields. `view` has the
/// samples of the job, if these are not all. Of a dataset that has everything, only the index of the first shard is read, and some
/// records if columns have a `path` or look names up.
///
/// # Errors
/// If an index cannot be read. Records that cannot be read are passed over: what is wrong with them is known when they are decoded.
pub async fn misfits(
    store: &DatasetStore,
    manifest: &Manifest,
    job: &Job,
    view: Option<&SampleSet>,
) -> Result<Misfits, StoreError> {
    let unknown = |column| unknown_class(job, column, manifest).or_else(|| missing_series(job, column, manifest));
    let error = decoded_columns(&job.columns).find_map(unknown);
    let mut misfits = Misfits { error, warnings: Vec::new() };
    if misfits.error.is_some() {
        return Ok(misfits);
    }
    missing_fields(store, manifest, (job, NamedField::all(job)), &mut misfits).await?;
    if misfits.error.is_none() {
        misfits.error = unfit_clip(store, manifest, job).await?;
    }
    if misfits.error.is_none() {
        missing_values(store, manifest, job, view, &mut misfits).await;
    }
    Ok(misfits)
}

/// Finds out whether records of a dataset whose recordings operations take have one of the fields that may have these.
///
/// # Errors
/// If an index cannot be read.
pub async fn misfits_of_sounds(
    (store, manifest): (&DatasetStore, &Manifest),
    job: &Job,
    dataset: &SoundDataset,
) -> Result<Misfits, StoreError> {
    let key = format!("`ops`: `from` of dataset `{}`", redact(&dataset.url));
    let named = NamedField { key, from: dataset.fields().map(str::to_owned).collect(), has_default: false };
    let mut misfits = Misfits::default();
    missing_fields(store, manifest, (job, vec![named]), &mut misfits).await?;
    Ok(misfits)
}

/// Returns the error of a column that names a class which the dataset does not list.
fn unknown_class(job: &Job, column: &Column, manifest: &Manifest) -> Option<JobError> {
    let wrong = |key: &str, name: &str| {
        let classes: Vec<&str> = manifest.classes().collect();
        let problem = format!("has `{name}`, which is none of the dataset's classes");
        named_in_dataset(&job.name, key_of(column, key), problem, (name, &classes), "they are")
    };
    let is_unknown = |name: &&String| manifest.class_number(name).is_none();
    if let Some(name) = column.classes().and_then(|classes| classes.iter().find(is_unknown)) {
        return Some(wrong("classes", name));
    }
    match &column.value.default {
        Some(DefaultValue::Text(name)) if column.reads_classes() && is_unknown(&name) => Some(wrong("default", name)),
        _ => None,
    }
}

/// Returns the error of a column of several records of a series, for a dataset that has no series.
fn missing_series(job: &Job, column: &Column, manifest: &Manifest) -> Option<JobError> {
    if column.value.deltas.is_empty() || manifest.format().has_series() {
        return None;
    }
    let problem = format!(
        "needs records that belong together in series, which a dataset of the format `{}` does not have; one of LeRobot's has them",
        manifest.format().name()
    );
    Some(JobError::Key { job: job.name.clone(), key: key_of(column, "deltas"), problem })
}

/// Returns the error of a column of videos that has a `clip` and whose fields are frames, or has none and whose fields are whole videos.
async fn unfit_clip(store: &DatasetStore, manifest: &Manifest, job: &Job) -> Result<Option<JobError>, StoreError> {
    let videos = decoded_columns(&job.columns).filter_map(|column| match &column.kind {
        ColumnKind::Video(video) => Some((column, video.clip.is_some())),
        _ => None,
    });
    let mut videos = videos.peekable();
    let shard = manifest.shards().find(|shard| shard.records > 0);
    let Some(shard) = shard.filter(|_| videos.peek().is_some()) else { return Ok(None) };
    let index = store.index(&shard).await?;
    let record = index.record(0);
    let unfit = videos.find_map(|(column, has_clip)| {
        let nth = column.from.iter().find_map(|name| index.field_number(&record, name))?;
        let problem = match (index.frame(&record, nth).is_some(), has_clip) {
            (false, false) => "is missing; write which frames of a video are taken, as { frames = 16, stride = 4 }",
            (true, true) => {
                "is for whole videos, and the field is a frame: leave it out, or write `deltas` for several frames"
            }
            _ => return None,
        };
        Some(JobError::Key { job: job.name.clone(), key: key_of(column, "clip"), problem: problem.to_owned() })
    });
    Ok(unfit)
}

/// Returns the key of a column, as errors name it.
fn key_of(column: &Column, key: &str) -> String {
    format!("column `{}`: `{key}`", column.name)
}

/// Fields that a job names: the first that a record has is taken.
struct NamedField {
    /// The key that names them, as errors have it.
    key: String,
    from: Vec<String>,
    has_default: bool,
}

impl NamedField {
    /// Returns those that the columns and functions of a job name.
    fn all(job: &Job) -> Vec<Self> {
        let of_columns = decoded_columns(&job.columns).map(|column| Self {
            key: key_of(column, "from"),
            from: column.from.clone(),
            has_default: column.value.default.is_some(),
        });
        // All columns that have a mask have the same one.
        let masks = job.columns.iter().filter_map(|column| {
            let from = vec![LabelRule::of(&column.kind)?.loss_from?.to_owned()];
            Some(Self { key: key_of(column, "loss_from"), from, has_default: false })
        });
        let spans = decoded_columns(&job.columns).filter_map(|column| match &column.kind {
            ColumnKind::Audio(audio) => Some((column, audio.span.as_ref()?)),
            _ => None,
        });
        let of_spans = spans.flat_map(|(column, span)| {
            let key = key_of(column, "span");
            span.fields().map(move |field| Self { key: key.clone(), from: vec![field.to_owned()], has_default: false })
        });
        let calls = job.columns.iter().filter_map(Column::returned).filter(|returned| returned.number == 0);
        let of_calls = calls.flat_map(|returned| {
            let call = &returned.call;
            let fields = call.takes().into_iter().take(call.fields.len());
            let key = format!("function `{}`: `fields`", call.function);
            fields.map(move |field| Self { key: key.clone(), from: field.from, has_default: false })
        });
        let is_of_record = |name: &String| [KEY_NAME, SHARD_NAME].contains(&name.as_str());
        let named = of_columns.chain(masks.take(1)).chain(of_spans).chain(of_calls);
        named.filter(|field| !field.from.is_empty() && !field.from.iter().any(is_of_record)).collect()
    }
}

/// Looks for fields that a job names in record indexes.
async fn missing_fields(
    store: &DatasetStore,
    manifest: &Manifest,
    (job, mut missing): (&Job, Vec<NamedField>),
    misfits: &mut Misfits,
) -> Result<(), StoreError> {
    let mut names = BTreeSet::new();
    let shards = manifest.shards();
    let step = shards.len().div_ceil(SHARDS).max(1);
    for shard in shards.filter(|shard| shard.records > 0).step_by(step) {
        if missing.is_empty() {
            break;
        }
        let index = store.index(&shard).await?;
        let records = (0..index.record_count()).step_by((index.record_count() as usize).div_ceil(RECORDS).max(1));
        for record in records.map(|record| index.record(record)) {
            missing.retain(|field| !field.from.iter().any(|name| index.field_number(&record, name).is_some()));
            if missing.is_empty() {
                break;
            }
            names.extend(record.fields().map(|field| field.name.to_owned()));
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for NamedField { key, from, has_default } in missing {
        let named = from.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
        let problem = format!("is {named}, which no record of the dataset has");
        let error = named_in_dataset(&job.name, key, problem, (&from[0], &names), "its fields are");
        if has_default {
            misfits.warnings.push(error.to_string());
        } else {
            misfits.error.get_or_insert(error);
        }
    }
    Ok(())
}

/// Looks for the values of columns in some records.
async fn missing_values(
    store: &DatasetStore,
    manifest: &Manifest,
    job: &Job,
    view: Option<&SampleSet>,
    misfits: &mut Misfits,
) {
    let classes: Vec<&str> = manifest.classes().collect();
    let mut wanted: Vec<WantedValue<'_>> =
        decoded_columns(&job.columns).filter_map(|column| WantedValue::of(column, &classes)).collect();
    let fields: Vec<String> = wanted.iter().flat_map(|wanted| wanted.column.from.iter().cloned()).collect();
    let Ok(reader) = SampleReader::of_fields(store, manifest.clone(), fields) else { return };
    let samples = view.map_or_else(|| manifest.samples(), SampleSet::len);
    let sample = |nth: u64| view.map_or(nth, |view| view.select(nth).0);
    for place in 0..PLACES.min(samples) {
        wanted.retain(|wanted| !wanted.is_found);
        if wanted.is_empty() {
            return;
        }
        let first = place * samples / PLACES.min(samples);
        let of_place = (first..samples.min(first + READ_RECORDS)).map(sample).map(SampleId);
        let Ok(records) = reader.of_one_block(of_place).await else { return };
        for record in &records {
            wanted.iter_mut().for_each(|wanted| wanted.look_at(record));
        }
    }
    for wanted in wanted.iter().filter(|wanted| !wanted.is_found && wanted.records > 0) {
        misfits.add(job, wanted.column, wanted.error(job));
    }
}

/// A value that some record should have.
struct WantedValue<'j> {
    column: &'j Column,
    /// The names that the value can be, if the column looks names up.
    names: Option<Vec<&'j str>>,
    is_found: bool,
    /// Number of records that were looked at and have the field.
    records: usize,
    /// Values of the field that are none of the names.
    values: BTreeSet<String>,
    /// Where the path leads: how many of its keys are there, and what is there.
    deepest: usize,
    there: DocumentPlace,
}

/// What is at a place of a document.
#[derive(Default)]
enum DocumentPlace {
    /// No document was read.
    #[default]
    NoDocument,
    Object(BTreeSet<String>),
    List(usize),
    Single,
}

impl<'j> WantedValue<'j> {
    /// Returns what a column looks for within its field, if it does.
    fn of(column: &'j Column, classes: &[&'j str]) -> Option<Self> {
        let names = match &column.kind {
            ColumnKind::Category(category) => Some(
                category
                    .names
                    .as_ref()
                    .map_or_else(|| classes.to_vec(), |names| names.iter().map(String::as_str).collect()),
            ),
            _ => None,
        };
        let is_wanted = names.is_some() || !column.path().is_empty();
        let (values, there) = Default::default();
        is_wanted.then_some(Self { column, names, is_found: false, records: 0, values, deepest: 0, there })
    }

    fn look_at(&mut self, record: &SeenRecord) {
        let field = self.column.from.iter().find_map(|name| record.fields.iter().find(|field| field.name == *name));
        let Some(Ok(Content::File(file))) =
            field.and_then(|field| field.value.clone().ok()).map(|value| value.into_one())
        else {
            return;
        };
        if self.is_found || file.starts_with(GZIP_MAGIC) {
            return;
        }
        self.records += 1;
        if self.column.path().is_empty() {
            self.look_for_name(String::from_utf8_lossy(&file).trim());
        } else if let Ok(document) = json::read::<Value>(&file) {
            match json::at(&document, self.column.path()) {
                Some(Value::String(name)) => self.look_for_name(name),
                Some(_) => self.is_found = true,
                None => self.look_for_path(&document),
            }
        }
    }

    fn look_for_name(&mut self, name: &str) {
        let Some(names) = &self.names else {
            self.is_found = true;
            return;
        };
        self.is_found = names.contains(&name.trim());
        self.values.insert(name.chars().take(40).collect());
    }

    /// Notes how far the path leads in a document.
    fn look_for_path(&mut self, document: &Value) {
        let path = self.column.path();
        let depth = (0..path.len()).rev().find(|depth| json::at(document, &path[..*depth]).is_some()).unwrap_or(0);
        if depth > self.deepest || matches!(self.there, DocumentPlace::NoDocument) {
            (self.deepest, self.there) = (depth, DocumentPlace::Single);
        }
        match (json::at(document, &path[..depth]), &mut self.there) {
            _ if depth < self.deepest => {}
            (Some(Value::Object(members)), DocumentPlace::Object(keys)) => keys.extend(members.keys().cloned()),
            (Some(Value::Object(members)), there) => *there = DocumentPlace::Object(members.keys().cloned().collect()),
            (Some(Value::Array(items)), there) => *there = DocumentPlace::List(items.len()),
            _ => {}
        }
    }

    fn error(&self, job: &Job) -> JobError {
        let Self { column, records, deepest, .. } = self;
        let looked = format!("none of the {records} records that were looked at");
        if let Some(names) = self.names.as_ref().filter(|_| !self.values.is_empty()) {
            let values =
                self.values.iter().take(SHOWN_VALUES).map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
            let mut problem = format!("are in {looked}, which have {values}");
            if self.values.iter().all(|value| value.parse::<u64>().is_ok()) {
                problem.push_str("; `decode = \"int\"` takes numbers of classes, and its `classes` lists some of them");
            }
            let first = self.values.first().map_or("", String::as_str);
            return named_in_dataset(&job.name, key_of(column, "names"), problem, (first, names), "the names are");
        }
        let path = column.path().join(".");
        let parent = column.path()[..*deepest].join(".");
        let within = |key: &String| if parent.is_empty() { key.clone() } else { format!("{parent}.{key}") };
        let place = if parent.is_empty() { "the document".to_owned() } else { format!("`{parent}`") };
        let problem = format!("is `{path}`, which {looked} has");
        let keys: Vec<String> = match &self.there {
            DocumentPlace::Object(keys) => keys.iter().map(within).collect(),
            _ => Vec::new(),
        };
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let problem = match &self.there {
            DocumentPlace::Object(_) => problem,
            DocumentPlace::List(items) => {
                format!("{problem}; {place} is a list of {items}, whose places are numbers from 0")
            }
            DocumentPlace::Single => format!("{problem}; {place} is a single value"),
            DocumentPlace::NoDocument => {
                format!("is `{path}`, and field `{}` of {looked} is a JSON document", column.from[0])
            }
        };
        let upto = column.path()[..(*deepest + 1).min(column.path().len())].join(".");
        named_in_dataset(&job.name, key_of(column, "path"), problem, (&upto, &keys), "there are")
    }
}
