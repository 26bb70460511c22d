//! Datasets that are open: manifest, record indexes within a budget, and plans, shared by all ranks of a process.

use std::{collections::HashMap, fmt, sync::Arc};

use object_store::ObjectStore;
use parking_lot::Mutex;
use spdl_shard::{
    Fingerprint, SampleId, Stores,
    index::RecordIndex,
    job::{Job, OrderParams},
    manifest::{Block, Manifest},
    order::Plan,
    store::{DatasetStore, StoreError},
};
use tokio::sync::OnceCell;

use super::FeedError;
use crate::fetch::{
    Backoff, BlockKey, BlockPlace, MemoryCache, RetrySettings, RetryingStore, ShardObject, StoreClient,
};

/// Datasets that stay open without a rank that reads them.
const IDLE_DATASETS: usize = 4;
/// Plans that a dataset keeps.
const KEPT_PLANS: usize = 4;
/// How often a manifest or an index is read that turns out damaged.
const MAX_READS: u32 = 8;

/// The open datasets of a process.
#[derive(Debug)]
pub(crate) struct Datasets {
    open: Mutex<HashMap<DatasetKey, Arc<OnceCell<Arc<OpenDataset>>>>>,
    indexes: Arc<Indexes>,
    requests: Arc<StoreClient>,
    access: StoreAccess,
}

/// How stores are read.
#[derive(Clone, Default)]
pub struct StoreAccess {
    /// How patient reads are.
    pub retry: RetrySettings,
    /// Where datasets may lie. Default: anywhere.
    pub stores: Stores,
    /// Put between the worker and every store that shards are read from: a throttle, or faults.
    pub wrap: Option<WrapStore>,
}

/// Makes a store of a store.
pub type WrapStore = Arc<dyn Fn(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> + Send + Sync>;

impl fmt::Debug for StoreAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreAccess").field("retry", &self.retry).field("wraps", &self.wrap.is_some()).finish()
    }
}

type DatasetKey = (String, Fingerprint);

impl Datasets {
    pub(crate) fn new(index_bytes: u64, requests: Arc<StoreClient>, access: StoreAccess) -> Self {
        Self { open: Mutex::default(), indexes: Arc::new(Indexes::new(index_bytes)), requests, access }
    }

    /// The dataset of `job`: opened once however many ranks ask for it.
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

/// One open dataset.
#[derive(Debug)]
pub(crate) struct OpenDataset {
    store: DatasetStore,
    /// Where shards are read from.
    shards: Arc<dyn ObjectStore>,
    manifest: Manifest,
    fingerprint: Fingerprint,
    plans: Mutex<Vec<(u64, OrderParams, Plan)>>,
    indexes: Arc<Indexes>,
    requests: Arc<StoreClient>,
    /// As the job writes it.
    url: Arc<str>,
}

impl OpenDataset {
    async fn open(job: &Job, Datasets { indexes, requests, access, .. }: &Datasets) -> Result<Arc<Self>, FeedError> {
        let store_error = |source| FeedError::Dataset { url: job.dataset.clone(), source: Arc::new(source) };
        let url: Arc<str> = job.dataset.as_str().into();
        access.stores.admit(&url).map_err(|problem| FeedError::Store { job: job.name.clone(), problem })?;
        let bare = DatasetStore::open_once(&url).map_err(store_error)?;
        let shards = access.wrap.as_ref().map_or_else(|| bare.object(), |wrap| wrap(bare.object()));
        let store =
            bare.through(|inner| Arc::new(RetryingStore { inner, dataset: url.clone(), requests: requests.clone() }));
        let manifest = again(requests, || store.manifest()).await.map_err(store_error)?;
        let actual = manifest.fingerprint();
        if actual != job.dataset_fingerprint {
            return Err(FeedError::DatasetDiffers {
                url: job.dataset.clone(),
                job: job.name.clone(),
                expected: job.dataset_fingerprint,
                actual,
            });
        }
        let (plans, indexes, requests) = (Mutex::default(), indexes.clone(), requests.clone());
        Ok(Arc::new(Self { store, shards, manifest, fingerprint: actual, plans, indexes, requests, url }))
    }

    pub(crate) const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The order of `job`.
    pub(crate) fn plan(&self, job: &Job) -> Result<Plan, FeedError> {
        let mut plans = self.plans.lock();
        if let Some((.., plan)) = plans.iter().find(|(seed, order, _)| (*seed, *order) == (job.seed, job.order)) {
            return Ok(plan.clone());
        }
        let plan = Plan::new(&self.manifest.block_samples(), job.seed, job.order)
            .map_err(|source| FeedError::Order { job: job.name.clone(), source: Arc::new(source) })?;
        if plans.len() >= KEPT_PLANS {
            plans.remove(0);
        }
        plans.push((job.seed, job.order, plan.clone()));
        Ok(plan)
    }

    /// Where block `number` is to be fetched.
    pub(crate) fn place(&self, number: u32) -> BlockPlace {
        let block = self.manifest.block(number);
        let shard = self.manifest.shard(block.shard);
        let object = ShardObject {
            store: self.shards.clone(),
            dataset: self.url.clone(),
            path: self.store.shard_path(&shard),
            url: shard.url.to_owned(),
            bytes: shard.bytes,
            etag: self.store.lasting_etag(shard.etag.map(str::to_owned)),
        };
        BlockPlace {
            key: self.block_key(number),
            shard: Arc::new(object),
            range: block.offset..block.offset + block.bytes,
        }
    }

    /// What block `number` is called.
    pub(crate) const fn block_key(&self, number: u32) -> BlockKey {
        BlockKey { dataset: self.fingerprint, block: number }
    }

    pub(crate) fn block(&self, number: u32) -> Block {
        self.manifest.block(number)
    }

    /// The URL of the shard that block `number` lies in.
    pub(crate) fn shard_url(&self, number: u32) -> &str {
        self.manifest.shard(self.manifest.block(number).shard).url
    }

    /// The number of `sample` in its shard, whose block is `block`.
    pub(crate) fn sample_in_shard(&self, block: &Block, sample: SampleId) -> u64 {
        sample.0 - self.manifest.shard(block.shard).first_sample
    }

    /// The record index of a shard, where it has been read.
    pub(crate) fn index_at_hand(&self, shard: u32) -> Option<IndexHold> {
        let (id, cell) = self.indexes.known(self, shard)?;
        let hold = IndexHold { indexes: self.indexes.clone(), id: Some(id), cell };
        hold.cell.initialized().then_some(hold)
    }

    /// The record index of a shard.
    pub(crate) async fn index(self: &Arc<Self>, shard: u32) -> Result<IndexHold, FeedError> {
        let (id, cell) = self.indexes.hold(self, shard);
        let hold = IndexHold { indexes: self.indexes.clone(), id, cell };
        let open = || async {
            let shard = self.manifest.shard(shard);
            again(&self.requests, || self.store.index(&shard))
                .await
                .map_err(|source| FeedError::Dataset { url: shard.url.to_owned(), source: Arc::new(source) })
        };
        hold.cell.get_or_try_init(open).await?;
        Ok(hold)
    }
}

type IndexCell = Arc<OnceCell<RecordIndex>>;

/// Record indexes by dataset and shard, within a budget.
#[derive(Debug)]
struct Indexes {
    cache: Mutex<MemoryCache<(Fingerprint, u32), IndexCell>>,
}

/// A record index that is in use.
#[derive(Debug)]
pub(crate) struct IndexHold {
    indexes: Arc<Indexes>,
    /// `None` where the cache had no room, so that the index is read for this use alone.
    id: Option<u64>,
    cell: IndexCell,
}

impl IndexHold {
    pub(crate) fn index(&self) -> &RecordIndex {
        self.cell.get().expect("opened before it is handed out")
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

/// Reads again, with back-off, what came damaged; all other patience is with the requests.
async fn again<T, F>(requests: &StoreClient, read: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut backoff = Backoff::new(requests.retry().first_delay, requests.retry().max_delay);
    for _ in 1..MAX_READS {
        match read().await {
            Err(error) if error.is_retryable() => {
                if let StoreError::Format { .. } = error {
                    requests.note_wrong_bytes();
                }
                tracing::warn!(%error, "reading it again");
                tokio::time::sleep(backoff.delay(rand::random())).await;
            }
            result => return result,
        }
    }
    read().await
}
