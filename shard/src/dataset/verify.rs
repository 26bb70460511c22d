//! Reading a dataset and comparing every byte with what its manifest and record indexes say.

use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectMeta, ObjectStoreExt};
use serde::Serialize;

use super::{DatasetError, Progress, report::Meter};
use crate::{
    index::{Field, RecordIndex},
    manifest::{Manifest, Shard},
    store::{DatasetStore, StoreError},
};

/// Faults of one shard that are listed; of the rest only the number is.
const MAX_FAULTS_PER_SHARD: usize = 10_000;

/// How a dataset is verified.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// Shards that are read at once. Default: 4. Raised, more memory is used, 32 MiB each.
    pub shards_at_once: usize,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self { shards_at_once: 4 }
    }
}

/// What was found in a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Shards that were read.
    pub shards: u64,
    /// Records that were read.
    pub records: u64,
    /// Fields whose checksum was computed.
    pub fields: u64,
    /// Bytes of shards that were read.
    pub bytes: u64,
    /// What is wrong, in the order of the shards. Empty: every byte is as the manifest says.
    pub faults: Vec<Fault>,
}

/// One thing that is wrong with a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The shard, relative to the dataset's folder.
    pub shard: String,
    /// The record's key, where it is one record's fault.
    pub record: Option<String>,
    /// What is wrong.
    pub problem: String,
}

/// Verifies the dataset in the folder `at`: sizes, etags, the record indexes' hashes, blocks, and the checksum of
/// every field.
///
/// # Errors
/// If there is no manifest that can be read, or the store cannot be reached. What is wrong with shards is no error but
/// in the report.
pub async fn verify(
    at: &DatasetStore,
    options: &VerifyOptions,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<VerifyReport, DatasetError> {
    let manifest = at.manifest().await?;
    let meter = Meter::new(manifest.shards().map(|shard| shard.bytes).sum(), progress);
    let (manifest, meter) = (&manifest, &meter);
    let mut shards = std::pin::pin!(
        stream::iter(0..manifest.shard_count())
            .map(|number| ShardCheck::run(at, manifest, number, meter))
            .buffered(options.shards_at_once.max(1))
    );
    let mut report = VerifyReport::default();
    while let Some(shard) = shards.try_next().await? {
        report.shards += 1;
        report.records += shard.records;
        report.fields += shard.fields;
        report.bytes += shard.bytes;
        report.faults.extend(shard.faults);
    }
    Ok(report)
}

/// What was found in one shard.
#[derive(Default)]
struct ShardCheck {
    shard: String,
    records: u64,
    fields: u64,
    bytes: u64,
    faults: Vec<Fault>,
    unlisted_faults: usize,
}

impl ShardCheck {
    async fn run(at: &DatasetStore, manifest: &Manifest, number: u32, meter: &Meter<'_>) -> Result<Self, DatasetError> {
        let shard = manifest.shard(number);
        let mut check = Self { shard: shard.url.to_owned(), ..Self::default() };
        match check.shard(at, manifest, number, &shard, meter).await {
            Ok(()) => {}
            // The shard's fault, not the way's to it: the others can still be read.
            Err(error @ (StoreError::Unreachable { .. } | StoreError::Failed { .. } | StoreError::Denied { .. })) => {
                return Err(error.into());
            }
            Err(error) => check.fault(None, error.to_string()),
        }
        if check.unlisted_faults > 0 {
            let problem = format!("{} more faults", check.unlisted_faults);
            check.faults.push(Fault { shard: check.shard.clone(), record: None, problem });
        }
        meter.add(1, 0, 0);
        Ok(check)
    }

    async fn shard(
        &mut self,
        at: &DatasetStore,
        manifest: &Manifest,
        number: u32,
        shard: &Shard<'_>,
        meter: &Meter<'_>,
    ) -> Result<(), StoreError> {
        let head = at.object().head(&at.shard_path(shard)).await;
        let meta = head.map_err(|source| StoreError::of(&at.url_of(shard.url), source))?;
        if meta.size != shard.bytes {
            self.fault(
                None,
                format!("the shard changed: the manifest says {} bytes, the store says {}", shard.bytes, meta.size),
            );
        }
        if let (Some(noted), Some(found)) = (shard.etag, &meta.e_tag)
            && noted != found
        {
            self.fault(None, format!("the shard changed: the manifest says etag {noted}, the store says {found}"));
        }
        let index = at.index(shard).await?;
        self.blocks(manifest, number, &index);
        self.fields(at, shard, &index, meta, meter).await
    }

    /// Every block holds the samples that the manifest says, and its records' fields lie inside it.
    fn blocks(&mut self, manifest: &Manifest, number: u32, index: &RecordIndex) {
        for number in manifest.shard_blocks(number) {
            let block = manifest.block(number);
            let records = block.first_record..block.first_record + block.records;
            let samples: u64 = records.clone().map(|record| u64::from(index.record(record).samples)).sum();
            if samples != u64::from(block.samples) {
                self.fault(None, format!("block {number} has {samples} samples, the manifest says {}", block.samples));
            }
            for record in records.map(|record| index.record(record)) {
                let inside = |field: Field<'_>| {
                    field.offset >= block.offset && field.offset + u64::from(field.bytes) <= block.offset + block.bytes
                };
                if !record.fields().all(inside) {
                    self.fault(Some(record.key), format!("lies outside block {number}, where the manifest has it"));
                }
            }
        }
    }

    /// Every field has the checksum that the index says. Fields lie one after the other, as the bytes come.
    async fn fields(
        &mut self,
        at: &DatasetStore,
        shard: &Shard<'_>,
        index: &RecordIndex,
        meta: ObjectMeta,
        meter: &Meter<'_>,
    ) -> Result<(), StoreError> {
        let mut fields = index.records().flat_map(|record| record.fields().map(move |field| (record.key, field)));
        let mut open = fields.next();
        let (mut offset, mut crc32c) = (0, 0);
        let mut chunks = std::pin::pin!(at.stream(shard.url, meta));
        while let Some(chunk) = chunks.try_next().await? {
            let end = offset + chunk.len() as u64;
            while let Some((key, field)) = open {
                let field_end = field.offset + u64::from(field.bytes);
                let part = field.offset.clamp(offset, end)..field_end.clamp(offset, end);
                crc32c =
                    crc32c::crc32c_append(crc32c, &chunk[(part.start - offset) as usize..(part.end - offset) as usize]);
                if field_end > end {
                    break;
                }
                self.fields += 1;
                if crc32c != field.crc32c {
                    self.fault(
                        Some(key),
                        format!("field `{}` at byte {} has other bytes than were indexed", field.name, field.offset),
                    );
                }
                crc32c = 0;
                open = fields.next();
            }
            offset = end;
            meter.add(0, 0, chunk.len() as u64);
        }
        self.bytes = offset;
        self.records = u64::from(index.record_count());
        meter.add(0, self.records, 0);
        for (key, field) in open.into_iter().chain(fields) {
            self.fault(
                Some(key),
                format!("field `{}` at byte {} is cut off: the shard ends at {offset}", field.name, field.offset),
            );
        }
        Ok(())
    }

    fn fault(&mut self, record: Option<&str>, problem: String) {
        if self.faults.len() < MAX_FAULTS_PER_SHARD {
            self.faults.push(Fault { shard: self.shard.clone(), record: record.map(str::to_owned), problem });
        } else {
            self.unlisted_faults += 1;
        }
    }
}
