//! Getting at the bytes of blocks: from memory, from the disk cache, from the store.
//!
//! A block is fetched whole and kept while there is room for it beside those in use; where there is none, only the
//! records that a batch needs are fetched, for one use. So any memory budget makes progress, a large one without
//! fetching anything twice. Everything stops when it is dropped.

mod attempt;
mod backoff;
mod client;
mod disk;
mod error;
#[cfg(any(test, feature = "test-util"))]
pub mod flaky;
mod hedge;
mod memory;
mod object;
mod outage;
mod pieces;
mod retrying;

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use parking_lot::Mutex;
use spdl_shard::Fingerprint;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::AbortHandle,
};

pub(crate) use backoff::Backoff;
pub use client::RetrySettings;
pub(crate) use client::StoreClient;
pub use disk::CacheInUse;
use disk::DiskCache;
pub use error::FetchError;
pub(crate) use memory::MemoryCache;
use memory::Released;
pub use object::ShardObject;
use pieces::Pieces;
pub(crate) use retrying::RetryingStore;
use spdl_wire::messages::StoreStats;

use crate::{budget::DiskBudget, stats::Stage};

/// A block is fetched whole at once, and not only its wanted records, when these are at least one part in so many.
const WHOLE_FRACTION: u64 = 4;
const KIB: u64 = 1 << 10;

/// Which block of which dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockKey {
    /// Fingerprint of the dataset's manifest.
    pub dataset: Fingerprint,
    /// Number of the block in the manifest.
    pub block: u32,
}

/// A block and where its bytes are.
#[derive(Clone, Debug)]
pub struct BlockPlace {
    /// Its name.
    pub key: BlockKey,
    /// The shard it lies in.
    pub shard: Arc<ShardObject>,
    /// Its bytes in the shard.
    pub range: Range<u64>,
}

impl BlockPlace {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// How a [`Fetcher`] is set up.
#[derive(Clone, Debug)]
pub struct FetchSettings {
    /// Bytes of blocks in memory.
    pub memory_bytes: u64,
    /// Bytes on their way to a single use, where the block has no room in memory.
    pub transit_bytes: u64,
    /// Requests on their way at once. Default: 32. Raised, a store with a request limit answers with errors.
    pub requests: usize,
    /// How patient reads are.
    pub retry: RetrySettings,
}

impl FetchSettings {
    /// The defaults, with room for this many bytes.
    #[must_use]
    pub fn new(memory_bytes: u64, transit_bytes: u64) -> Self {
        Self { memory_bytes, transit_bytes, requests: 32, retry: RetrySettings::default() }
    }
}

/// Fetches blocks and keeps them, for all ranks of a process.
#[derive(Debug)]
pub struct Fetcher {
    memory: Mutex<MemoryCache<BlockKey, Arc<Load>>>,
    disk: Option<Arc<DiskCache>>,
    transit: Arc<Semaphore>,
    transit_kib: u32,
    requests: Arc<StoreClient>,
    /// Fetches ahead of need leave some requests to what a batch waits for.
    ahead: Semaphore,
}

#[derive(Debug)]
struct Load {
    state: watch::Sender<LoadState>,
    task: OnceLock<AbortHandle>,
}

#[derive(Clone, Debug)]
enum LoadState {
    Pending,
    Ready(Pieces),
    RequestError(FetchError),
}

/// Keeps a block in memory, or on its way there. A load that nobody holds is given up.
#[derive(Debug)]
pub struct BlockHold {
    fetcher: Arc<Fetcher>,
    key: BlockKey,
    id: u64,
    load: Arc<Load>,
}

impl Drop for BlockHold {
    fn drop(&mut self) {
        let mut memory = self.fetcher.memory.lock();
        let released = memory.release(self.id);
        if released == Released::Idle && !matches!(*self.load.state.borrow(), LoadState::Ready(_)) {
            memory.retire_entry(&self.key, self.id);
            if let Some(task) = self.load.task.get() {
                task.abort();
            }
        }
    }
}

impl BlockHold {
    async fn bytes(self) -> Result<BlockBytes, FetchError> {
        let mut state = self.load.state.subscribe();
        let state = state.wait_for(|state| !matches!(state, LoadState::Pending)).await;
        let state = state.expect("the sender is held").clone();
        match state {
            LoadState::Ready(pieces) => Ok(BlockBytes { pieces, _guard: Guard::Held(self) }),
            LoadState::RequestError(error) => Err(error),
            LoadState::Pending => unreachable!("waited for another state"),
        }
    }
}

/// Bytes of a block, or the parts of it that were asked for. What it holds counts against the budget until it is
/// dropped, so slices of it must not outlive it.
#[derive(Debug)]
pub struct BlockBytes {
    pieces: Pieces,
    _guard: Guard,
}

#[derive(Debug)]
#[allow(dead_code, reason = "guards are held to be dropped")]
enum Guard {
    Held(BlockHold),
    Transit(OwnedSemaphorePermit),
}

impl BlockBytes {
    /// The bytes of `range` of the shard; `None` where they were not asked for.
    #[must_use]
    pub fn slice(&self, range: Range<u64>) -> Option<Bytes> {
        self.pieces.slice(range)
    }
}

impl Fetcher {
    /// A fetcher with empty memory, and the disk cache as it is found.
    ///
    /// # Errors
    /// [`CacheInUse`].
    pub fn new(settings: FetchSettings, disk: Option<&DiskBudget>, stage: Arc<Stage>) -> Result<Arc<Self>, CacheInUse> {
        let disk = disk.map(DiskCache::open).transpose()?.flatten().map(Arc::new);
        let transit_kib = u32::try_from(settings.transit_bytes / KIB).unwrap_or(u32::MAX >> 4).max(1);
        Ok(Arc::new(Self {
            memory: Mutex::new(MemoryCache::new(settings.memory_bytes)),
            disk,
            transit: Arc::new(Semaphore::new(transit_kib as usize)),
            transit_kib,
            requests: Arc::new(StoreClient::new(settings.requests, settings.retry, stage)),
            ahead: Semaphore::new((settings.requests * 3 / 4).max(1)),
        }))
    }

    /// Changes the bytes of blocks in memory; those in use stay until they are released.
    pub fn set_memory(&self, bytes: u64) {
        self.memory.lock().set_budget(bytes);
    }

    /// Bytes of blocks in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory.lock().used_bytes()
    }

    /// Starts to fetch a block that will be needed; `None` when there is no room for it. Call it inside a tokio runtime.
    #[must_use]
    pub fn prefetch(self: &Arc<Self>, key: BlockKey, place: impl FnOnce() -> BlockPlace) -> Option<BlockHold> {
        let mut memory = self.memory.lock();
        if let Some(hold) = self.hold(&mut memory, key) {
            return Some(hold);
        }
        let place = place();
        let load = Arc::new(Load { state: watch::Sender::new(LoadState::Pending), task: OnceLock::new() });
        let id = memory.insert(key, place.bytes(), load.clone())?;
        drop(memory);
        let task = tokio::spawn(self.clone().load(place, id, load.clone()));
        load.task.set(task.abort_handle()).expect("set once");
        Some(BlockHold { fetcher: self.clone(), key, id, load })
    }

    /// The block, where all of it is in memory.
    pub(crate) fn at_hand(self: &Arc<Self>, key: BlockKey) -> Option<BlockBytes> {
        let hold = self.hold(&mut self.memory.lock(), key)?;
        let LoadState::Ready(pieces) = hold.load.state.borrow().clone() else { return None };
        Some(BlockBytes { pieces, _guard: Guard::Held(hold) })
    }

    fn hold(self: &Arc<Self>, memory: &mut MemoryCache<BlockKey, Arc<Load>>, key: BlockKey) -> Option<BlockHold> {
        let (id, load) = memory.hold(&key)?;
        Some(BlockHold { fetcher: self.clone(), key, id, load: load.clone() })
    }

    /// The way to the stores, for what is not a block.
    pub(crate) const fn requests(&self) -> &Arc<StoreClient> {
        &self.requests
    }

    /// What went wrong with stores and cache so far, and was mended.
    #[must_use]
    pub fn store_figures(&self) -> StoreStats {
        let cache_faults = self.disk.as_ref().map_or(0, |disk| disk.faults());
        StoreStats { cache_faults, ..self.requests.stats() }
    }

    /// What keeps `shard`, or else another object of `dataset`, from coming: in words, where there is something.
    pub(crate) fn outage(&self, dataset: &str, shard: &str) -> Option<String> {
        let wanted = |path: &object_store::path::Path| {
            let object = path.as_ref();
            let object = object.strip_suffix(spdl_shard::index::INDEX_SUFFIX).unwrap_or(object);
            object.strip_suffix(shard).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
        };
        self.requests.outage(dataset, wanted).map(|outage| outage.to_string())
    }

    async fn load(self: Arc<Self>, place: BlockPlace, id: u64, load: Arc<Load>) {
        let _ahead = self.ahead.acquire().await.expect("the semaphore is never closed");
        match self.whole(&place).await {
            Ok((pieces, from)) => {
                load.state.send_replace(LoadState::Ready(pieces.clone()));
                let hold = self.hold(&mut self.memory.lock(), place.key);
                if let (ErrorSource::Store { discards }, Some(_hold)) = (from, hold) {
                    self.keep_on_disk(&place, pieces, discards).await;
                }
            }
            Err(error) => {
                load.state.send_replace(LoadState::RequestError(error));
                self.memory.lock().retire_entry(&place.key, id);
            }
        }
    }

    async fn whole(&self, place: &BlockPlace) -> Result<(Pieces, ErrorSource), FetchError> {
        let mut discards = 0;
        if let Some(disk) = &self.disk {
            discards = disk.discards(&place.key);
            let (disk, key, range) = (disk.clone(), place.key, place.range.clone());
            let read = move || disk.read(&key, range.start, range.end - range.start);
            if let Ok(Some(pieces)) = tokio::task::spawn_blocking(read).await {
                return Ok((pieces, ErrorSource::Disk));
            }
        }
        let pieces = place.shard.read(std::slice::from_ref(&place.range), &self.requests).await?;
        Ok((pieces, ErrorSource::Store { discards }))
    }

    async fn keep_on_disk(&self, place: &BlockPlace, pieces: Pieces, discards: u32) {
        if let Some(disk) = self.disk.clone() {
            let (key, offset) = (place.key, place.range.start);
            // A failed write has warned; a panic in it concerns no block.
            let _ = tokio::task::spawn_blocking(move || disk.write(&key, offset, &pieces, discards)).await;
        }
    }

    /// The bytes of `wanted`, ranges of the shard inside the block: of the whole block where it is in memory, on its
    /// way, or mostly wanted; else of these ranges alone.
    ///
    /// # Errors
    /// [`FetchError`] when they do not come.
    pub async fn fetch(
        self: &Arc<Self>,
        place: &BlockPlace,
        wanted: Vec<Range<u64>>,
    ) -> Result<BlockBytes, FetchError> {
        let known = self.hold(&mut self.memory.lock(), place.key);
        if let Some(hold) = known {
            return hold.bytes().await;
        }
        let wanted = pieces::merge(wanted);
        let wanted_bytes: u64 = wanted.iter().map(|range| range.end - range.start).sum();
        if wanted_bytes.saturating_mul(WHOLE_FRACTION) >= place.bytes()
            && let Some(hold) = self.prefetch(place.key, || place.clone())
        {
            return hold.bytes().await;
        }
        self.in_transit(place, wanted, wanted_bytes).await
    }

    async fn in_transit(
        &self,
        place: &BlockPlace,
        wanted: Vec<Range<u64>>,
        wanted_bytes: u64,
    ) -> Result<BlockBytes, FetchError> {
        let through_disk = self.disk.is_some() && place.bytes() / KIB <= u64::from(self.transit_kib);
        let bytes = if through_disk { place.bytes() } else { wanted_bytes };
        let kib = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX).clamp(1, self.transit_kib);
        let permit = self.transit.clone().acquire_many_owned(kib).await.expect("the semaphore is never closed");
        let pieces = if through_disk {
            let (pieces, from) = self.whole(place).await?;
            if let ErrorSource::Store { discards } = from {
                self.keep_on_disk(place, pieces.clone(), discards).await;
            }
            pieces
        } else {
            place.shard.read(&wanted, &self.requests).await?
        };
        Ok(BlockBytes { pieces, _guard: Guard::Transit(permit) })
    }

    /// Forgets a block whose bytes turned out wrong, in memory and on disk.
    pub fn discard(&self, key: &BlockKey) {
        self.requests.note_wrong_bytes();
        self.memory.lock().retire(key);
        if let Some(disk) = &self.disk {
            disk.discard(key);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ErrorSource {
    Disk,
    Store {
        /// How often the block had been thrown out of the disk cache before it was fetched.
        discards: u32,
    },
}

#[cfg(test)]
mod tests;
