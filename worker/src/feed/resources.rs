//! The resources that all ranks of a process share: decoding threads, caches, open datasets, the ledger of bad samples.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use spdl_accounting::Recording;
use spdl_control::messages::Session;
use spdl_feed::BadLedger;
use spdl_functions::FunctionRegistry;
use spdl_insight::{
    CacheStats, SlowObject, StoreStats,
    tuning::{TuningSettings, TuningStatus},
};
use spdl_job::{JobFile, layout::Layout};
use spdl_types::{BadSample, BatchId, Fingerprint, Position, SampleId, Stage, StageStats, histogram::DurationBuckets};
use spdl_wire::{slab::slot_stride, trace::Recorded};
use tokio::sync::oneshot;

use super::{
    FeedError,
    blocks::BlockDecoding,
    dataset::{Datasets, StoreAccess},
    journal::{InDecoding, Journal, Suspicion},
    room::{HelpReservation, NoRoom, NoSlots, SlabReservation, SlotMemory, SlotNeeds, TooLarge, fixed_stride},
    scheduler::{DecodeScheduler, NearestToStarving},
    sharing::{SampleSharing, Sharing, SharingStats},
    stages::{DecodeThreads, FeedStages},
    throttle::process_cpu_time,
};
use crate::{
    budget::{Budget, MemoryShares},
    decode::{DecodeMemory, PictureCounts},
    fetch::{CachedBytes, DiskCacheState, FetchSettings, Fetcher},
    help::{HelpedJobs, Helpers},
    transform::{TransformSettings, Transforms},
    tuning::Tuning,
};

/// Default number of slots of a rank. When raised, more memory holds batches that wait; when lowered, the trainer
/// notices a slow batch.
pub const DEFAULT_SLOTS: u32 = 4;
/// Maximum number of slots of a rank.
pub const MAX_SLOTS: u32 = 64;
/// Minimum number of slots, unless the client asks for fewer: with one slot, nothing is filled while the trainer has a
/// batch.
const MIN_SLOTS: u32 = 2;
/// The shared resources of a process. Created once.
#[derive(Debug)]
pub struct Resources {
    pub(crate) name: String,
    started: Instant,
    budget: Budget,
    shares: MemoryShares,
    /// The memory for the decoding of pictures.
    pub(crate) decode_memory: Arc<DecodeMemory>,
    pub(super) memory: Arc<SlotMemory>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) pool: rayon::ThreadPool,
    pub(crate) scheduler: Arc<DecodeScheduler>,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) datasets: Datasets,
    pub(crate) bad: Mutex<BadLedger>,
    pub(crate) stages: Arc<FeedStages>,
    pub(crate) threads: DecodeThreads,
    pub(crate) pictures: Arc<PictureCounts>,
    pub(crate) transforms: Arc<Transforms>,
    pub(crate) functions: FunctionRegistry,
    pub(crate) tuning: Arc<Tuning>,
    pub(crate) helpers: Helpers,
    pub(crate) helped_jobs: HelpedJobs,
    pub(super) sharing: Arc<Sharing>,
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
        let Access { stores: access, transforms, functions, tuning, sharing, reads_parts, journal } = access;
        let threads = budget.threads().get();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|thread| format!("spdl-decode-{thread}"))
            // The batch of the panicked thread fails with an error; the others go on.
            .panic_handler(|_| tracing::error!("a decoding thread panicked"))
            .build()
            .map_err(|error| FeedError::Threads { cause: error.to_string() })?;
        let shares = budget.shares();
        let stages = Arc::<FeedStages>::default();
        let settings = FetchSettings {
            retry: access.retry.clone(),
            ..FetchSettings::new(shares.pool_bytes, shares.transit_bytes)
        };
        let fetcher = Fetcher::new(settings, budget.disk.as_ref(), stages.fetch.clone());
        let tuning = Tuning::new(&tuning, fetcher.requests(), [&stages.decode, &stages.fetch]);
        // Memory that may be lent to decoding is never used for slabs.
        let slab_bytes = shares.pool_bytes.saturating_sub(shares.lent_bytes);
        let memory = Arc::new(SlotMemory::new(shares.pool_bytes, slab_bytes, fetcher.clone()));
        let lender = memory.clone();
        let lend = move |bytes| lender.lend(bytes);
        let decode_memory = Arc::new(DecodeMemory::new(budget.decode_limits(), Box::new(lend)));
        let journal = Arc::new(journal.map(|path| open_journal(&path, &budget)).unwrap_or_default());
        let blocks = Arc::new(BlockDecoding::new(threads, decode_memory.clone(), journal.clone()));
        Ok(Arc::new(Self {
            name: name.to_owned(),
            started: Instant::now(),
            shares,
            sharing: Sharing::new(sharing, memory.clone(), shares.pool_bytes),
            decode_memory,
            memory,
            journal,
            pool,
            scheduler: DecodeScheduler::new(NearestToStarving, 2 * threads),
            datasets: Datasets::new(shares.index_bytes, blocks, &fetcher, access),
            fetcher,
            bad: Mutex::default(),
            threads: DecodeThreads::new(&stages.decode, &budget),
            pictures: Arc::default(),
            transforms: Transforms::new(name, transforms, stages.transform.clone(), threads),
            functions,
            tuning,
            helpers: Helpers::default(),
            helped_jobs: HelpedJobs::default(),
            reads_parts,
            stages,
            budget,
        }))
    }

    /// Notes an orderly shutdown, so that the samples being decoded do not become suspects.
    pub fn close(&self) {
        self.journal.close();
    }

    /// Checks that the functions of jobs can be called, if the process may call them. Blocks until a Python interpreter
    /// has started.
    ///
    /// # Errors
    /// [`FeedError::Transform`] if they cannot.
    pub fn check_transforms(&self) -> Result<(), FeedError> {
        Ok(self.transforms.check()?)
    }

    /// Sets the missing digests of a job's Python functions, as far as their sources can be found here.
    pub async fn find_sources(&self, mut file: JobFile) -> JobFile {
        if file.sources().all(|(_, digest)| digest.is_some()) {
            return file;
        }
        let (done, found) = oneshot::channel();
        let transforms = self.transforms.clone();
        let mut known = file.clone();
        self.pool.spawn(move || {
            for unknown in transforms.find_sources(&mut known) {
                tracing::debug!(%unknown, "the job does not fix the source of a function");
            }
            // The receiver is gone if the caller was dropped.
            let _ = done.send(known);
        });
        // A panic on the decoding thread is logged.
        found.await.unwrap_or(file)
    }

    /// Keeps the CPU use of the whole process within the budget, not only that of decoding. Only for a process that
    /// does nothing else. Never returns.
    pub async fn keep_pace(&self) -> std::convert::Infallible {
        self.threads.keep_pace().await
    }

    /// Returns the worker's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the budget.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the statistics at `now` of the stages that have had a unit, in the order in which a sample passes them.
    #[must_use]
    pub fn stages(&self, now: Instant) -> Vec<StageStats> {
        self.stages.stats(now, self.fetcher.reads_waiting(), self.scheduler.samples())
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

    /// Returns the counts of decoded pictures.
    #[must_use]
    pub fn pictures(&self) -> &PictureCounts {
        &self.pictures
    }

    /// Returns the counts of faults of stores and of the disk cache that were recovered from.
    #[must_use]
    pub fn store_stats(&self) -> StoreStats {
        self.fetcher.store_stats()
    }

    /// Returns what the caches of blocks hold.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        let CachedBytes { used_bytes, limit_bytes, window_bytes } = self.fetcher.cached_bytes();
        let (dataset_bytes, transit_bytes) = (self.datasets.bytes_in_use(), self.fetcher.transit_bytes());
        CacheStats { used_bytes, limit_bytes, window_bytes, dataset_bytes, transit_bytes }
    }

    /// Returns the state of the cache on disk, if there is one.
    #[must_use]
    pub fn disk_cache(&self) -> Option<DiskCacheState> {
        self.fetcher.disk_cache()
    }

    /// Returns the object of a store whose requests take much longer than all others, if there is one.
    #[must_use]
    pub fn slow_object(&self) -> Option<SlowObject> {
        self.fetcher.slow_object()
    }

    /// Returns the values that are tuned, and their latest changes.
    #[must_use]
    pub fn tuning(&self) -> TuningStatus {
        self.tuning.status()
    }

    /// Returns what ranks of different sessions have shared.
    #[must_use]
    pub fn sharing(&self) -> SharingStats {
        self.sharing.stats()
    }

    /// Returns the current bytes of slabs and of cached blocks.
    #[must_use]
    pub fn memory_bytes(&self) -> (u64, u64) {
        (self.memory.slab_bytes(), self.fetcher.memory_bytes())
    }

    /// Returns the oldest bad samples, at most `limit`, that were not [acknowledged](Self::acknowledge_bad).
    #[must_use]
    pub fn bad_samples(&self, limit: usize) -> Vec<BadSample> {
        self.bad.lock().unreported(limit)
    }

    /// Notes that the coordinator has acknowledged the oldest `count` bad samples.
    pub fn acknowledge_bad(&self, count: usize) {
        self.bad.lock().acknowledge(count);
    }

    /// Reserves memory for the slab of a rank: for as many of the wanted slots as there is room. Ragged values take room
    /// later, as they come.
    pub(crate) fn reserve(
        &self,
        session: &Session,
        rank: u32,
        from: Position,
        wanted: u32,
        layout: &Layout,
    ) -> Result<SlabReservation, FeedError> {
        let stride = slot_stride(layout.slot_bytes()).expect("checked with the session") as u64;
        let fixed_bytes = fixed_stride(layout) as u64;
        let wanted = if wanted == 0 { DEFAULT_SLOTS } else { wanted.min(MAX_SLOTS) };
        let least = MIN_SLOTS.min(wanted);
        let slot_bytes = fixed_bytes + session.partner_bytes(rank, from);
        let needs = SlotNeeds { fixed_bytes: slot_bytes, largest_bytes: stride - fixed_bytes, slots: [wanted, least] };
        let reserved = self.memory.reserve(needs);
        self.sharing.make_room();
        reserved.map_err(|NoSlots { used_bytes, free_bytes }| FeedError::Memory {
            job: session.job.name.clone(),
            rank,
            slot_bytes,
            least,
            free_bytes,
            slab_bytes: self.slab_bytes(),
            enough_bytes: Budget::memory_for(used_bytes + slot_bytes * u64::from(least), 0),
            budget_bytes: self.budget.memory_bytes,
        })
    }

    /// Returns the error of a batch whose ragged values need more memory than there can ever be for them.
    pub(super) fn too_large(&self, job: &str, rank: u32, layout: &Layout, error: TooLarge) -> FeedError {
        let TooLarge { needed_bytes, most_bytes } = error;
        let (slab_bytes, fixed_bytes) = (self.slab_bytes(), fixed_stride(layout) as u64);
        let enough_bytes = slab_bytes.saturating_sub(most_bytes) + needed_bytes * u64::from(MIN_SLOTS);
        FeedError::Memory {
            job: job.to_owned(),
            rank,
            slot_bytes: fixed_bytes + needed_bytes,
            least: MIN_SLOTS,
            free_bytes: fixed_bytes + most_bytes,
            slab_bytes,
            enough_bytes: Budget::memory_for(enough_bytes, 0),
            budget_bytes: self.budget.memory_bytes,
        }
    }

    /// Returns the error of a rank whose next batch has no room beside the batches that trainers hold.
    pub(super) fn no_room(&self, job: &str, rank: u32, NoRoom { needed_bytes, left_bytes }: NoRoom) -> FeedError {
        let slab_bytes = self.slab_bytes();
        FeedError::NoRoom {
            job: job.to_owned(),
            rank,
            needed_bytes,
            left_bytes,
            slab_bytes,
            enough_bytes: Budget::memory_for(slab_bytes.saturating_sub(left_bytes) + needed_bytes, 0),
            budget_bytes: self.budget.memory_bytes,
        }
    }

    /// Returns the bytes that slabs can have.
    const fn slab_bytes(&self) -> u64 {
        self.shares.pool_bytes.saturating_sub(self.shares.lent_bytes)
    }
}

impl Resources {
    /// Reserves memory for samples that are decoded for another worker, from that of cached blocks; `None` if too much is
    /// reserved.
    pub(crate) fn reserve_help(&self, bytes: u64) -> Option<HelpReservation> {
        self.memory.reserve_help(bytes, self.shares.pool_bytes)
    }

    /// Decodes a sample of a job for another worker's `batch` on the calling decoding thread, with `decode`, from `bytes` bytes.
    /// Returns whether it was decoded; it is not if this process, or one before it, may have died of it.
    pub(crate) fn decode_for_other(
        &self,
        sample: (Fingerprint, SampleId),
        batch: BatchId,
        bytes: usize,
        decode: impl FnOnce() -> bool,
    ) -> bool {
        let thread = self.pool.current_thread_index().expect("a decoding thread");
        let unit = InDecoding::sample(sample.0, sample.1);
        if self.journal.suspicion(unit) != Suspicion::None {
            return false;
        }
        let mut busy = self.threads.begin(thread, batch);
        busy.pause_if_due();
        self.journal.mark(thread, Some(unit));
        let is_decoded = decode();
        self.journal.mark(thread, None);
        let took = busy.end_item();
        if is_decoded {
            self.stages.decode.item(took, bytes as u64);
        } else {
            self.stages.decode.failure();
        }
        is_decoded
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

/// Opens the journal. If it cannot be opened, logs a warning and goes on without one.
fn open_journal(path: &Path, budget: &Budget) -> Journal {
    // A record does not count for another budget or version, as the sample may do no harm there.
    let circumstances = format!("{} {}", env!("CARGO_PKG_VERSION"), budget.memory_bytes);
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| Journal::open(path, &circumstances)).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "samples that end the worker will not be recognised");
        Journal::default()
    })
}
