//! What all ranks of a process share: decoding threads, caches, open datasets, the ledger of bad samples.

use std::sync::Arc;

use parking_lot::Mutex;
use spdl_wire::{
    layout::Layout,
    messages::{BadSample, Session, StageFigures, StoreFigures},
    slab::slot_stride,
};

use super::{
    FeedError,
    bad::BadLedger,
    dataset::{Datasets, StoreAccess},
    pace::Pace,
    turns::Turns,
};
use crate::{
    budget::{Budget, MemoryShares},
    decode::PictureCounts,
    fetch::{FetchSettings, Fetcher},
    figures::Stage,
    transform::{TransformSettings, Transforms},
};

/// Slots a rank gets when it does not say. Raised, more memory is filled with batches that wait; lowered, a slow batch
/// is felt by the trainer.
pub const DEFAULT_SLOTS: u32 = 4;
/// The most slots a rank gets.
pub const MAX_SLOTS: u32 = 64;
/// With fewer, nothing is filled while the trainer has a batch: given only to who asks for it.
const MIN_SLOTS: u32 = 2;
/// Part of the slab-and-cache memory that slabs leave to cached blocks.
const BLOCKS_LEFT: u64 = 8;

/// The shared means of a process. Made once.
#[derive(Debug)]
pub struct Resources {
    pub(crate) name: String,
    budget: Budget,
    shares: MemoryShares,
    slab_bytes: Mutex<u64>,
    pub(crate) pool: rayon::ThreadPool,
    pub(crate) turns: Arc<Turns>,
    pub(crate) pace: Pace,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) datasets: Datasets,
    pub(crate) bad: Mutex<BadLedger>,
    pub(crate) stages: Stages,
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
}

/// Figures of the path of a batch.
#[derive(Debug)]
pub(crate) struct Stages {
    pub(crate) fetch: Arc<Stage>,
    pub(crate) decode: Arc<Stage>,
    pub(crate) batch: Arc<Stage>,
}

impl Resources {
    /// Threads and empty caches within `budget`, for a worker of that name.
    ///
    /// # Errors
    /// [`FeedError::Threads`] when the system gives no threads.
    pub fn new(name: &str, budget: Budget) -> Result<Arc<Self>, FeedError> {
        Self::with_access(name, budget, Access::default())
    }

    /// The same, with other access to what is outside.
    ///
    /// # Errors
    /// [`FeedError::Threads`] when the system gives no threads.
    pub fn with_access(name: &str, budget: Budget, access: Access) -> Result<Arc<Self>, FeedError> {
        let Access { stores: access, transforms } = access;
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
        let fetcher = Fetcher::new(settings, budget.disk.as_ref(), fetch.clone());
        Ok(Arc::new(Self {
            name: name.to_owned(),
            shares,
            slab_bytes: Mutex::new(0),
            pool,
            turns: Turns::new(2 * threads),
            pace: Pace::new(&budget),
            datasets: Datasets::new(shares.index_bytes, fetcher.requests().clone(), access),
            fetcher,
            bad: Mutex::default(),
            stages: Stages { fetch, decode: Arc::new(Stage::new("decode")), batch: Arc::new(Stage::new("batch")) },
            pictures: Arc::default(),
            transforms: Transforms::new(transforms),
            budget,
        }))
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
        self.pace.watch(&self.stages.decode).await
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
    pub fn stages(&self) -> Vec<StageFigures> {
        let stages = [&self.stages.fetch, &self.stages.decode, &self.stages.batch].map(|stage| stage.figures());
        stages.into_iter().chain(self.transforms.figures()).collect()
    }

    /// Pictures that were decoded.
    #[must_use]
    pub fn pictures(&self) -> &PictureCounts {
        &self.pictures
    }

    /// What went wrong with stores and the disk cache so far, and was mended.
    #[must_use]
    pub fn store_figures(&self) -> StoreFigures {
        self.fetcher.store_figures()
    }

    /// Bytes of slabs and of cached blocks just then.
    #[must_use]
    pub fn memory_bytes(&self) -> (u64, u64) {
        (*self.slab_bytes.lock(), self.fetcher.memory_bytes())
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
        let mut taken = self.slab_bytes.lock();
        let free_bytes = (self.shares.pool_bytes - self.shares.pool_bytes / BLOCKS_LEFT).saturating_sub(*taken);
        let slots = u32::try_from(free_bytes / stride).unwrap_or(u32::MAX).min(wanted);
        if slots < MIN_SLOTS.min(wanted) {
            return Err(FeedError::Memory {
                job: session.job.name.clone(),
                rank,
                slot_bytes: stride,
                free_bytes,
                budget_bytes: self.budget.memory_bytes,
            });
        }
        let bytes = u64::from(slots) * stride;
        *taken += bytes;
        self.fetcher.set_memory(self.shares.pool_bytes - *taken);
        Ok(SlabReservation { resources: self.clone(), bytes, slots })
    }
}

/// Memory that the slab of a rank takes from the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct SlabReservation {
    resources: Arc<Resources>,
    bytes: u64,
    pub(crate) slots: u32,
}

impl Drop for SlabReservation {
    fn drop(&mut self) {
        let mut taken = self.resources.slab_bytes.lock();
        *taken -= self.bytes;
        self.resources.fetcher.set_memory(self.resources.shares.pool_bytes - *taken);
    }
}
