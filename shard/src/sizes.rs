//! The files of measured sizes in a dataset's folder: one number for each sample, by which samples are dealt to ranks.

use std::sync::Arc;

use bytes::Bytes;
use spdl_job::{Job, SampleCost};
use spdl_order::{BalancedBatch, Item, ItemKind, Plan};
use spdl_store::{ContentError, StoreError};
use spdl_types::{Fingerprint, SampleId};

use crate::{
    FormatError,
    envelope::{self, FileKind, HEAD_BYTES, u32_at, u64_at, u128_at, wrong},
    manifest::{Manifest, MetadataPlace},
    store::DatasetStore,
};

static KIND: FileKind = FileKind { name: "table of sizes", magic: *b"SPDLSIZ\n", version: 1, header_bytes: TEXT_AT };
const PREFIX: &str = "sizes-";
const SUFFIX: &str = ".spdl";
/// Bytes before the text that says what was measured: the envelope's head, the fingerprint of the dataset, the number of samples, and the
/// length of the text. The numbers follow the text.
const TEXT_AT: usize = HEAD_BYTES + 32;
/// Longest text.
const MAX_TEXT_BYTES: u64 = 1 << 20;
/// Bytes of a sample's number.
const NUMBER_BYTES: u64 = 4;
/// Most samples of a table: it takes 1 GiB in the memory of each worker then.
pub const MAX_MEASURED_SAMPLES: u64 = 1 << 28;

/// The hint about a table that is missing or damaged.
const SUBMIT_AGAIN: &str = "submit the job again, with a `cost` that has no `sizes`: that measures the samples anew";

fn name_of(sizes: Fingerprint) -> String {
    format!("{PREFIX}{sizes}{SUFFIX}")
}

/// The sizes of all samples of a dataset, in memory: 4 bytes for each. Clones share them.
#[derive(Clone, Debug)]
pub struct SizeTable {
    fingerprint: Fingerprint,
    file: Bytes,
    numbers_at: usize,
}

impl SizeTable {
    /// Makes the table of a dataset whose samples have these sizes, in their order. `measured` says what was measured.
    ///
    /// # Errors
    /// If the dataset has more than [`MAX_MEASURED_SAMPLES`], or another number of them.
    pub fn new(manifest: &Manifest, measured: &str, sizes: &[u32]) -> Result<Self, FormatError> {
        let mut file = vec![0; HEAD_BYTES];
        file.reserve(TEXT_AT - HEAD_BYTES + measured.len() + size_of_val(sizes));
        file.extend(manifest.fingerprint().0.to_le_bytes());
        file.extend([sizes.len(), measured.len()].into_iter().flat_map(|count| (count as u64).to_le_bytes()));
        file.extend(measured.as_bytes());
        file.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
        let (file, fingerprint) = envelope::sealed(&KIND, file, |file, found| Self::open(file, found, manifest))?;
        Ok(Self { fingerprint, file, numbers_at: TEXT_AT + measured.len() })
    }

    /// Opens a file.
    ///
    /// # Errors
    /// If it is damaged, is not the one with this fingerprint, or is of another dataset.
    pub fn open(file: Bytes, expected: Fingerprint, manifest: &Manifest) -> Result<Self, FormatError> {
        envelope::check(&KIND, &file)?;
        let found = Fingerprint::of(&file);
        if found != expected {
            return Err(FormatError::Malformed(format!("its fingerprint is {found}, and not that of its name")));
        }
        let dataset = Fingerprint(u128_at(&file, HEAD_BYTES));
        let [samples, text_bytes] = [16, 24].map(|at| u64_at(&file, HEAD_BYTES + at));
        if dataset != manifest.fingerprint() || samples != manifest.samples() {
            return Err(FormatError::Malformed(format!(
                "it is of another dataset, with {samples} samples and the fingerprint {dataset}; this one has {} and {}",
                manifest.samples(),
                manifest.fingerprint()
            )));
        }
        if samples > MAX_MEASURED_SAMPLES || text_bytes > MAX_TEXT_BYTES {
            return Err(FormatError::Malformed(format!(
                "it has {samples} samples and a text of {text_bytes} bytes; at most {MAX_MEASURED_SAMPLES} and {MAX_TEXT_BYTES} are read"
            )));
        }
        let numbers_at = TEXT_AT + text_bytes as usize;
        if file.len() as u64 != numbers_at as u64 + samples * NUMBER_BYTES {
            return Err(wrong("it has another number of sizes than it says"));
        }
        if std::str::from_utf8(&file[TEXT_AT..numbers_at]).is_err() {
            return Err(wrong("what was measured is no text"));
        }
        Ok(Self { fingerprint: expected, file, numbers_at })
    }

    /// Returns what identifies the sizes.
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the file.
    #[must_use]
    pub const fn file(&self) -> &Bytes {
        &self.file
    }

    /// Returns what was measured.
    #[must_use]
    pub fn measured(&self) -> &str {
        envelope::text(&self.file[TEXT_AT..self.numbers_at])
    }

    /// Returns the size of a sample of the dataset.
    ///
    /// # Panics
    /// If there is no such sample.
    #[must_use]
    pub fn of(&self, SampleId(sample): SampleId) -> u32 {
        u32_at(&self.file, self.numbers_at + sample as usize * NUMBER_BYTES as usize)
    }
}

impl SizeTable {
    /// Returns the plan of a job with its buckets, if it has some. The plan is of the dataset that was measured.
    #[must_use]
    pub fn bucketed(self: &Arc<Self>, plan: Plan, job: &Job) -> Plan {
        let sizes = self.clone();
        match job.bucket() {
            Some(bucket) => plan.bucketed(bucket, job.seed, Arc::new(move |sample| sizes.of(sample))),
            None => plan,
        }
    }

    /// Deals the entries of a step to `world` ranks by what the samples cost. Returns the costs of the entries, too.
    #[must_use]
    pub fn deal(&self, items: Vec<Item>, cost: &SampleCost, world: u32) -> (BalancedBatch, Vec<u64>) {
        let of = |item: &Item| match item.kind {
            ItemKind::Invalid => 0,
            ItemKind::Sample | ItemKind::Padding => cost.of([self.of(item.located.id)]),
        };
        let costs: Vec<u64> = items.iter().map(of).collect();
        (BalancedBatch::new(items, &costs, world, cost.within), costs)
    }
}

/// Writes sizes into the folder of the dataset's manifest, unless they are there.
///
/// # Errors
/// If the folder cannot be written to.
pub async fn save_sizes(at: &DatasetStore, manifest: &Manifest, sizes: &SizeTable) -> Result<(), StoreError> {
    match open_sizes(at, manifest, sizes.fingerprint).await {
        Ok(_) => Ok(()),
        Err(StoreError::Missing { .. } | StoreError::Format { .. }) => {
            at.put(&MetadataPlace::Hidden.path(&name_of(sizes.fingerprint)), sizes.file().clone()).await
        }
        Err(error) => Err(error),
    }
}

/// Reads the sizes of a dataset's samples into memory, and checks them.
///
/// # Errors
/// If they cannot be read, or are others.
pub async fn open_sizes(
    at: &DatasetStore,
    manifest: &Manifest,
    sizes: Fingerprint,
) -> Result<Arc<SizeTable>, StoreError> {
    let name = MetadataPlace::Hidden.path(&name_of(sizes));
    let bytes = at.read(&name, TEXT_AT as u64 + MAX_TEXT_BYTES + MAX_MEASURED_SAMPLES * NUMBER_BYTES).await?;
    SizeTable::open(bytes, sizes, manifest).map(Arc::new).map_err(|source| {
        let is_retryable = source.is_retryable();
        let source = ContentError { is_retryable, hint: SUBMIT_AGAIN, ..source.into() };
        StoreError::Format { url: at.url_of(&name), source }
    })
}
