//! Fetches the bytes of blocks: chooses between memory, the disk cache, other workers and the store.

use std::{
    ops::Range,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use futures::future::{Either, select};
use parking_lot::Mutex;
use spdl_accounting::StageCounters;
use spdl_feed::cache::{BlockKey, MemoryCache};
use spdl_insight::{CacheStats, StoreStats};
use spdl_shard::ranges::merge;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tracing::Instrument;

use super::{
    admission::{Admission, QuarterWanted},
    client::StoreClient,
    disk::{DiskCache, places_in_file},
    error::FetchError,
    hold::{BlockBytes, BlockContent, BlockHold, BlockLoad, BlockMemory, Guard, KIB, LoadState, Transit, Wanted, hold},
    joined::JOINED_BYTES,
    limited::Permit,
    peers::{Need, Peers, Route},
    pieces::Pieces,
    place::{BlockPlace, FetchedBlock},
    settings::{DiskCacheState, RetrySettings},
    units::{ReadState, current_batch, for_batch},
};
use crate::budget::DiskBudget;

/// Fetches blocks and caches them, for all ranks of a process.
#[derive(Debug)]
pub struct Fetcher {
    pub(super) memory: Arc<BlockMemory>,
    admission: Box<dyn Admission>,
    /// The cache on disk, if there is one.
    pub(crate) disk: Option<Arc<DiskCache>>,
    /// Has a clone for each block that is still to be written to the disk.
    to_write: Arc<()>,
    pub(super) transit: Arc<Semaphore>,
    transit_kib: u32,
    single_use_bytes: AtomicU64,
    /// The client that reads blocks, and all other objects.
    pub(crate) requests: Arc<StoreClient>,
    /// What is known about the workers that read the same blocks.
    pub(crate) peers: Peers,
}

impl Fetcher {
    /// Creates a fetcher with empty memory for `memory_bytes` of blocks and, because their block has no room there, `transit_bytes`
    /// that are fetched for a single use. Opens the disk cache with what it holds; if that cannot be used, logs a warning and goes
    /// on without it.
    pub fn new(
        [memory_bytes, transit_bytes]: [u64; 2],
        retry: RetrySettings,
        disk: Option<&DiskBudget>,
        stage: Arc<StageCounters>,
    ) -> Arc<Self> {
        let disk = disk.and_then(DiskCache::open).map(Arc::new);
        let transit_kib = u32::try_from(transit_bytes / KIB).unwrap_or(u32::MAX >> 4).max(1);
        let requests = Arc::new(StoreClient::new(retry, stage));
        requests.memory.set_limit(memory_bytes);
        requests.memory.note_single_use(transit_bytes);
        Arc::new(Self {
            memory: Arc::new(Mutex::new(MemoryCache::new(memory_bytes))),
            admission: Box::new(QuarterWanted),
            disk,
            to_write: Arc::default(),
            transit: Arc::new(Semaphore::new(transit_kib as usize)),
            transit_kib,
            single_use_bytes: AtomicU64::new(0),
            requests,
            peers: Peers::default(),
        })
    }

    /// Changes the limit of bytes in memory; blocks in use stay until they are released.
    pub fn set_memory(&self, bytes: u64) {
        self.memory.lock().set_budget(bytes);
        self.requests.memory.set_limit(bytes);
    }

    /// Returns the bytes of blocks in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory.lock().used_bytes()
    }

    /// Starts to fetch a block that will be needed; `None` if the blocks in use leave no room at all. A block takes
    /// room only when its turn to be read comes, so that blocks that are read ahead displace no others before. Must be
    /// called inside a tokio runtime.
    #[must_use]
    pub fn prefetch(self: &Arc<Self>, key: BlockKey, place: impl FnOnce() -> BlockPlace) -> Option<BlockHold> {
        let mut memory = self.memory.lock();
        if let Some(hold) = hold(&self.memory, &mut memory, key) {
            return Some(hold);
        }
        let place = place();
        let load = Arc::new(BlockLoad { state: watch::Sender::new(LoadState::Pending), task: OnceLock::new() });
        let id = memory.insert(key, 0, load.clone())?;
        drop(memory);
        let span = place.span();
        let loading = for_batch(current_batch(), self.clone().load(place, id, load.clone()));
        let task = tokio::spawn(loading.instrument(span).in_current_span());
        load.task.set(task.abort_handle()).expect("set once");
        Some(BlockHold { memory: self.memory.clone(), key, id, load })
    }

    /// Returns the block if it is completely in memory.
    pub(crate) fn in_memory(self: &Arc<Self>, key: BlockKey) -> Option<BlockBytes> {
        let hold = hold(&self.memory, &mut self.memory.lock(), key)?;
        let LoadState::Ready(content) = hold.load.state.borrow().clone() else { return None };
        Some(BlockBytes { content, _guard: Guard::Held(hold) })
    }

    /// Returns the counts of faults of stores and of the disk cache that were recovered from.
    #[must_use]
    pub fn store_stats(&self) -> StoreStats {
        let cache_faults = self.disk.as_ref().map_or(0, |disk| disk.faults());
        let single_use_bytes = self.single_use_bytes.load(Relaxed);
        StoreStats { cache_faults, single_use_bytes, ..self.requests.stats() }
    }

    /// Returns the state of the larger block cache, memory or disk: the disk has the blocks in memory, too. `dataset_bytes` are those
    /// of all blocks of the open datasets.
    #[must_use]
    pub fn cache_stats(&self, dataset_bytes: u64) -> CacheStats {
        let transit_bytes = u64::from(self.transit_kib) * KIB;
        let memory = {
            let memory = self.memory.lock();
            let is_loaded = |load: &Arc<BlockLoad>| matches!(*load.state.borrow(), LoadState::Ready(_));
            let (used_bytes, window_bytes) = (memory.bytes_of(is_loaded), memory.window_bytes());
            CacheStats { used_bytes, limit_bytes: memory.budget_bytes(), window_bytes, dataset_bytes, transit_bytes }
        };
        let disk =
            self.disk.as_ref().map(|disk| disk.bytes()).filter(|(_, limit_bytes)| *limit_bytes > memory.limit_bytes);
        disk.map_or(memory, |(used_bytes, limit_bytes)| CacheStats {
            used_bytes,
            limit_bytes,
            window_bytes: 0,
            ..memory
        })
    }

    /// Returns the state of the cache on disk, if there is one.
    pub(crate) fn disk_cache(&self) -> Option<DiskCacheState> {
        self.disk.as_ref().map(|disk| {
            let (used_bytes, limit_bytes) = disk.bytes();
            let to_write = Arc::strong_count(&self.to_write) - 1;
            let (refused, is_failing) = (disk.refused(), disk.is_failing());
            DiskCacheState { used_bytes, limit_bytes, refused, is_failing, to_write }
        })
    }

    /// Describes the outage that delays `shard`, or else another object of `dataset`, if there is one.
    pub(crate) fn outage(&self, dataset: &str, shard: &str) -> Option<String> {
        let wanted = |path: &object_store::path::Path| {
            let object = path.as_ref();
            let object = object.strip_suffix(spdl_shard::index::INDEX_SUFFIX).unwrap_or(object);
            object.strip_suffix(shard).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
        };
        self.requests.outage(dataset, wanted).map(|outage| outage.to_string())
    }

    async fn load(self: Arc<Self>, place: BlockPlace, id: u64, load: Arc<BlockLoad>) {
        let route = self.peers.route(&place, Need::Ahead).await;
        // A block that another worker fetches takes no request of this worker's: otherwise two workers could wait for
        // each other.
        let turn = match route.owner {
            Some(_) => ReadPermit::Peer(self.peers.turn().await),
            None => ReadPermit::Store(self.requests.limits.ahead().await),
        };
        let is_long = place.bytes() > JOINED_BYTES;
        let loading = is_long.then(|| self.requests.memory.loading(place.bytes()));
        if !self.memory.lock().reserve(id, place.bytes()) {
            load.state.send_replace(LoadState::NoRoom);
            self.memory.lock().retire_entry(&place.key, id);
            return;
        }
        self.note_memory();
        match self.whole(&place, None, place.bytes(), &route, turn).await {
            Ok(block) => {
                drop(loading);
                if let BlockContent::Decoded(records) = &block.content {
                    self.memory.lock().shrink(id, records.bytes());
                }
                self.note_memory();
                load.state.send_replace(LoadState::Ready(block.content.clone()));
                let hold = hold(&self.memory, &mut self.memory.lock(), place.key);
                if hold.is_some() {
                    block.keep_on_disk().await;
                }
            }
            Err(error) => {
                load.state.send_replace(LoadState::Failed(error));
                self.memory.lock().retire_entry(&place.key, id);
            }
        }
    }

    /// Lets memory that waits for its next use be no more than blocks leave free.
    fn note_memory(&self) {
        let used_bytes = self.memory.lock().used_bytes();
        self.requests.memory.note_used(used_bytes);
    }

    /// Returns the whole block, from the disk if it is there; of decoded records only those in `only`, if that is
    /// given. The block has `room_bytes` of memory.
    async fn whole(
        &self,
        place: &BlockPlace,
        only: Option<Arc<[u32]>>,
        room_bytes: u64,
        route: &Route,
        turn: ReadPermit<'_>,
    ) -> Result<WholeBlock, FetchError> {
        let decode =
            |ranges, pieces| place.shard.decode(FetchedBlock { key: place.key, ranges, pieces, only, room_bytes });
        let parts = place.shard.parts(place.range.clone()).await?;
        let mut discards = 0;
        if let Some(disk) = &self.disk {
            discards = disk.discards(&place.key);
            let (disk, key, wanted) = (disk.clone(), place.key, parts.clone());
            let read = move || disk.read(&key, &wanted);
            if let Ok(Some(pieces)) = tokio::task::spawn_blocking(read).await {
                let content = decode(parts, pieces).await?;
                return Ok(WholeBlock { content, is_of_store: false, keep: None });
            }
        }
        let (pieces, is_of_store) = self.read(place, &parts, &parts, route, turn).await?;
        let keep = self.disk.clone().map(|disk| -> KeepBlock {
            let (key, parts, pieces, counted) = (place.key, parts.clone(), pieces.clone(), self.to_write.clone());
            Box::new(move || {
                disk.write(&key, &parts, &pieces, discards);
                drop(counted);
            })
        });
        Ok(WholeBlock { content: decode(parts, pieces).await?, is_of_store, keep })
    }

    /// Returns ranges of a block that consists of these parts, and whether they came from the store. Other workers are
    /// asked first; while one is late, the store is asked, too.
    async fn read(
        &self,
        place: &BlockPlace,
        parts: &[Range<u64>],
        wanted: &[Range<u64>],
        route: &Route,
        turn: ReadPermit<'_>,
    ) -> Result<(Pieces, bool), FetchError> {
        let from_store = async {
            let _ahead =
                if matches!(turn, ReadPermit::Peer(_)) { Some(self.requests.limits.ahead().await) } else { None };
            let pieces = place.shard.read(wanted, &self.requests).await?;
            self.peers.forget_sender(&place.key);
            Ok((pieces, true))
        };
        if route.is_empty() {
            return from_store.await;
        }
        let late = Notify::new();
        let (asking, from_store) = (pin!(self.peers.ask(route, place, parts, wanted, &late)), pin!(from_store));
        match select(asking, pin!(late.notified())).await {
            Either::Left((Some(pieces), _)) => Ok((pieces, false)),
            Either::Left((None, _)) => from_store.await,
            Either::Right(((), asking)) => {
                self.peers.note_late();
                match select(asking, from_store).await {
                    Either::Left((Some(pieces), _)) => Ok((pieces, false)),
                    Either::Left((None, from_store)) => from_store.await,
                    Either::Right((read, _)) => read,
                }
            }
        }
    }

    /// Returns the wanted ranges of a block. Uses the whole block if it is in memory, being loaded, or mostly wanted;
    /// otherwise fetches the wanted ranges alone.
    ///
    /// # Errors
    /// [`FetchError`] if they cannot be fetched.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        place: &BlockPlace,
        wanted: impl Into<Wanted>,
    ) -> Result<BlockBytes, FetchError> {
        Ok(self.fetch_beside(place, wanted, 0).await?.0)
    }

    /// Returns the wanted ranges of a block as [`fetch`](Self::fetch) does, and [transit](Self::transit) memory for so many bytes more, for
    /// which it waits together with that of the block.
    ///
    /// # Errors
    /// [`FetchError`] if the ranges cannot be fetched.
    pub(crate) async fn fetch_beside(
        self: &Arc<Self>,
        place: &BlockPlace,
        wanted: impl Into<Wanted>,
        beside_bytes: u64,
    ) -> Result<(BlockBytes, Option<Transit>), FetchError> {
        // A block in memory takes none of the transit.
        let beside = async || if beside_bytes > 0 { Some(self.transit(beside_bytes).await) } else { None };
        let Wanted { ranges: wanted, records } = wanted.into();
        let known = hold(&self.memory, &mut self.memory.lock(), place.key);
        if let Some(hold) = known
            && let Some(bytes) = hold.bytes().await?
        {
            return Ok((bytes, beside().await));
        }
        let wanted = merge(wanted, place.shard.merge_gap_bytes());
        let bytes = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let wanted_bytes = bytes(&wanted);
        // Only the columns of the job are read from a block of a columnar format.
        let whole_bytes = bytes(&place.shard.parts(place.range.clone()).await?);
        if self.admission.admits(whole_bytes, wanted_bytes)
            && let Some(hold) = self.prefetch(place.key, || place.clone())
            && let Some(bytes) = hold.bytes().await?
        {
            return Ok((bytes, beside().await));
        }
        self.in_transit(place, wanted, records, [wanted_bytes, beside_bytes]).instrument(place.span()).await
    }

    /// Returns a block of a dataset of so many bytes from memory. If the dataset takes up to a quarter of that, the block is read, and stays
    /// there; `None` if there is no room, or it is of a larger dataset and not in memory.
    ///
    /// # Errors
    /// [`FetchError`] if it cannot be read.
    pub(crate) async fn keep(
        self: &Arc<Self>,
        place: &BlockPlace,
        dataset_bytes: u64,
    ) -> Result<Option<BlockBytes>, FetchError> {
        if dataset_bytes > self.memory.lock().budget_bytes() / 4 {
            return Ok(self.in_memory(place.key));
        }
        match self.prefetch(place.key, || place.clone()) {
            Some(hold) => hold.bytes().await,
            None => Ok(None),
        }
    }

    async fn in_transit(
        &self,
        place: &BlockPlace,
        wanted: Vec<Range<u64>>,
        records: Arc<[u32]>,
        [wanted_bytes, beside_bytes]: [u64; 2],
    ) -> Result<(BlockBytes, Option<Transit>), FetchError> {
        let fits_on_disk = self.disk.is_some() && place.bytes() / KIB <= u64::from(self.transit_kib);
        let is_whole = fits_on_disk || place.shard.is_read_whole();
        let bytes = if is_whole { place.bytes() } else { wanted_bytes };
        let mut transit = self.transit(bytes.saturating_add(beside_bytes)).await;
        let beside = transit.split_at(bytes);
        // A single read may be longer than the pool.
        self.requests.memory.note_single_use(bytes.max(u64::from(self.transit_kib) * KIB));
        let route = self.peers.route(place, Need::Now).await;
        let content = if is_whole {
            let block = self.whole(place, Some(records), transit.bytes(), &route, ReadPermit::Taken).await?;
            if block.is_of_store {
                self.single_use_bytes.fetch_add(bytes, Relaxed);
            }
            let content = block.content.clone();
            block.keep_on_disk().await;
            content
        } else {
            let parts = if route.is_empty() { Vec::new() } else { place.shard.parts(place.range.clone()).await? };
            let (pieces, is_of_store) = self.read(place, &parts, &wanted, &route, ReadPermit::Taken).await?;
            if is_of_store {
                self.single_use_bytes.fetch_add(bytes, Relaxed);
            }
            let (key, only, room_bytes) = (place.key, Some(records), transit.bytes());
            place.shard.decode(FetchedBlock { key, ranges: wanted, pieces, only, room_bytes }).await?
        };
        Ok((BlockBytes { content, _guard: Guard::Transit(transit) }, beside))
    }

    /// Waits for transit memory, which holds bytes that are fetched for one use; asks for at most the whole pool.
    pub(crate) async fn transit(&self, bytes: u64) -> Transit {
        let kib = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX).clamp(1, self.transit_kib);
        Transit(match self.transit.clone().try_acquire_many_owned(kib) {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = self.requests.limits.units.enter(ReadState::NoMemory);
                self.transit.clone().acquire_many_owned(kib).await.expect("the semaphore is never closed")
            }
        })
    }

    /// Reads ranges of a block for one use, from the disk if the block is there, else from the store. The caller has reserved memory
    /// for them in [transit](Self::transit). Ranges with a gap of at most `gap_bytes` are read by one request.
    ///
    /// # Errors
    /// [`FetchError`] if they cannot be read.
    pub(crate) async fn read_ranges(
        &self,
        place: &BlockPlace,
        wanted: Vec<Range<u64>>,
        gap_bytes: u64,
    ) -> Result<Pieces, FetchError> {
        if let Some(disk) = self.disk.as_ref().filter(|_| !wanted.is_empty()) {
            let parts = place.shard.parts(place.range.clone()).await?;
            if let Some(wanted) = places_in_file(&parts, merge(wanted.clone(), 0)) {
                let (disk, key) = (disk.clone(), place.key);
                let read = move || disk.read_ranges(&key, &parts, &wanted);
                if let Ok(Some(pieces)) = tokio::task::spawn_blocking(read).await {
                    return Ok(pieces);
                }
            }
        }
        let ranges = merge(wanted, gap_bytes);
        place.shard.read(&ranges, &self.requests).instrument(place.span()).await
    }

    /// Removes a block whose bytes are wrong from memory and disk.
    pub fn discard(&self, key: &BlockKey) {
        self.requests.note_wrong_bytes();
        self.peers.note_wrong(*key);
        self.memory.lock().retire(key);
        if let Some(disk) = &self.disk {
            disk.discard(key);
        }
    }
}

/// The reason why a read may be made now, with its permit.
#[allow(dead_code, reason = "permits are held to be dropped")]
enum ReadPermit<'f> {
    /// A batch waits for it.
    Taken,
    /// One of the requests to stores that may be made ahead of need.
    Store(Permit<'f>),
    /// One of the blocks that other workers may be asked for at once.
    Peer(SemaphorePermit<'f>),
}

/// A block that was read whole.
struct WholeBlock {
    content: BlockContent,
    /// Whether it was not on the disk.
    is_of_store: bool,
    /// Writes it to the disk; `None` if the disk has it, or there is no disk cache.
    keep: Option<KeepBlock>,
}

type KeepBlock = Box<dyn FnOnce() + Send>;

impl WholeBlock {
    async fn keep_on_disk(self) {
        if let Some(keep) = self.keep {
            // A failed write has already been logged, and a panic in it affects no block.
            let _ = tokio::task::spawn_blocking(keep).await;
        }
    }
}
