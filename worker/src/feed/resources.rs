//! The resources that all ranks of a process share: decoding threads, caches, open datasets, the ledger of bad samples.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use spdl_accounting::Recording;
use spdl_functions::FunctionRegistry;
use spdl_insight::{
    CacheStats, SlowObject, StoreStats,
    tuning::{TuningSettings, TuningStatus},
};
use spdl_job::JobFile;
use spdl_types::{Stage, StageStats, histogram::DurationBuckets};
use spdl_wire::trace::Recorded;

use super::{
    FeedError,
    blocks::BlockDecoding,
    dataset::{Datasets, StoreAccess},
    decoding::{CalledPrograms, SampleDecoding},
    memory::RankMemory,
    sharing::{SampleSharing, Sharing},
    stages::FeedStages,
    throttle::process_cpu_time,
};
use crate::{
    budget::Budget,
    fetch::{DiskCacheState, Fetcher},
    frames::{FrameAccess, frame_decoders},
    help::Helpers,
    transform::TransformSettings,
    tuning::Tuning,
};

/// The shared resources of a process. Created once.
#[derive(Debug)]
pub struct Resources {
    started: Instant,
    pub(crate) stages: Arc<FeedStages>,
    pub(crate) tuning: Arc<Tuning>,
    pub(crate) decoding: Arc<SampleDecoding>,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(super) datasets: Datasets,
    pub(crate) memory: Arc<RankMemory>,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) helpers: Arc<Helpers>,
    pub(super) reads_parts: bool,
}

/// The access of a process to stores, functions of the user's and the journal.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Settings for reading from stores.
    pub stores: StoreAccess,
    /// Settings for calling the Python functions of jobs. Default: `None`, they are not called.
    pub transforms: Option<TransformSettings>,
    /// The functions in Rust that jobs can call. Default: none.
    pub functions: FunctionRegistry,
    /// How the processes that decode frames of videos are started. Default: `None`, they run the program of this process if that
    /// calls [`frame_child`](crate::frame_child).
    pub frames: Option<FrameAccess>,
    /// How the number of requests and the read-ahead are chosen. Default: they are tuned.
    pub tuning: TuningSettings,
    /// Whether ranks of different sessions share decoded samples. Default: they do, where it pays.
    pub sharing: SampleSharing,
    /// Reads only the parts of large scalable pictures that crops need, uncached. Default: blocks are read whole.
    pub reads_parts: bool,
    /// The file that records which samples are being decoded, for the next process after this one dies of a sample; a
    /// second file lies beside it. Default: none.
    pub journal: Option<PathBuf>,
}

impl Resources {
    /// Creates threads and empty caches within `budget`, for the worker called `name`.
    ///
    /// # Errors
    /// [`FeedError::Threads`] if the system starts no threads.
    pub fn new(name: &str, budget: Budget) -> Result<Arc<Self>, FeedError> {
        Self::with_access(name, budget, Access::default())
    }

    /// Creates the resources as [`new`](Self::new) does, with the given access to stores, functions and the journal.
    ///
    /// # Errors
    /// [`FeedError::Threads`] if the system starts no threads.
    pub fn with_access(name: &str, budget: Budget, access: Access) -> Result<Arc<Self>, FeedError> {
        let Access { stores: access, transforms, functions, frames, tuning, sharing, reads_parts, journal } = access;
        let (stages, shares) = (Arc::<FeedStages>::default(), budget.shares());
        let memory_bytes = [shares.pool_bytes, shares.transit_bytes];
        let fetcher = Fetcher::new(memory_bytes, access.retry.clone(), budget.disk.as_ref(), stages.fetch.clone());
        let tuning = Tuning::new(&tuning, &fetcher.requests, [&stages.decode, &stages.fetch]);
        let memory = Arc::new(RankMemory::new(budget, &fetcher));
        let slots = memory.slots.clone();
        let lend = Box::new(move |bytes| slots.lend(bytes));
        let threads = memory.budget.threads().get();
        let called = CalledPrograms { transforms, functions, frames: frame_decoders(frames, threads) };
        let decoding = SampleDecoding::new(name, &memory.budget, &stages, called, journal.as_deref(), lend)?;
        let blocks = BlockDecoding::new(threads, decoding.memory.clone(), decoding.journal.clone());
        Ok(Arc::new(Self {
            started: Instant::now(),
            datasets: Datasets::new(shares.index_bytes, Arc::new(blocks), &fetcher, access),
            sharing: Sharing::new(sharing, memory.slots.clone(), shares.pool_bytes),
            helpers: Arc::default(),
            stages,
            tuning,
            decoding,
            fetcher,
            memory,
            reads_parts,
        }))
    }

    /// Notes an orderly shutdown, so that the samples being decoded do not become suspects.
    pub fn close(&self) {
        self.decoding.journal.close();
    }

    /// Checks that the functions of jobs can be called, if the process may call them. Blocks until a Python interpreter
    /// has started.
    ///
    /// # Errors
    /// [`FeedError::Transform`] if they cannot.
    pub fn check_transforms(&self) -> Result<(), FeedError> {
        Ok(self.decoding.transforms.check()?)
    }

    /// Sets the missing digests of a job's Python functions, as far as their sources can be found here.
    pub async fn find_sources(&self, file: JobFile) -> JobFile {
        self.decoding.find_sources(file).await
    }

    /// Keeps the CPU use of the whole process within the budget, not only that of decoding. Only for a process that
    /// does nothing else. Never returns.
    pub async fn keep_pace(&self) -> std::convert::Infallible {
        self.decoding.threads.keep_pace().await
    }

    /// Returns the worker's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.decoding.name
    }

    /// Returns the budget.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.memory.budget
    }

    /// Returns the statistics at `now` of the stages that have had a unit, in the order in which a sample passes them.
    #[must_use]
    pub fn stages(&self, now: Instant) -> Vec<StageStats> {
        self.stages.stats(now, self.fetcher.requests.limits.units.waiting(), self.decoding.scheduler.samples())
    }

    /// Returns how long the items of each stage took, by the stage's name.
    pub(crate) fn durations(&self) -> Vec<(String, DurationBuckets)> {
        let used = self.stages.all().into_iter().filter(|stage| stage.is_used());
        used.map(|stage| (stage.name().to_owned(), stage.durations().buckets())).collect()
    }

    /// Returns the time from the creation of the resources to `now`.
    #[must_use]
    pub fn uptime(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Returns the CPU time that this process has used.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        process_cpu_time()
    }

    /// Returns the counts of faults of stores and of the disk cache that were recovered from.
    #[must_use]
    pub fn store_stats(&self) -> StoreStats {
        self.fetcher.store_stats()
    }

    /// Returns what the caches of blocks hold.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        self.fetcher.cache_stats(self.datasets.bytes_in_use())
    }

    /// Returns the state of the cache on disk, if there is one.
    #[must_use]
    pub fn disk_cache(&self) -> Option<DiskCacheState> {
        self.fetcher.disk_cache()
    }

    /// Returns the object of a store whose requests take much longer than all others, if there is one.
    #[must_use]
    pub fn slow_object(&self) -> Option<SlowObject> {
        self.fetcher.requests.slow_object()
    }

    /// Returns the values that are tuned, and their latest changes.
    #[must_use]
    pub fn tuning(&self) -> TuningStatus {
        self.tuning.status()
    }

    /// Returns the current bytes of slabs and of cached blocks.
    #[must_use]
    pub fn memory_bytes(&self) -> (u64, u64) {
        (self.memory.slots.slab_bytes(), self.fetcher.memory_bytes())
    }
}

/// Threads, requests and slots are recorded.
impl Recorded for Resources {
    fn record(&self, capacity: usize) {
        self.stages.record(capacity);
    }

    fn take_recordings(&self) -> Vec<(Stage, Recording)> {
        self.stages.take_recordings()
    }
}
