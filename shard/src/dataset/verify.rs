//! Reads a dataset and compares every byte with its manifest and record indexes, and with the originals it was made
//! from.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectMeta, ObjectStoreExt};
use serde::Serialize;

use super::{
    Against, DatasetError, DatasetProgress, FieldChoice, crop_ready,
    fields::{FoundField, ShardFields},
    originals::{Compared, Originals},
    report::Meter,
    source::{ANNOTATION_FIELD, LABEL_FIELD, is_picture},
};
use crate::{
    format::{Field, ShardIndex},
    index::Segments,
    manifest::{Manifest, Shard},
    store::{DatasetStore, StoreError},
};

/// Upper limit of the faults that are listed for one shard; more are only counted.
const MAX_FAULTS_PER_SHARD: usize = 10_000;

/// Number of fields of one shard that are compared at once.
const FIELDS_AT_ONCE: usize = 8;

/// Fields that are never pictures, whatever they contain.
const NO_PICTURES: [&str; 4] = [LABEL_FIELD, ANNOTATION_FIELD, "json", "txt"];

/// How a dataset is verified.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// Number of shards that are read at once. Default: 4. Each uses 32 MiB of memory.
    pub shards_at_once: usize,
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

    async fn check(&self, content: Bytes) -> Option<String> {
        let decode = Arc::clone(&self.0);
        let decoding = tokio::task::spawn_blocking(move || decode(content).err());
        decoding.await.expect("decoding does not panic")
    }
}

impl std::fmt::Debug for PictureCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PictureCheck").finish_non_exhaustive()
    }
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self { shards_at_once: 4, against: None, fields: None, decode: None }
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
    let manifest = at.manifest().await?;
    let originals = match &options.against {
        Some(against) => Some(Originals::list(against, options.fields.as_ref(), &manifest).await?),
        None => None,
    };
    let meter = Meter::new(manifest.shards().map(|shard| shard.bytes).sum(), progress);
    let dataset = &DatasetCheck { at, manifest, originals, decode: options.decode.clone(), meter };
    let mut shards = std::pin::pin!(
        stream::iter(0..dataset.manifest.shard_count())
            .map(|number| ShardCheck::run(dataset, number))
            .buffered(options.shards_at_once.max(1))
    );
    let mut may_be_left_out = false;
    let mut report = VerifyReport { decoded_pictures: options.decode.as_ref().map(|_| 0), ..VerifyReport::default() };
    while let Some(shard) = shards.try_next().await? {
        report.shards += 1;
        report.records += shard.records;
        report.fields += shard.fields;
        report.fields_without_checksum += shard.fields_without_checksum;
        report.bytes += shard.bytes;
        report.crop_ready_pictures += shard.crop_ready_pictures;
        if let Some(decoded) = &mut report.decoded_pictures {
            *decoded += shard.decoded_pictures;
        }
        report.other_etags += u64::from(shard.has_other_etag);
        report.same_pictures += shard.same_pictures;
        report.same_fields += shard.same_fields;
        may_be_left_out |= shard.may_be_left_out;
        report.faults.extend(shard.faults);
    }
    if let Some(originals) = &dataset.originals {
        let mut missing: Vec<&str> = originals.unclaimed().collect();
        missing.sort_unstable();
        if may_be_left_out {
            report.left_out = missing.len() as u64;
            missing.clear();
        }
        let fault =
            |key: &str| VerifyFault { shard: None, record: Some(key.to_owned()), problem: "is not there".to_owned() };
        report.faults.extend(missing.iter().take(MAX_FAULTS_PER_SHARD).map(|key| fault(key)));
        if let Some(more) = missing.len().checked_sub(MAX_FAULTS_PER_SHARD + 1) {
            let problem = format!("{} more records are not there", more + 1);
            report.faults.push(VerifyFault { shard: None, record: None, problem });
        }
    }
    Ok(report)
}

/// The dataset that is being verified.
struct DatasetCheck<'d> {
    at: &'d DatasetStore,
    manifest: Manifest,
    originals: Option<Originals>,
    decode: Option<PictureCheck>,
    meter: Meter<'d>,
}

/// The findings in one shard.
#[derive(Default)]
struct ShardCheck {
    shard: String,
    records: u64,
    fields: u64,
    fields_without_checksum: u64,
    bytes: u64,
    crop_ready_pictures: u64,
    decoded_pictures: u64,
    has_other_etag: bool,
    same_pictures: u64,
    same_fields: u64,
    may_be_left_out: bool,
    faults: Vec<VerifyFault>,
    unlisted_faults: usize,
}

impl ShardCheck {
    async fn run(dataset: &DatasetCheck<'_>, number: u32) -> Result<Self, DatasetError> {
        let shard = dataset.manifest.shard(number);
        let mut check = Self { shard: shard.url.to_owned(), ..Self::default() };
        match check.shard(dataset, number, &shard).await {
            Ok(()) => {}
            // The shard is at fault, not the connection to the store: the other shards can still be read.
            Err(DatasetError::Store(error)) if !error.is_of_connection() => check.fault(None, error.to_string()),
            Err(error) => return Err(error),
        }
        if check.unlisted_faults > 0 {
            let problem = format!("{} more faults", check.unlisted_faults);
            check.faults.push(VerifyFault { shard: Some(check.shard.clone()), record: None, problem });
        }
        dataset.meter.add(1, 0, 0);
        Ok(check)
    }

    async fn shard(&mut self, dataset: &DatasetCheck<'_>, number: u32, shard: &Shard<'_>) -> Result<(), DatasetError> {
        let at = dataset.at;
        let object = match shard.format.object(shard) {
            Some(object) => {
                let head = at.object().head(&at.path_of(&object.url)).await;
                let meta = head.map_err(|source| StoreError::of(&at.url_of(shard.url), source))?;
                if let Some([noted, found]) = object.change(meta.size, meta.e_tag.as_deref()) {
                    self.fault(None, format!("the shard changed: the manifest has {noted}, the store has {found}"));
                }
                // Every byte of a record is compared, so a different etag proves nothing more: a copy may have another.
                self.has_other_etag =
                    object.etag.zip(meta.e_tag.as_deref()).is_some_and(|(noted, found)| noted != found);
                Some(meta)
            }
            None => None,
        };
        let index = at.index(shard).await?;
        let index = &*index;
        self.blocks(&dataset.manifest, number, index);
        if let Some(originals) = &dataset.originals {
            for record in index.records() {
                if let Some(problem) = originals.claim(&record) {
                    self.fault(Some(record.key), problem);
                }
            }
            self.may_be_left_out = originals.may_be_left_out(index);
        }
        self.fields(dataset, shard, index, object).await
    }

    /// Checks that every block holds the number of samples in the manifest, and that its records' fields lie inside it.
    fn blocks(&mut self, manifest: &Manifest, number: u32, index: &dyn ShardIndex) {
        for number in manifest.shard_blocks(number) {
            let block = manifest.block(number);
            let records = block.first_record..block.first_record + block.records;
            let samples: u64 = records.clone().map(|record| u64::from(index.record(record).samples)).sum();
            if samples != u64::from(block.samples) {
                self.fault(None, format!("block {number} has {samples} samples, the manifest has {}", block.samples));
            }
            for record in records.map(|record| index.record(record)) {
                let inside = |field: Field<'_>| {
                    let block = block.offset..=block.offset + block.bytes;
                    field.range().is_none_or(|range| block.contains(&range.start) && block.contains(&range.end))
                };
                if !record.fields().all(inside) {
                    self.fault(Some(record.key), format!("lies outside block {number}, where the manifest has it"));
                }
            }
        }
    }

    /// Checks that every field has the bytes that were indexed, and is the same as its original.
    async fn fields(
        &mut self,
        dataset: &DatasetCheck<'_>,
        shard: &Shard<'_>,
        index: &dyn ShardIndex,
        object: Option<ObjectMeta>,
    ) -> Result<(), DatasetError> {
        let DatasetCheck { at, originals, decode, meter, .. } = dataset;
        let is_wanted = |key: &str, field: &Field<'_>, segments: Option<Segments<'_>>| {
            segments.is_some()
                || originals.as_ref().is_some_and(|of| of.is_wanted(key, field))
                || decode.is_some() && may_be_picture(field)
        };
        let mut fields = ShardFields::read(at, *shard, index, object, Box::new(is_wanted));
        while let Some((mut found, bytes)) = fields.next().await? {
            self.fields += found.len() as u64;
            let has_checksum = |field: &Field<'_>| field.crc32c.is_some() || field.value.is_some();
            self.fields_without_checksum += found.iter().filter(|found| !has_checksum(&found.field)).count() as u64;
            found.retain(|FoundField { key, problem, .. }| {
                problem.iter().for_each(|problem| self.fault(Some(key), problem.clone()));
                problem.is_none()
            });
            self.contents(originals.as_ref(), decode.as_ref(), found).await?;
            meter.add(0, 0, bytes);
        }
        self.bytes = fields.bytes();
        self.records = u64::from(index.record_count());
        meter.add(0, self.records, 0);
        let end = self.bytes;
        for (key, Field { name, offset, .. }) in fields.rest() {
            self.fault(Some(key), format!("field `{name}` at byte {offset} is cut off: the shard ends at {end}"));
        }
        Ok(())
    }

    /// Checks that crop-ready pictures decode and match their tables, that fields are the same as the originals, and
    /// that pictures decode if the caller wants that.
    async fn contents(
        &mut self,
        originals: Option<&Originals>,
        decode: Option<&PictureCheck>,
        found: Vec<FoundField<'_>>,
    ) -> Result<(), DatasetError> {
        let checks = found.into_iter().filter_map(|FoundField { key, field, segments, content, .. }| {
            let content = content?;
            Some(async move {
                let broken = match segments {
                    Some(segments) => check_segments(segments, content.clone()).await,
                    None => None,
                };
                let decoded = match decode.filter(|_| broken.is_none() && is_picture_of(field.name, &content)) {
                    Some(decode) => Some(decode.check(content.clone()).await),
                    None => None,
                };
                let compared = match originals.filter(|of| broken.is_none() && of.is_wanted(key, &field)) {
                    Some(originals) => Some(originals.compare(key, &field, content).await?),
                    None => None,
                };
                Ok::<_, DatasetError>((key, field, segments.is_some(), broken, decoded, compared))
            })
        });
        let mut checks = stream::iter(checks).buffered(FIELDS_AT_ONCE);
        while let Some((key, field, is_crop_ready, broken, decoded, compared)) = checks.try_next().await? {
            self.crop_ready_pictures += u64::from(is_crop_ready && broken.is_none());
            self.decoded_pictures += u64::from(decoded == Some(None));
            let different = match compared {
                Some(Compared::SamePicture) => {
                    self.same_pictures += 1;
                    None
                }
                Some(Compared::Same) => {
                    self.same_fields += 1;
                    None
                }
                Some(Compared::Different(how)) => Some(how),
                None => None,
            };
            for problem in broken.into_iter().chain(decoded.flatten()).chain(different) {
                self.fault(Some(key), format!("field `{}` {problem}", field.name));
            }
        }
        Ok(())
    }

    fn fault(&mut self, record: Option<&str>, problem: String) {
        if self.faults.len() < MAX_FAULTS_PER_SHARD {
            let shard = Some(self.shard.clone());
            self.faults.push(VerifyFault { shard, record: record.map(str::to_owned), problem });
        } else {
            self.unlisted_faults += 1;
        }
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

async fn check_segments(segments: Segments<'_>, content: Bytes) -> Option<String> {
    let (step, lengths) = (segments.step, segments.lengths.to_vec());
    let checking = tokio::task::spawn_blocking(move || crop_ready::check(&content, step, &lengths));
    checking.await.expect("checking does not panic")
}
