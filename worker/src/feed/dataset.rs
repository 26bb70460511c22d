//! Open datasets, shared by all ranks of a process: manifests, plans, and record indexes within a budget.

use std::{
    collections::HashMap,
    fmt,
    ops::{Deref, Range},
    sync::Arc,
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use object_store::ObjectStore;
use parking_lot::Mutex;
use spdl_control::Stores;
use spdl_feed::cache::{LeastRecentlyUsed, MemoryCache};
use spdl_job::Job;
use spdl_order::{OrderParams, Plan, view::SampleSet};
use spdl_shard::{
    blocking,
    format::{Compressed, ObjectRange, ShardIndex, StoredObject},
    manifest::{Block, Manifest},
    store::{DatasetStore, StoreError, StoreLayer},
    view::open_view,
};
use spdl_types::{Fingerprint, SampleId, SessionId};
use tokio::sync::OnceCell;

use super::{FeedError, blocks::BlockDecoding};
use crate::fetch::{
    BlockContent, BlockKey, BlockPeers, BlockPlace, BlockSource, DiskCache, FetchError, FetchedBlock, Fetcher,
    KeptRanges, MERGE_GAP_BYTES, ObjectRead, Peers, Pieces, RetrySettings, RetryingStore, ShardObject, ShardSource,
    ShardsBase, StoreClient, WorkingWindow, read_all,
};

/// Number of datasets that stay open although no rank reads them.
const IDLE_DATASETS: usize = 4;
/// Number of plans that a dataset keeps.
const KEPT_PLANS: usize = 4;
/// How often a damaged manifest or index is read before the error is reported.
const MAX_READS: u32 = 8;
/// How often a compressed shard is read that does not decompress.
const MAX_DECOMPRESSIONS: u32 = 4;

/// The open datasets of a process.
#[derive(Debug)]
pub(crate) struct Datasets {
    open: Mutex<HashMap<DatasetKey, Arc<OnceCell<Arc<OpenDataset>>>>>,
    indexes: Arc<Indexes>,
    requests: Arc<StoreClient>,
    /// Keeps manifests, too.
    disk: Option<Arc<DiskCache>>,
    access: StoreAccess,
    /// Decodes the blocks of columnar formats.
    decoding: Arc<BlockDecoding>,
}

/// Settings for reading from stores.
#[derive(Clone, Default)]
pub struct StoreAccess {
    /// Retry policy of reads.
    pub retry: RetrySettings,
    /// The stores that datasets may lie in. Default: any.
    pub stores: Stores,
    /// Views that this process evaluated. All others are read from the folder of the dataset's manifest.
    pub views: Vec<Arc<SampleSet>>,
    /// Wraps every store that shards are read from, for example with a throttle or with faults.
    pub wrap: Option<WrapStore>,
}

/// A function that wraps a store in another one.
pub type WrapStore = Arc<dyn Fn(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> + Send + Sync>;

impl fmt::Debug for StoreAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreAccess").field("retry", &self.retry).field("wraps", &self.wrap.is_some()).finish()
    }
}

type DatasetKey = (String, Fingerprint);

impl Datasets {
    pub(crate) fn new(index_bytes: u64, decoding: Arc<BlockDecoding>, fetcher: &Fetcher, access: StoreAccess) -> Self {
        let indexes = Arc::new(Indexes::new(index_bytes));
        let (requests, disk) = (fetcher.requests().clone(), fetcher.disk().cloned());
        Self { open: Mutex::default(), indexes, requests, disk, access, decoding }
    }

    /// Returns the dataset of `job`. It is opened once, however many ranks ask for it.
    pub(crate) async fn open(&self, job: &Job) -> Result<Arc<OpenDataset>, FeedError> {
        let key = (job.dataset.clone(), job.dataset_fingerprint);
        let cell = {
            let mut open = self.open.lock();
            if !open.contains_key(&key) && open.len() >= IDLE_DATASETS {
                open.retain(|_, cell| {
                    Arc::strong_count(cell) > 1 || cell.get().is_some_and(|dataset| Arc::strong_count(dataset) > 1)
                });
            }
            open.entry(key).or_default().clone()
        };
        cell.get_or_try_init(|| OpenDataset::open(job, self)).await.cloned()
    }
}

impl Datasets {
    /// Returns the bytes of the shards of all datasets that ranks use.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        let open = self.open.lock();
        let datasets = open.values().filter_map(|cell| cell.get());
        datasets.filter(|dataset| Arc::strong_count(dataset) > 1).map(|dataset| dataset.bytes).sum()
    }
}

/// The seed, the order and the view of a plan.
type PlanKey = (u64, OrderParams, Option<Fingerprint>);

/// One open dataset.
#[derive(Debug)]
pub(crate) struct OpenDataset {
    /// The folder of the manifest and the indexes.
    store: DatasetStore,
    /// The folder of the shards.
    folder: DatasetStore,
    /// The store that shards are read from.
    shards: Arc<dyn ObjectStore>,
    /// Where the shards lie, if not beside the manifest.
    base: Option<Arc<ShardsBase>>,
    manifest: Manifest,
    /// Keeps the manifest on disk while the dataset is in use.
    _kept: Option<Arc<KeptRanges>>,
    /// Bytes of all shards.
    bytes: u64,
    fingerprint: Fingerprint,
    plans: Mutex<Vec<(PlanKey, Plan)>>,
    /// The views that this process evaluated, by their fingerprints.
    views: Vec<(Fingerprint, Arc<SampleSet>)>,
    indexes: Arc<Indexes>,
    requests: Arc<StoreClient>,
    /// The URL as it is written in the job.
    url: Arc<str>,
    decoding: Arc<BlockDecoding>,
}

impl OpenDataset {
    async fn open(
        job: &Job,
        Datasets { indexes, requests, disk, access, decoding, .. }: &Datasets,
    ) -> Result<Arc<Self>, FeedError> {
        let store_error = |source| FeedError::Dataset { url: job.dataset.clone(), source: Arc::new(source) };
        let url: Arc<str> = job.dataset.as_str().into();
        access.stores.admit(&url).map_err(|problem| FeedError::Store { job: job.name.clone(), problem })?;
        let bare = DatasetStore::open_once(&url).map_err(store_error)?;
        let store = bare.clone().through(|inner| {
            Arc::new(RetryingStore { inner, dataset: url.clone(), requests: requests.clone() }).layered()
        });
        let kept = disk.as_ref().map(|disk| Arc::new(KeptRanges::new(store.object(), &url, disk)));
        let with_manifest = kept.iter().fold(store.clone(), |store, kept| store.through(|_| kept.clone().layered()));
        let read = || async {
            let read = with_manifest.manifest().await;
            if let (Err(_), Some(kept)) = (&read, &kept) {
                kept.discard().await;
            }
            read
        };
        let manifest = again(requests, read).await.map_err(store_error)?;
        let actual = manifest.fingerprint();
        if actual != job.dataset_fingerprint {
            return Err(FeedError::DatasetDiffers {
                url: job.dataset.clone(),
                job: job.name.clone(),
                expected: job.dataset_fingerprint,
                actual,
            });
        }
        let base = manifest.base().map(|_| bare.shards_url(&manifest)).transpose().map_err(store_error)?;
        let base = base.map(|url| Arc::new(ShardsBase { url, manifest: bare.manifest_url(&manifest) }));
        if let Some(ShardsBase { url, .. }) = base.as_deref() {
            let elsewhere = |problem| format!("dataset `{}` has its shards elsewhere: {problem}", job.dataset);
            let admitted = access.stores.admit(url).map_err(elsewhere);
            admitted.map_err(|problem| FeedError::Store { job: job.name.clone(), problem })?;
        }
        let folder = bare.shards(&manifest).map_err(store_error)?;
        let shards = access.wrap.as_ref().map_or_else(|| folder.object(), |wrap| wrap(folder.object()));
        let (plans, indexes, requests) = (Mutex::default(), indexes.clone(), requests.clone());
        let bytes = manifest.shards().map(|shard| shard.bytes).sum();
        Ok(Arc::new(Self {
            store,
            folder,
            shards,
            base,
            manifest,
            _kept: kept,
            bytes,
            fingerprint: actual,
            plans,
            views: access.views.iter().map(|set| (set.fingerprint(), set.clone())).collect(),
            indexes,
            requests,
            url,
            decoding: decoding.clone(),
        }))
    }

    pub(crate) const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the plan of `job`. The samples of a view are read once, with its first plan.
    pub(crate) async fn plan(&self, job: &Job) -> Result<Plan, FeedError> {
        let key = (job.seed, job.order, job.view);
        let known =
            |plans: &[(PlanKey, Plan)]| plans.iter().find(|(other, _)| *other == key).map(|(_, plan)| plan.clone());
        if let Some(plan) = known(&self.plans.lock()) {
            return Ok(plan);
        }
        let blocks = self.manifest.block_samples();
        let plan = match job.view {
            None => Plan::new(&blocks, job.seed, job.order),
            Some(view) => Plan::of_view(&blocks, &self.view(job, view).await?, job.seed, job.order),
        };
        let plan = plan.map_err(|source| FeedError::Order { job: job.name.clone(), source: Arc::new(source) })?;
        let mut plans = self.plans.lock();
        // Another rank may have been faster; ranks share the cache of one plan.
        if let Some(plan) = known(&plans) {
            return Ok(plan);
        }
        if plans.len() >= KEPT_PLANS {
            plans.remove(0);
        }
        plans.push((key, plan.clone()));
        Ok(plan)
    }

    async fn view(&self, job: &Job, view: Fingerprint) -> Result<Arc<SampleSet>, FeedError> {
        if let Some((_, set)) = self.views.iter().find(|(samples, _)| *samples == view) {
            return Ok(set.clone());
        }
        let read = again(&self.requests, || open_view(&self.store, &self.manifest, view)).await;
        read.map_err(|source| FeedError::Dataset { url: job.dataset.clone(), source: Arc::new(source) })
    }

    /// Returns the object that is shard number `shard`; `None` if the shard consists of several.
    pub(crate) fn shard_object(&self, shard: u32) -> Option<ShardObject> {
        let shard = self.manifest.shard(shard);
        shard.format.object(&shard).map(|object| self.object(object))
    }

    fn object(&self, object: StoredObject) -> ShardObject {
        let etag = self.folder.lasting_etag(object.etag);
        ShardObject {
            store: self.shards.clone(),
            dataset: self.url.clone(),
            path: self.folder.path_of(&object.url),
            object: StoredObject { etag, ..object },
            base: self.base.clone(),
        }
    }

    pub(crate) fn block(&self, number: u32) -> Block {
        self.manifest.block(number)
    }

    /// Returns the URL of the shard that holds block `number`.
    pub(crate) fn shard_url(&self, number: u32) -> &str {
        self.manifest.shard(self.manifest.block(number).shard).url
    }

    /// Returns the number of `sample` in its shard; `block` is the block that holds it.
    pub(crate) fn sample_in_shard(&self, block: &Block, sample: SampleId) -> u64 {
        sample.0 - self.manifest.shard(block.shard).first_sample
    }

    /// Returns the record index of a shard if it is in memory.
    pub(crate) fn index_in_memory(&self, shard: u32) -> Option<IndexHold> {
        let (id, cell) = self.indexes.known(self, shard)?;
        let hold = IndexHold { indexes: self.indexes.clone(), id: Some(id), cell };
        hold.cell.initialized().then_some(hold)
    }

    /// Returns the record index of a shard, and reads it if it is not in memory.
    pub(crate) async fn index(&self, shard: u32) -> Result<IndexHold, FetchError> {
        let (id, cell) = self.indexes.hold(self, shard);
        let hold = IndexHold { indexes: self.indexes.clone(), id, cell };
        let open = || async {
            let shard = self.manifest.shard(shard);
            again(&self.requests, || self.store.index(&shard))
                .await
                .map_err(|source| FetchError::Index { shard: shard.url.to_owned(), source: Arc::new(source) })
        };
        hold.cell.get_or_try_init(open).await?;
        Ok(hold)
    }
}

/// A dataset as the ranks of a job read it: all of its fields, or those that the job names if the format is columnar.
#[derive(Clone, Debug)]
pub(crate) struct DatasetView {
    dataset: Arc<OpenDataset>,
    /// The fields that are read; `None` if these are all.
    fields: Option<Arc<[String]>>,
    /// Identifies the blocks with these fields in caches.
    key: Fingerprint,
    /// What decides which other workers are asked for blocks; `None` if none are.
    peers: Option<BlockPeers>,
}

impl Deref for DatasetView {
    type Target = OpenDataset;

    fn deref(&self) -> &OpenDataset {
        &self.dataset
    }
}

impl DatasetView {
    /// Creates the view of a job that reads `fields`.
    pub(crate) fn new(dataset: Arc<OpenDataset>, fields: &[String]) -> Self {
        if !dataset.manifest.format().is_columnar() {
            return Self { key: dataset.fingerprint, dataset, fields: None, peers: None };
        }
        let mut fields = fields.to_vec();
        fields.sort();
        // No name has a control character, so that other fields have another text.
        let key = Fingerprint::of(format!("{}\n{}", dataset.fingerprint, fields.join("\n")).as_bytes());
        Self { dataset, fields: Some(fields.into()), key, peers: None }
    }

    /// Lets blocks come from other workers of a session, and serves them to those. Not if the format is columnar: of its blocks no
    /// bytes are kept.
    pub(crate) fn shared(self, session: SessionId, plan: &Plan, peers: &Peers) -> Self {
        if !peers.is_started() || self.fields.is_some() {
            return self;
        }
        Self { peers: Some(BlockPeers::new(session, plan.clone())), ..self }
    }

    /// Returns the session with which the blocks are shared, and the blocks' dataset in caches.
    pub(crate) fn shared_as(&self) -> Option<(SessionId, Fingerprint)> {
        Some((self.peers.as_ref()?.session, self.key))
    }

    /// Returns where the bytes of block `number` lie.
    pub(crate) fn place(&self, number: u32) -> BlockPlace {
        let block = self.manifest.block(number);
        let shard: Arc<dyn ShardSource> = match self.shard_object(block.shard) {
            Some(object) => Arc::new(object),
            None => Arc::new(IndexedShard { view: self.clone(), shard: block.shard }),
        };
        let (key, peers) = (self.block_key(number), self.peers.clone());
        BlockPlace { key, shard, range: block.offset..block.offset + block.bytes, peers }
    }

    /// Returns the empty working window of a rank that begins to read the dataset.
    pub(crate) fn working_window(&self, fetcher: &Arc<Fetcher>) -> WorkingWindow {
        WorkingWindow::new(fetcher.clone(), self.key)
    }

    /// Returns the cache key of block `number`.
    pub(crate) const fn block_key(&self, number: u32) -> BlockKey {
        BlockKey { dataset: self.key, block: number }
    }
}

impl BlockSource for DatasetView {
    fn place(&self, block: u32) -> Option<BlockPlace> {
        (block < self.manifest.block_count()).then(|| self.place(block))
    }
}

/// A shard whose index knows the objects that hold its bytes.
#[derive(Debug)]
struct IndexedShard {
    view: DatasetView,
    shard: u32,
}

impl IndexedShard {
    /// Asks the shard's index, if it is in memory: it is while blocks of the shard are fetched.
    fn index_says(&self, is_so: impl FnOnce(&dyn ShardIndex) -> bool) -> bool {
        self.view.index_in_memory(self.shard).is_some_and(|index| is_so(index.index()))
    }

    /// Makes the reads that hold these bytes.
    async fn read_pieces(
        &self,
        index: &dyn ShardIndex,
        ranges: &[Range<u64>],
        requests: &StoreClient,
    ) -> Result<Pieces, FetchError> {
        let plan = index.plan(&self.view.manifest.shard(self.shard), ranges);
        let read =
            |ObjectRange { object, range, at }| ObjectRead { object: self.view.object(object).into(), range, at };
        read_all(plan.into_iter().map(read).collect(), requests).await
    }

    /// Reads the object that becomes the shard when it is decompressed, and returns these ranges of the shard. What does
    /// not decompress is read again: the bytes may have been damaged on the way.
    async fn decompressed(
        &self,
        index: &dyn ShardIndex,
        compressed: &Compressed,
        ranges: &[Range<u64>],
        requests: &StoreClient,
    ) -> Result<Pieces, FetchError> {
        let backoff = requests.retry().backoff();
        for attempt in 1.. {
            let pieces: Vec<Bytes> = self.read_pieces(index, ranges, requests).await?.iter().cloned().collect();
            let compressed = compressed.clone();
            let problem = match blocking(move || compressed.decompress(&pieces)).await {
                Ok(shard) => {
                    let slice =
                        |range: &Range<u64>| (range.start, shard.slice(range.start as usize..range.end as usize));
                    return Ok(Pieces::new(ranges.iter().map(slice).collect()));
                }
                Err(error) => error.to_string(),
            };
            requests.note_wrong_bytes();
            if attempt == MAX_DECOMPRESSIONS {
                let shard = self.url().to_owned();
                return Err(FetchError::Decompress { shard, problem, attempts: attempt });
            }
            tracing::warn!(shard = self.url(), problem, "reading it again");
            tokio::time::sleep(backoff.full_jitter(attempt, rand::random())).await;
        }
        unreachable!("the last attempt returns")
    }
}

impl ShardSource for IndexedShard {
    fn url(&self) -> &str {
        self.view.manifest.shard(self.shard).url
    }

    fn merge_gap_bytes(&self) -> u64 {
        // Nothing between two files that are wanted is worth a request of its own.
        let shard = self.view.manifest.shard(self.shard);
        if self.index_says(|index| index.object(&shard).is_some()) { MERGE_GAP_BYTES } else { 0 }
    }

    fn is_read_whole(&self) -> bool {
        self.index_says(|index| index.compressed().is_some())
    }

    fn read<'r>(
        &'r self,
        ranges: &'r [Range<u64>],
        requests: &'r StoreClient,
    ) -> BoxFuture<'r, Result<Pieces, FetchError>> {
        async move {
            let index = self.view.index(self.shard).await?;
            match index.index().compressed() {
                Some(compressed) => self.decompressed(index.index(), compressed, ranges, requests).await,
                None => self.read_pieces(index.index(), ranges, requests).await,
            }
        }
        .boxed()
    }

    fn parts(&self, range: Range<u64>) -> BoxFuture<'_, Result<Vec<Range<u64>>, FetchError>> {
        async move {
            let Some(fields) = &self.view.fields else { return Ok(vec![range]) };
            Ok(self.view.index(self.shard).await?.index().project(range, fields))
        }
        .boxed()
    }

    fn decode(&self, block: FetchedBlock) -> BoxFuture<'_, Result<BlockContent, FetchError>> {
        async move {
            if !self.view.manifest.format().is_columnar() {
                return Ok(BlockContent::Stored(block.pieces));
            }
            let index = self.view.index(self.shard).await?;
            Ok(self.view.decoding.decode(block, index).await)
        }
        .boxed()
    }
}

type IndexCell = Arc<OnceCell<Arc<dyn ShardIndex>>>;

/// Caches record indexes by dataset and shard, within a budget.
#[derive(Debug)]
struct Indexes {
    cache: Mutex<MemoryCache<(Fingerprint, u32), IndexCell, LeastRecentlyUsed>>,
}

/// Keeps a record index in memory while it is in use.
#[derive(Debug)]
pub(crate) struct IndexHold {
    indexes: Arc<Indexes>,
    /// The number of the cache entry; `None` if the cache had no room, so that this index was read for one use.
    id: Option<u64>,
    cell: IndexCell,
}

impl IndexHold {
    pub(crate) fn index(&self) -> &dyn ShardIndex {
        &**self.cell.get().expect("opened before it is handed out")
    }
}

impl Drop for IndexHold {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.indexes.cache.lock().release(id);
        }
    }
}

impl Indexes {
    fn new(bytes: u64) -> Self {
        Self { cache: Mutex::new(MemoryCache::new(bytes)) }
    }

    fn known(&self, dataset: &OpenDataset, shard: u32) -> Option<(u64, IndexCell)> {
        self.cache.lock().hold(&(dataset.fingerprint, shard)).map(|(id, cell)| (id, cell.clone()))
    }

    fn hold(&self, dataset: &OpenDataset, shard: u32) -> (Option<u64>, IndexCell) {
        let key = (dataset.fingerprint, shard);
        let mut cache = self.cache.lock();
        if let Some((id, cell)) = cache.hold(&key) {
            return (Some(id), cell.clone());
        }
        let cell = IndexCell::default();
        (cache.insert(key, dataset.manifest.shard(shard).index_bytes, cell.clone()), cell)
    }
}

/// Reads again, with back-off, while the bytes are damaged. All other retries are made by the [`StoreClient`].
async fn again<T, F>(requests: &StoreClient, read: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let backoff = requests.retry().backoff();
    for failures in 1..MAX_READS {
        match read().await {
            Err(error) if error.is_retryable() => {
                if let StoreError::Format { .. } = error {
                    requests.note_wrong_bytes();
                }
                tracing::warn!(%error, "reading it again");
                tokio::time::sleep(backoff.full_jitter(failures, rand::random())).await;
            }
            result => return result,
        }
    }
    read().await
}
