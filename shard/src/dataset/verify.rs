//! Reads a dataset and compares every byte with its manifest and record indexes, and with the originals it was made
//! from.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use serde::Serialize;
use spdl_pipeline::{Op, PipelinePlan};
use tokio::runtime::Handle;

use super::{
    Against, DatasetError, DatasetProgress, FieldChoice, crop_ready,
    fields::{FieldBatch, FieldSource, FoundField, IndexedField, IsWanted, OpenShard, READ, ShardEnd},
    originals::{Compared, Original, Originals},
    report::progress_of,
    source::{ANNOTATION_FIELD, LABEL_FIELD, is_picture},
    stages::{RunningStages, cpu_threads},
};
use crate::{
    format::{Field, ShardIndex},
    index::Segments,
    manifest::Manifest,
    store::DatasetStore,
};

/// Upper limit of the faults that are listed for one shard; more are only counted.
const MAX_FAULTS_PER_SHARD: usize = 10_000;

/// Number of batches whose originals are read at once.
const ORIGINALS_AT_ONCE: usize = 8;
/// Number of checked batches that may be ready to be counted.
const BATCHES_READY: usize = 4;

/// Fields that are never pictures, whatever they contain.
const NO_PICTURES: [&str; 4] = [LABEL_FIELD, ANNOTATION_FIELD, "json", "txt"];

/// How a dataset is verified.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// What the records are compared with: every picture must have the coefficients of its original. Default: nothing.
    pub against: Option<Against>,
    /// Which files of the originals became fields, if not all did. Default: all.
    pub fields: Option<FieldChoice>,
    /// The decoder that finds pictures which do not decode. Default: none; only the bytes of pictures are compared.
    pub decode: Option<PictureCheck>,
}

/// Decodes a picture from its bytes and returns what is wrong with it, as in `is cut off`.
#[derive(Clone)]
pub struct PictureCheck(Arc<dyn Fn(Bytes) -> Result<(), String> + Send + Sync>);

impl PictureCheck {
    /// Creates a check that calls `decode`, on threads that may block.
    pub fn new(decode: impl Fn(Bytes) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(decode))
    }

    fn check(&self, content: Bytes) -> Option<String> {
        (self.0)(content).err()
    }
}

impl std::fmt::Debug for PictureCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PictureCheck").finish_non_exhaustive()
    }
}

/// The report about a verified dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Number of shards that were read.
    pub shards: u64,
    /// Number of records that were read.
    pub records: u64,
    /// Number of fields that were read and compared with the index.
    pub fields: u64,
    /// Number of these that have no checksum, as loose files: their size was compared, and their etag where both have
    /// one.
    pub fields_without_checksum: u64,
    /// Bytes of shards that were read.
    pub bytes: u64,
    /// Number of crop-ready pictures whose every coefficient was decoded, and whose segments are where their tables
    /// say.
    pub crop_ready_pictures: u64,
    /// Number of pictures that were decoded completely; `None` if [`VerifyOptions::decode`] is not set.
    pub decoded_pictures: Option<u64>,
    /// Number of shards whose etag is not the one in the manifest, as with copies: their bytes show whether they
    /// changed.
    pub other_etags: u64,
    /// Number of pictures that have the coefficients of their originals: the same pixels in every decoder.
    pub same_pictures: u64,
    /// Number of other fields that are the same as their originals.
    pub same_fields: u64,
    /// Number of originals without an annotation, which an annotated dataset leaves out.
    pub left_out: u64,
    /// What is wrong, in the order of the shards. If it is empty, every byte is as the manifest records.
    pub faults: Vec<VerifyFault>,
}

/// One fault of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyFault {
    /// The shard, relative to the dataset's folder; `None` if it is not the fault of a shard.
    pub shard: Option<String>,
    /// The record's key, if it is the fault of one record.
    pub record: Option<String>,
    /// What is wrong.
    pub problem: String,
}

/// Verifies the dataset in the folder `at`: sizes, the record indexes' hashes, blocks, and the checksum of every field.
///
/// # Errors
/// If there is no manifest that can be read, or the store cannot be reached. Faults of shards are not errors; the
/// report lists them.
pub async fn verify(
    at: &DatasetStore,
    options: &VerifyOptions,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<VerifyReport, DatasetError> {
    let manifest = Arc::new(at.manifest().await?);
    let originals = match &options.against {
        Some(against) => Some(Originals::list(against, options.fields.as_ref(), &manifest).await?),
        None => None,
    };
    let total_bytes = manifest.shards().map(|shard| shard.bytes).sum();
    let check = Arc::new(DatasetCheck { manifest, originals, decode: options.decode.clone() });
    let mut tally = VerifyTally::new(options.decode.is_some());
    let mut batches = RunningStages::start(check.stages(at))?;
    loop {
        let (shards, records) = (tally.report.shards, tally.report.records);
        let batch = batches.next(|stats| progress(progress_of(stats, READ, total_bytes, shards, records))).await?;
        match batch {
            Some(batch) => tally.add(batch),
            None => break,
        }
    }
    Ok(tally.finish(check.originals.as_ref()))
}

/// The checks of the dataset that is being verified.
struct DatasetCheck {
    manifest: Arc<Manifest>,
    originals: Option<Originals>,
    decode: Option<PictureCheck>,
}

/// The findings in a batch of fields.
#[derive(Default)]
struct BatchCheck {
    /// The counts of the batch. Only its fields that count something are set, and the faults.
    found: VerifyReport,
    may_be_left_out: bool,
    is_end_of_shard: bool,
}

impl DatasetCheck {
    /// Returns the stages that read and check the dataset.
    fn stages(self: &Arc<Self>, at: &DatasetStore) -> PipelinePlan<BatchCheck> {
        let [wanting, finding, checking] = [(); 3].map(|()| Arc::clone(self));
        let is_wanted: Arc<IsWanted> = Arc::new(move |key, field, segments| wanting.is_wanted(key, field, segments));
        let source = FieldSource {
            store: at.clone(),
            manifest: Arc::clone(&self.manifest),
            is_wanted,
            memory_factor: if self.originals.is_some() { 2 } else { 1 },
        };
        let runtime = Handle::current();
        let check = move |(batch, originals)| Ok::<_, DatasetError>(checking.batch(&batch, originals));
        source
            .stages()
            .pipe("originals", Op::blocking(move |batch| finding.originals(batch, &runtime)), ORIGINALS_AT_ONCE)
            .pipe("check", Op::cpu(check), cpu_threads())
            .sink(BATCHES_READY)
    }

    fn is_wanted(&self, key: &str, field: &Field<'_>, segments: Option<Segments<'_>>) -> bool {
        segments.is_some()
            || self.originals.as_ref().is_some_and(|of| of.is_wanted(key, field))
            || self.decode.is_some() && may_be_picture(field)
    }

    /// Reads the originals that the fields of a batch are compared with.
    fn originals(
        &self,
        batch: FieldBatch,
        runtime: &Handle,
    ) -> Result<(FieldBatch, Vec<Option<Original>>), DatasetError> {
        let Some(originals) = &self.originals else { return Ok((batch, Vec::new())) };
        let found = batch.fields.iter().map(|found| {
            let IndexedField { key, field, .. } = batch.shard.field(found.place);
            match &found.content {
                Some(_) if originals.is_wanted(key, &field) => originals.original(key, &field, runtime).map(Some),
                _ => Ok(None),
            }
        });
        let found = found.collect::<Result<_, _>>()?;
        Ok((batch, found))
    }

    /// Checks a batch: with the first batch of a shard also the shard itself, with the last one also its end.
    fn batch(&self, batch: &FieldBatch, originals: Vec<Option<Original>>) -> BatchCheck {
        let mut check = BatchCheck::default();
        let shard = &*batch.shard;
        if batch.is_first {
            check.shard(self, shard);
        }
        let mut originals = originals.into_iter();
        for found in &batch.fields {
            check.field(self, shard, found, originals.next().flatten());
        }
        if let Some(end) = &batch.end {
            check.end(shard, end);
        }
        check
    }
}

impl BatchCheck {
    /// Checks what the manifest has about a shard.
    fn shard(&mut self, dataset: &DatasetCheck, open: &OpenShard) {
        let shard = open.shard();
        self.found.shards = 1;
        if let (Some(meta), Some(object)) = (&open.object, shard.format.object(&shard)) {
            if let Some([noted, found]) = object.change(meta.size, meta.e_tag.as_deref()) {
                self.fault(open, None, format!("the shard changed: the manifest has {noted}, the store has {found}"));
            }
            // Every byte of a record is compared, so a different etag proves nothing more: a copy may have another.
            let has_other_etag = object.etag.zip(meta.e_tag.as_deref()).is_some_and(|(noted, found)| noted != found);
            self.found.other_etags = u64::from(has_other_etag);
        }
        let Some(index) = open.index.as_deref() else { return };
        self.blocks(&dataset.manifest, open, index);
        if let Some(originals) = &dataset.originals {
            for record in index.records() {
                if let Some(problem) = originals.claim(&record) {
                    self.fault(open, Some(record.key), problem);
                }
            }
            self.may_be_left_out = originals.may_be_left_out(index);
        }
    }

    /// Checks that every block holds the number of samples in the manifest, and that its records' fields lie inside it.
    fn blocks(&mut self, manifest: &Manifest, shard: &OpenShard, index: &dyn ShardIndex) {
        for number in manifest.shard_blocks(shard.number()) {
            let block = manifest.block(number);
            let records = block.first_record..block.first_record + block.records;
            let samples: u64 = records.clone().map(|record| u64::from(index.record(record).samples)).sum();
            if samples != u64::from(block.samples) {
                let problem = format!("block {number} has {samples} samples, the manifest has {}", block.samples);
                self.fault(shard, None, problem);
            }
            for record in records.map(|record| index.record(record)) {
                let inside = |field: Field<'_>| {
                    let block = block.offset..=block.offset + block.bytes;
                    field.range().is_none_or(|range| block.contains(&range.start) && block.contains(&range.end))
                };
                if !record.fields().all(inside) {
                    let problem = format!("lies outside block {number}, where the manifest has it");
                    self.fault(shard, Some(record.key), problem);
                }
            }
        }
    }

    /// Checks that a field has the bytes that were indexed, that a crop-ready picture decodes and matches its table,
    /// that a picture decodes if the caller wants that, and that the field is the same as its original.
    fn field(&mut self, dataset: &DatasetCheck, shard: &OpenShard, found: &FoundField, original: Option<Original>) {
        let IndexedField { key, field, segments } = shard.field(found.place);
        self.found.fields += 1;
        self.found.fields_without_checksum += u64::from(field.crc32c.is_none() && field.value.is_none());
        if let Some(problem) = &found.problem {
            self.fault(shard, Some(key), problem.clone());
        }
        let Some(content) = &found.content else { return };
        let mut fault = |problem: String| self.fault(shard, Some(key), format!("field `{}` {problem}", field.name));
        if let Some(segments) = segments {
            if let Some(problem) = crop_ready::check(content, segments.step, segments.lengths) {
                return fault(problem);
            }
            self.found.crop_ready_pictures += 1;
        }
        if let Some(decode) = dataset.decode.as_ref().filter(|_| is_picture_of(field.name, content)) {
            match decode.check(content.clone()) {
                Some(problem) => self.fault(shard, Some(key), format!("field `{}` {problem}", field.name)),
                None => *self.found.decoded_pictures.get_or_insert(0) += 1,
            }
        }
        match original.map(|original| original.compare(content)) {
            Some(Compared::SamePicture) => self.found.same_pictures += 1,
            Some(Compared::Same) => self.found.same_fields += 1,
            Some(Compared::Different(how)) => {
                self.fault(shard, Some(key), format!("field `{}` {how}", field.name));
            }
            None => {}
        }
    }

    /// Checks that the shard did not end too early.
    fn end(&mut self, shard: &OpenShard, ShardEnd { bytes, rest }: &ShardEnd) {
        self.is_end_of_shard = true;
        match rest {
            Ok(rest) => {
                self.found.bytes = *bytes;
                self.found.records = u64::from(shard.index().record_count());
                for place in rest {
                    let IndexedField { key, field: Field { name, offset, .. }, .. } = shard.field(*place);
                    let problem = format!("field `{name}` at byte {offset} is cut off: the shard ends at {bytes}");
                    self.fault(shard, Some(key), problem);
                }
            }
            // The shard is at fault, not the connection to the store: the other shards can still be read.
            Err(error) => self.fault(shard, None, error.to_string()),
        }
    }

    fn fault(&mut self, shard: &OpenShard, record: Option<&str>, problem: String) {
        let (shard, record) = (Some(shard.shard().url.to_owned()), record.map(str::to_owned));
        self.found.faults.push(VerifyFault { shard, record, problem });
    }
}

/// Adds up the findings, which arrive in the order of the dataset.
struct VerifyTally {
    report: VerifyReport,
    may_be_left_out: bool,
    /// Number of faults of the shard whose fields arrive.
    shard_faults: usize,
}

impl VerifyTally {
    fn new(decodes: bool) -> Self {
        let report = VerifyReport { decoded_pictures: decodes.then_some(0), ..VerifyReport::default() };
        Self { report, may_be_left_out: false, shard_faults: 0 }
    }

    fn add(&mut self, batch: BatchCheck) {
        let BatchCheck { found, may_be_left_out, is_end_of_shard } = batch;
        let report = &mut self.report;
        report.shards += found.shards;
        report.records += found.records;
        report.fields += found.fields;
        report.fields_without_checksum += found.fields_without_checksum;
        report.bytes += found.bytes;
        report.crop_ready_pictures += found.crop_ready_pictures;
        if let Some(decoded) = &mut report.decoded_pictures {
            *decoded += found.decoded_pictures.unwrap_or(0);
        }
        report.other_etags += found.other_etags;
        report.same_pictures += found.same_pictures;
        report.same_fields += found.same_fields;
        self.may_be_left_out |= may_be_left_out;
        let room = MAX_FAULTS_PER_SHARD.saturating_sub(self.shard_faults);
        self.shard_faults += found.faults.len();
        report.faults.extend(found.faults.into_iter().take(room));
        if is_end_of_shard
            && let Some(more @ 1..) = std::mem::take(&mut self.shard_faults).checked_sub(MAX_FAULTS_PER_SHARD)
        {
            let shard = report.faults.last().and_then(|fault| fault.shard.clone());
            report.faults.push(VerifyFault { shard, record: None, problem: format!("{more} more faults") });
        }
    }

    /// Returns the report. Originals that no record was compared with are faults.
    fn finish(self, originals: Option<&Originals>) -> VerifyReport {
        let mut report = self.report;
        let unclaimed: BTreeSet<&str> = originals.into_iter().flat_map(Originals::unclaimed).collect();
        if self.may_be_left_out {
            report.left_out = unclaimed.len() as u64;
            return report;
        }
        for key in unclaimed.iter().take(MAX_FAULTS_PER_SHARD) {
            let (record, problem) = (Some((*key).to_owned()), "is not there".to_owned());
            report.faults.push(VerifyFault { shard: None, record, problem });
        }
        if let Some(more @ 1..) = unclaimed.len().checked_sub(MAX_FAULTS_PER_SHARD) {
            let problem = format!("{more} more records are not there");
            report.faults.push(VerifyFault { shard: None, record: None, problem });
        }
        report
    }
}

/// Returns whether a field's content is needed to decide whether it is a picture.
fn may_be_picture(field: &Field<'_>) -> bool {
    is_picture(field.name) || !NO_PICTURES.contains(&field.name)
}

/// Returns whether a field holds a picture, by its name or by the first bytes of its content.
fn is_picture_of(name: &str, content: &[u8]) -> bool {
    const MAGICS: [&[u8]; 5] = [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"II*\0", b"MM\0*"];
    let is_webp = content.starts_with(b"RIFF") && content.get(8..12) == Some(b"WEBP");
    is_picture(name) || is_webp || MAGICS.iter().any(|magic| content.starts_with(magic))
}
