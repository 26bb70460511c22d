//! The progress of work on a dataset.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use spdl_types::StageStats;

/// Progress of the work. The total of records is known when packing, the total of bytes otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DatasetProgress {
    pub shards: u64,
    pub records: u64,
    pub bytes: u64,
    pub total_records: Option<u64>,
    pub total_bytes: Option<u64>,
}

/// Returns the progress of reading a dataset from the statistics of its stages. The stage called `read` reads the
/// bytes.
pub(super) fn progress_of(
    stats: &[StageStats],
    read: &str,
    total_bytes: u64,
    shards: u64,
    records: u64,
) -> DatasetProgress {
    let bytes = stats.iter().find(|stage| stage.stage.name() == read).map_or(0, |stage| stage.bytes);
    DatasetProgress { shards, records, bytes, total_records: None, total_bytes: Some(total_bytes) }
}

/// Reports the progress of scanning a folder.
pub(crate) struct Meter<'a> {
    counts: Arc<ScanCounts>,
    on_progress: &'a (dyn Fn(DatasetProgress) + Send + Sync),
}

/// Counts what was scanned, from all threads that scan.
#[derive(Debug, Default)]
pub(crate) struct ScanCounts {
    shards: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    total_bytes: AtomicU64,
}

impl<'a> Meter<'a> {
    pub(super) fn new(on_progress: &'a (dyn Fn(DatasetProgress) + Send + Sync)) -> Self {
        Self { counts: Arc::default(), on_progress }
    }

    /// Returns the counts, for other threads.
    pub(crate) fn counts(&self) -> Arc<ScanCounts> {
        Arc::clone(&self.counts)
    }

    /// Sets the total of bytes, once it is known.
    pub(crate) fn expect_bytes(&self, total_bytes: u64) {
        self.counts.total_bytes.store(total_bytes, Relaxed);
    }

    /// Reports the counts so far.
    pub(crate) fn report(&self) {
        let ScanCounts { shards, records, bytes, total_bytes } = &*self.counts;
        (self.on_progress)(DatasetProgress {
            shards: shards.load(Relaxed),
            records: records.load(Relaxed),
            bytes: bytes.load(Relaxed),
            total_records: None,
            total_bytes: Some(total_bytes.load(Relaxed)),
        });
    }
}

impl ScanCounts {
    pub(crate) fn add(&self, shards: u64, records: u64, bytes: u64) {
        self.shards.fetch_add(shards, Relaxed);
        self.records.fetch_add(records, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }
}
