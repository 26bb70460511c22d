//! Open datasets, shared by all ranks of a process: manifests, plans, and record indexes within a budget.

mod global_sequences;
mod indexes;
mod kept_steps;
mod open_pool;
mod sequences;
mod sized_samples;
mod sounds;
mod sources;
mod view;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
};

use futures::future::try_join_all;
use object_store::ObjectStore;
use parking_lot::Mutex;
use spdl_control::Stores;
use spdl_job::{DatasetOfJob, Job, SampleCost};
use spdl_order::{OrderParams, Plan, view::ViewSamples};
use spdl_shard::{
    format::StoredObject,
    manifest::{Block, Manifest},
    samples::JobSamples,
    sequences::{MadeSequences, SequenceTable, open_sequences},
    sizes::{SizeTable, open_sizes},
    store::DatasetStore,
    view::open_view,
};
use spdl_store::{ContentError, StoreError, StoreLayer};
use spdl_types::{Fingerprint, SampleId};
use tokio::sync::OnceCell;

pub(crate) use self::{
    global_sequences::GlobalSequences,
    indexes::IndexHold,
    sequences::{DatasetSequences, OpenPools, SequencePieces},
    sized_samples::SizedSamples,
    sounds::{FoundSound, SoundDatasets},
    sources::{FeedDatasets, OpenDatasets},
    view::DatasetView,
};
use self::{indexes::Indexes, sounds::SoundMemory};
use super::{FeedError, blocks::BlockDecoding};
use crate::fetch::{
    DiskCache, Fetcher, KeptRanges, RetrySettings, RetryingStore, ShardObject, ShardsBase, StoreClient,
};

/// Number of datasets that stay open although no rank reads them.
const IDLE_DATASETS: usize = 4;
/// Number of plans that a dataset keeps.
const KEPT_PLANS: usize = 4;
/// How often a damaged manifest or index is read before the error is reported.
const MAX_READS: u32 = 8;

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
    /// Memory for recordings that operations take, once a job has such operations.
    sound_memory: OnceLock<Arc<SoundMemory>>,
}

/// Settings for reading from stores.
#[derive(Clone, Default)]
pub struct StoreAccess {
    /// Retry policy of reads.
    pub retry: RetrySettings,
    /// The stores that datasets may lie in. Default: any.
    pub stores: Stores,
    /// Views that this process evaluated. All others are read from the folder of the dataset's manifest.
    pub views: Vec<ViewSamples>,
    /// Sequences that this process evaluated. All others are read from the folder of the dataset's manifest.
    pub sequences: Vec<MadeSequences>,
    /// Sizes of samples that this process has measured or read. All others are read from the folder of the dataset's manifest.
    pub sizes: Vec<Arc<SizeTable>>,
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
        let (requests, disk) = (fetcher.requests.clone(), fetcher.disk.clone());
        let (open, sound_memory) = Default::default();
        Self { open, indexes, requests, disk, access, decoding, sound_memory }
    }

    /// Returns the datasets of `job`. Each is opened once, however many ranks ask for it.
    pub(crate) async fn open(&self, job: &Job) -> Result<OpenDatasets, FeedError> {
        let opened = job.datasets().into_iter().map(|dataset| self.open_one(job, dataset));
        Ok(OpenDatasets::new(try_join_all(opened).await?))
    }

    async fn open_one(&self, job: &Job, dataset: DatasetOfJob<'_>) -> Result<Arc<OpenDataset>, FeedError> {
        let key = (dataset.url.to_owned(), dataset.fingerprint);
        let cell = {
            let mut open = self.open.lock();
            if !open.contains_key(&key) && open.len() >= IDLE_DATASETS {
                open.retain(|_, cell| {
                    Arc::strong_count(cell) > 1 || cell.get().is_some_and(|dataset| Arc::strong_count(dataset) > 1)
                });
            }
            open.entry(key).or_default().clone()
        };
        cell.get_or_try_init(|| OpenDataset::open(job, dataset, self)).await.cloned()
    }

    /// Returns the bytes of the shards of all datasets that ranks use.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        let open = self.open.lock();
        let datasets = open.values().filter_map(|cell| cell.get());
        datasets.filter(|dataset| Arc::strong_count(dataset) > 1).map(|dataset| dataset.bytes).sum()
    }
}

/// The seed, the order and the view of a plan, and the job if it packs documents, has sources or redactions, or deals samples by their
/// sizes: what its ranks are told of their sequences follows from its columns, and what they get from what samples cost, too.
type PlanKey = (u64, OrderParams, Option<Fingerprint>, Option<(Fingerprint, Option<SampleCost>)>);

/// The plan of a job, with the sequences that are its samples if the job packs documents, or what deals its samples if it measures them.
#[derive(Clone, Debug)]
pub(crate) struct PlannedJob {
    pub(crate) plan: Plan,
    pub(crate) sequences: Option<Arc<DatasetSequences>>,
    pub(crate) sized: Option<Arc<SizedSamples>>,
}

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
    plans: Mutex<Vec<(PlanKey, PlannedJob)>>,
    /// The views that this process evaluated, by their fingerprints.
    views: Vec<(Fingerprint, ViewSamples)>,
    /// The sequences that this process evaluated.
    made_sequences: Vec<MadeSequences>,
    /// The sizes that this process has measured or read.
    sizes: Vec<Arc<SizeTable>>,
    indexes: Arc<Indexes>,
    requests: Arc<StoreClient>,
    /// The URL as it is written in the job.
    url: Arc<str>,
    decoding: Arc<BlockDecoding>,
}

impl OpenDataset {
    async fn open(
        job: &Job,
        dataset: DatasetOfJob<'_>,
        Datasets { indexes, requests, disk, access, decoding, .. }: &Datasets,
    ) -> Result<Arc<Self>, FeedError> {
        let store_error = |source| FeedError::Dataset { url: dataset.url.to_owned(), source: Arc::new(source) };
        let url: Arc<str> = dataset.url.into();
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
        if actual != dataset.fingerprint {
            return Err(FeedError::DatasetDiffers {
                url: dataset.url.to_owned(),
                job: job.name.clone(),
                expected: dataset.fingerprint,
                actual,
            });
        }
        let base = manifest.base().map(|_| bare.shards_url(&manifest)).transpose().map_err(store_error)?;
        let base = base.map(|url| Arc::new(ShardsBase { url, manifest: bare.manifest_url(&manifest) }));
        if let Some(ShardsBase { url, .. }) = base.as_deref() {
            let elsewhere = |problem| format!("dataset `{}` has its shards elsewhere: {problem}", dataset.url);
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
            made_sequences: access.sequences.clone(),
            sizes: access.sizes.clone(),
            indexes,
            requests,
            url,
            decoding: decoding.clone(),
        }))
    }

    pub(crate) const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns a plan that was kept.
    fn kept_plan(&self, key: &PlanKey) -> Option<PlannedJob> {
        let plans = self.plans.lock();
        plans.iter().find(|(other, _)| other == key).map(|(_, planned)| planned.clone())
    }

    /// Keeps a plan, and returns it. Another rank may have been faster; ranks share the cache of one plan, and the layouts of pools.
    fn keep_plan(&self, key: PlanKey, planned: PlannedJob) -> PlannedJob {
        let mut plans = self.plans.lock();
        if let Some((_, known)) = plans.iter().find(|(other, _)| *other == key) {
            return known.clone();
        }
        if plans.len() >= KEPT_PLANS {
            plans.remove(0);
        }
        plans.push((key, planned.clone()));
        planned
    }

    /// Returns what the samples of a job with this view and these pools are.
    async fn samples(&self, view: Option<Fingerprint>, pools: Option<Fingerprint>) -> Result<JobSamples, StoreError> {
        let known = view.and_then(|view| self.views.iter().find(|(samples, _)| *samples == view));
        let view = match (known, view) {
            (Some((_, set)), _) => Some(set.clone()),
            (None, Some(view)) => Some(again(&self.requests, || open_view(&self.store, &self.manifest, view)).await?),
            (None, None) => None,
        };
        let Some(pools) = pools else { return Ok(view.map_or(JobSamples::All, JobSamples::View)) };
        let documents = view.map(|view| view.kept().clone());
        let table = match self.made_sequences.iter().find(|made| made.fingerprint == pools) {
            None => {
                let read = || open_sequences(&self.store, &self.manifest, documents.clone(), pools);
                again(&self.requests, read).await?
            }
            Some(made) => SequenceTable::of_memory(made, &self.manifest, documents)
                .map_err(|source| StoreError::Format { url: self.url.to_string(), source: source.into() })?,
        };
        Ok(JobSamples::Sequences(table))
    }

    /// Returns the sizes of the samples that have this fingerprint.
    async fn sizes(&self, sizes: Fingerprint) -> Result<Arc<SizeTable>, StoreError> {
        match self.sizes.iter().find(|known| known.fingerprint() == sizes) {
            Some(known) => Ok(known.clone()),
            None => again(&self.requests, || open_sizes(&self.store, &self.manifest, sizes)).await,
        }
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
}

/// Reads again, with back-off, while the bytes are damaged. What is damaged each time is so where it lies: no other worker could read
/// it either, so the error is final. All other retries are made by the [`StoreClient`].
async fn again<T, F>(requests: &StoreClient, read: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let backoff = requests.backoff();
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
    read().await.map_err(|error| match error {
        StoreError::Format { url, source } => {
            StoreError::Format { url, source: ContentError { is_retryable: false, ..source } }
        }
        error => error,
    })
}
