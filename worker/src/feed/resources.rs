//! What all ranks of a process share: decoding threads, caches, open datasets, the ledger of bad samples.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use spdl_wire::{
    layout::Layout,
    messages::{BadSample, Session, StageStats, StoreStats},
    slab::slot_stride,
};

use super::{
    FeedError,
    bad::BadLedger,
    dataset::{Datasets, StoreAccess},
    journal::Journal,
    scheduler::DecodeScheduler,
    throttle::CpuThrottle,
};
use crate::{
    budget::{Budget, MemoryShares},
    decode::{DecodeMemory, PictureCounts},
    fetch::{FetchSettings, Fetcher},
    stats::Stage,
    transform::{TransformSettings, Transforms},
};

/// Slots a rank gets when it does not say. Raised, more memory is filled with batches that wait; lowered, a slow batch
/// is felt by the trainer.
pub const DEFAULT_SLOTS: u32 = 4;
/// The most slots a rank gets.
pub const MAX_SLOTS: u32 = 64;
/// With fewer, nothing is filled while the trainer has a batch: given only to who asks for it.
const MIN_SLOTS: u32 = 2;
/// The memory of slabs and cached blocks: what slabs take, and what is lent to the decoding of large pictures, the cache
/// does without.
#[derive(Debug)]
struct SharedMemory {
    bytes: u64,
    taken: Mutex<Taken>,
    fetcher: Arc<Fetcher>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    slab_bytes: u64,
    lent_bytes: u64,
}

impl SharedMemory {
    fn change<T>(&self, change: impl FnOnce(&mut Taken) -> T) -> T {
        let mut taken = self.taken.lock();
        let outcome = change(&mut taken);
        self.fetcher.set_memory(self.bytes.saturating_sub(taken.slab_bytes + taken.lent_bytes));
        outcome
    }
}

/// The shared means of a process. Made once.
#[derive(Debug)]
pub struct Resources {
    pub(crate) name: String,
    budget: Budget,
    shares: MemoryShares,
    /// Decoding of pictures.
    pub(crate) decode_memory: Arc<DecodeMemory>,
    memory: Arc<SharedMemory>,
    pub(crate) journal: Journal,
    pub(crate) pool: rayon::ThreadPool,
    pub(crate) scheduler: Arc<DecodeScheduler>,
    pub(crate) throttle: CpuThrottle,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) datasets: Datasets,
    pub(crate) bad: Mutex<BadLedger>,
    pub(crate) stages: FeedStages,
    pub(crate) pictures: Arc<PictureCounts>,
    pub(crate) transforms: Arc<Transforms>,
}

/// What a process has access to.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// How stores are read.
    pub stores: StoreAccess,
    /// How functions of jobs are called; `None`, as it is by default: they are not.
    pub transforms: Option<TransformSettings>,
    /// File that says which samples are being decoded, for whoever comes after this process has died of one; a second one
    /// lies beside it. None by default.
    pub journal: Option<PathBuf>,
}

/// Figures of the path of a batch.
#[derive(Debug)]
pub(crate) struct FeedStages {
    pub(crate) fetch: Arc<Stage>,
    pub(crate) decode: Arc<Stage>,
    pub(crate) batch: Arc<Stage>,
}

impl Resources {
    /// Threads and empty caches within `budget`, for a worker of that name.
    ///
    /// # Errors
    /// [`FeedError::Threads`] when the system gives no threads, [`FeedError::Cache`] when another worker has the disk cache.
    pub fn new(name: &str, budget: Budget) -> Result<Arc<Self>, FeedError> {
        Self::with_access(name, budget, Access::default())
    }

    /// The same, with other access to what is outside.
    ///
    /// # Errors
    /// [`FeedError::Threads`] when the system gives no threads, [`FeedError::Cache`] when another worker has the disk cache.
    pub fn with_access(name: &str, budget: Budget, access: Access) -> Result<Arc<Self>, FeedError> {
        let Access { stores: access, transforms, journal } = access;
        let threads = budget.threads().get();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|thread| format!("spdl-decode-{thread}"))
            // Whoever waits for what panicked gets an error; the others go on.
            .panic_handler(|_| tracing::error!("a decoding thread panicked"))
            .build()
            .map_err(|error| FeedError::Threads { cause: error.to_string() })?;
        let shares = budget.shares();
        let fetch = Arc::new(Stage::new("fetch"));
        let settings = FetchSettings {
            retry: access.retry.clone(),
            ..FetchSettings::new(shares.pool_bytes, shares.transit_bytes)
        };
        let fetcher = Fetcher::new(settings, budget.disk.as_ref(), fetch.clone())?;
        let memory =
            Arc::new(SharedMemory { bytes: shares.pool_bytes, taken: Mutex::default(), fetcher: fetcher.clone() });
        let lender = memory.clone();
        let lend = move |bytes| lender.change(|taken| taken.lent_bytes = bytes);
        Ok(Arc::new(Self {
            name: name.to_owned(),
            shares,
            decode_memory: Arc::new(DecodeMemory::new(budget.decode_limits(), Box::new(lend))),
            memory,
            journal: journal.map(|path| open_journal(&path, &budget)).unwrap_or_default(),
            pool,
            scheduler: DecodeScheduler::new(2 * threads),
            throttle: CpuThrottle::new(&budget),
            datasets: Datasets::new(shares.index_bytes, fetcher.requests().clone(), access),
            fetcher,
            bad: Mutex::default(),
            stages: FeedStages { fetch, decode: Arc::new(Stage::new("decode")), batch: Arc::new(Stage::new("batch")) },
            pictures: Arc::default(),
            transforms: Transforms::new(transforms),
            budget,
        }))
    }

    /// The process ends in order: no sample that is being decoded is to blame.
    pub fn close(&self) {
        self.journal.close();
    }

    /// Whether the functions of jobs could be called, where they may be. Blocks for as long as an interpreter takes to start.
    ///
    /// # Errors
    /// [`FeedError::Transform`].
    pub fn check_transforms(&self) -> Result<(), FeedError> {
        Ok(self.transforms.check()?)
    }

    /// Keeps the whole process within the budget of cores, and not only its decoding. For a process that does nothing else;
    /// never ends.
    pub async fn keep_pace(&self) -> std::convert::Infallible {
        self.throttle.watch(&self.stages.decode).await
    }

    /// The worker's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The budget.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Figures of all stages. That of functions, which is a part of the decoding, is there once one was called.
    #[must_use]
    pub fn stages(&self) -> Vec<StageStats> {
        let stages = [&self.stages.fetch, &self.stages.decode, &self.stages.batch].map(|stage| stage.stats());
        stages.into_iter().chain(self.transforms.stats()).collect()
    }

    /// Pictures that were decoded.
    #[must_use]
    pub fn pictures(&self) -> &PictureCounts {
        &self.pictures
    }

    /// What went wrong with stores and the disk cache so far, and was mended.
    #[must_use]
    pub fn store_figures(&self) -> StoreStats {
        self.fetcher.store_figures()
    }

    /// Bytes of slabs and of cached blocks just then.
    #[must_use]
    pub fn memory_bytes(&self) -> (u64, u64) {
        (self.memory.taken.lock().slab_bytes, self.fetcher.memory_bytes())
    }

    /// The oldest bad samples, at most `limit`, that were not [acknowledged](Self::acknowledge_bad).
    #[must_use]
    pub fn bad_samples(&self, limit: usize) -> Vec<BadSample> {
        self.bad.lock().unreported(limit)
    }

    /// The oldest `count` of them have arrived where they belong.
    pub fn acknowledge_bad(&self, count: usize) {
        self.bad.lock().acknowledge(count);
    }

    /// Sets memory aside for the slab of a rank: as many of the wanted slots as there is room for.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        session: &Session,
        rank: u32,
        wanted: u32,
        layout: &Layout,
    ) -> Result<SlabReservation, FeedError> {
        let stride = slot_stride(layout.slot_bytes()).expect("checked with the session") as u64;
        let wanted = if wanted == 0 { DEFAULT_SLOTS } else { wanted.min(MAX_SLOTS) };
        // What decoding may be lent is never a slab's.
        let for_slabs = self.shares.pool_bytes.saturating_sub(self.shares.lent_bytes);
        self.memory.change(|taken| {
            let free_bytes = for_slabs.saturating_sub(taken.slab_bytes);
            let slots = u32::try_from(free_bytes / stride).unwrap_or(u32::MAX).min(wanted);
            let least = MIN_SLOTS.min(wanted);
            if slots < least {
                return Err(FeedError::Memory {
                    job: session.job.name.clone(),
                    rank,
                    slot_bytes: stride,
                    least,
                    free_bytes,
                    budget_bytes: self.budget.memory_bytes,
                });
            }
            let bytes = u64::from(slots) * stride;
            taken.slab_bytes += bytes;
            Ok(SlabReservation { memory: self.memory.clone(), bytes, slots })
        })
    }
}

/// What cannot be written down is done without.
fn open_journal(path: &Path, budget: &Budget) -> Journal {
    // With another budget, or another version, a sample may do no harm any more.
    let circumstances = format!("{} {}", env!("CARGO_PKG_VERSION"), budget.memory_bytes);
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| Journal::open(path, &circumstances)).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "samples that end the worker will not be recognised");
        Journal::default()
    })
}

/// Memory that the slab of a rank takes from the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct SlabReservation {
    memory: Arc<SharedMemory>,
    bytes: u64,
    pub(crate) slots: u32,
}

impl Drop for SlabReservation {
    fn drop(&mut self) {
        self.memory.change(|taken| taken.slab_bytes -= self.bytes);
    }
}
