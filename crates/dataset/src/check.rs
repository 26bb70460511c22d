//! The checks of a dataset's shards and fields, and the stages that do them.

use std::sync::Arc;

use bytes::Bytes;
use spdl_pipeline::{Op, PipelinePlan};
use spdl_shard::{
    format::{Field, RecordKey, ShardIndex},
    index::Segments,
    manifest::Manifest,
    store::DatasetStore,
};
use tokio::runtime::Handle;

use super::{
    DatasetError, PictureCheck, VerifyFault, VerifyReport, crop_ready,
    cut::{FieldBatch, FoundField, ShardEnd},
    fields::FieldSource,
    originals::{Compared, Original, Originals},
    parts::{IndexedField, MAX_WHOLE_BYTES, ReadShard, WantedContent, WantedOf},
    scalable::{is_scalable, original},
    source::{is_picture, may_be_picture},
    stages::cpu_threads,
};

/// Upper limit of the faults that are listed for one shard; more are only counted.
pub(super) const MAX_FAULTS_PER_SHARD: usize = 10_000;

/// Number of batches whose originals are read at once.
const ORIGINALS_AT_ONCE: usize = 8;
/// Number of checked batches that may be ready to be counted.
const BATCHES_READY: usize = 4;

/// The checks of the dataset that is being verified.
pub(super) struct DatasetCheck {
    pub(super) manifest: Arc<Manifest>,
    pub(super) originals: Option<Originals>,
    pub(super) decode: Option<PictureCheck>,
}

/// The findings in a batch of fields.
#[derive(Default)]
pub(super) struct BatchCheck {
    /// The counts and the faults of the batch alone.
    pub(super) found: VerifyReport,
    /// Number of faults that are not listed.
    pub(super) more_faults: usize,
    /// The pieces of long fields that were compared with their originals.
    pub(super) pieces: Vec<PieceCheck>,
    pub(super) may_be_left_out: bool,
    pub(super) is_end_of_shard: bool,
}

/// The result of comparing a piece of a long field with its original.
pub(super) struct PieceCheck {
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    pub(super) result: Result<Compared, VerifyFault>,
}

impl DatasetCheck {
    /// Returns the stages that read and check the dataset.
    pub(super) fn stages(self: &Arc<Self>, at: &DatasetStore) -> PipelinePlan<BatchCheck> {
        let [wanting, finding, checking] = [(); 3].map(|()| Arc::clone(self));
        let wanted: Arc<WantedOf> = Arc::new(move |key, field, segments| wanting.wanted(key, field, segments));
        let source = FieldSource {
            store: at.clone(),
            manifest: Arc::clone(&self.manifest),
            wanted,
            // An original is at most about twice as long as its field, and a scalable picture is restored.
            memory_factor: if self.originals.is_some() { 4 } else { 1 },
        };
        let runtime = Handle::current();
        let check = move |(batch, originals)| Ok::<_, DatasetError>(checking.batch(&batch, originals));
        source
            .stages()
            .pipe("originals", Op::blocking(move |batch| finding.originals(batch, &runtime)), ORIGINALS_AT_ONCE)
            .pipe("check", Op::cpu(check), cpu_threads())
            .sink(BATCHES_READY)
    }

    fn wanted(&self, key: RecordKey<'_>, field: &Field<'_>, segments: Option<Segments<'_>>) -> WantedContent {
        if segments.is_some() || self.decode.is_some() && may_be_picture(field) {
            return WantedContent::Whole;
        }
        self.originals.as_ref().map_or(WantedContent::Nothing, |originals| originals.wanted(key, field))
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
                Some(content) if originals.wanted(key, &field) != WantedContent::Nothing => {
                    let piece = (!found.is_whole()).then(|| found.at..found.at + content.len() as u32);
                    originals.original((key, &field), piece, runtime).map(Some)
                }
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
        check.others(shard, batch.others);
        if let Some(end) = &batch.end {
            check.end(shard, end);
        }
        check
    }
}

impl BatchCheck {
    /// Checks what the manifest has about a shard.
    fn shard(&mut self, dataset: &DatasetCheck, open: &ReadShard) {
        let shard = open.shard();
        self.found.shards = 1;
        let object = open.index.as_ref().map_or_else(|| shard.format.object(&shard), |index| index.object(&shard));
        if let (Some(meta), Some(object)) = (&open.object, object) {
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
    fn blocks(&mut self, manifest: &Manifest, shard: &ReadShard, index: &dyn ShardIndex) {
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

    /// Counts fields without a fault.
    fn others(&mut self, shard: &ReadShard, others: u64) {
        self.found.fields += others;
        if others > 0 && !has_checksum(shard.index()) {
            self.found.fields_without_checksum += others;
        }
    }

    /// Checks that a field has the bytes that were indexed, that a crop-ready picture decodes and matches its table,
    /// that a picture decodes if the caller wants that, and that the field is the same as its original.
    fn field(&mut self, dataset: &DatasetCheck, shard: &ReadShard, found: &FoundField, original: Option<Original>) {
        let IndexedField { key, field, segments } = shard.field(found.place);
        if found.is_last {
            self.found.fields += 1;
            let has_checksum = field.crc32c.is_some() || field.value.is_some() || has_checksum(shard.index());
            self.found.fields_without_checksum += u64::from(!has_checksum);
        }
        if let Some(problem) = &found.problem {
            self.fault(shard, Some(key), problem.clone());
        }
        for (number, content) in found.list.iter().flatten().enumerate() {
            if let Some(problem) = content.as_ref().and_then(|content| self.decoded(dataset, field.name, content)) {
                let which = format!("has number {number} from 0, which");
                self.fault(shard, Some(key), format!("field `{}` {which} {problem}", field.name));
            }
        }
        let Some(content) = &found.content else { return };
        let compared = original.map(|original| original.compare(content, found.is_whole()));
        if !found.is_whole() {
            return self.piece(dataset, shard, found, compared);
        }
        let mut fault = |problem: String| self.fault(shard, Some(key), format!("field `{}` {problem}", field.name));
        if let Some(segments) = segments {
            if let Some(problem) = crop_ready::check(content, segments.step, segments.lengths) {
                return fault(problem);
            }
            self.found.crop_ready_pictures += 1;
        }
        if let Some(problem) = self.decoded(dataset, field.name, content) {
            self.fault(shard, Some(key), format!("field `{}` {problem}", field.name));
        }
        match compared {
            Some(Compared::SamePicture) => self.found.same_pictures += 1,
            Some(Compared::Same) => self.found.same_fields += 1,
            Some(Compared::Different(how)) => {
                self.fault(shard, Some(key), format!("field `{}` {how}", field.name));
            }
            None => {}
        }
    }

    /// Decodes the content of a field if that is wanted and it is a picture. Returns what is wrong with it.
    fn decoded(&mut self, dataset: &DatasetCheck, field: &str, content: &Bytes) -> Option<String> {
        let decode = dataset.decode.as_ref().filter(|_| is_picture_of(field, content))?;
        let problem = decode.check(content.clone()).or_else(|| crop_ready::check_scans(content));
        let problem = problem.or_else(|| original(content).err().map(|error| format!("is not restored: {error}")));
        if problem.is_none() {
            self.found.scalable_pictures += u64::from(is_scalable(content));
            *self.found.decoded_pictures.get_or_insert(0) += 1;
        }
        problem
    }

    /// Checks a piece of a field that is too long to be in memory as a whole.
    fn piece(&mut self, dataset: &DatasetCheck, shard: &ReadShard, found: &FoundField, compared: Option<Compared>) {
        let (IndexedField { key, field, segments }, is_first) = (shard.field(found.place), found.at == 0);
        let content = found.content.as_deref().unwrap_or_default();
        let is_wanted_whole = segments.is_some()
            || dataset.decode.is_some() && may_be_picture(&field) && is_picture_of(field.name, content);
        if is_first && is_wanted_whole && u64::from(field.bytes) > MAX_WHOLE_BYTES {
            let mib = MAX_WHOLE_BYTES >> 20;
            let problem = format!("field `{}` is a picture of more than {mib} MiB, which is not decoded", field.name);
            self.fault(shard, Some(key), problem);
        }
        if let Some(compared) = compared {
            let result = match compared {
                Compared::Different(how) => Err(fault(shard, Some(key), format!("field `{}` {how}", field.name))),
                same => Ok(same),
            };
            self.pieces.push(PieceCheck { is_first, is_last: found.is_last, result });
        }
    }

    /// Checks that the shard did not end too early.
    fn end(&mut self, shard: &ReadShard, ShardEnd { bytes, rest, other_checksum }: &ShardEnd) {
        self.is_end_of_shard = true;
        if let Some(problem) = other_checksum {
            self.fault(shard, None, problem.clone());
        }
        match rest {
            Ok(rest) => {
                self.found.bytes = *bytes;
                self.found.records = u64::from(shard.index().record_count());
                self.more_faults = rest.len().saturating_sub(MAX_FAULTS_PER_SHARD);
                for place in rest.iter().take(MAX_FAULTS_PER_SHARD) {
                    let IndexedField { key, field: Field { name, offset, .. }, .. } = shard.field(*place);
                    let problem = format!("field `{name}` at byte {offset} is cut off: the shard ends at {bytes}");
                    self.fault(shard, Some(key), problem);
                }
            }
            // The shard is at fault, not the connection to the store: the other shards can still be read.
            Err(error) => self.fault(shard, None, error.to_string()),
        }
    }

    fn fault(&mut self, shard: &ReadShard, record: Option<RecordKey<'_>>, problem: String) {
        self.found.faults.push(fault(shard, record, problem));
    }
}

/// Returns whether the shard as a whole, or the object that it is decompressed from, has a checksum.
fn has_checksum(index: &dyn ShardIndex) -> bool {
    index.checksum().is_some() || index.compressed().is_some_and(|object| object.checksum.is_some())
}

/// Returns a fault of a shard, or of a record in it.
fn fault(shard: &ReadShard, record: Option<RecordKey<'_>>, problem: String) -> VerifyFault {
    VerifyFault { shard: Some(shard.shard().url.to_owned()), record: record.map(|key| key.to_string()), problem }
}

/// Returns whether a field holds a picture, by its name or by the first bytes of its content.
fn is_picture_of(name: &str, content: &[u8]) -> bool {
    const MAGICS: [&[u8]; 5] = [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"II*\0", b"MM\0*"];
    let is_webp = content.starts_with(b"RIFF") && content.get(8..12) == Some(b"WEBP");
    is_picture(name) || is_webp || is_scalable(content) || MAGICS.iter().any(|magic| content.starts_with(magic))
}
