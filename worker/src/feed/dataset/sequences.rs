//! The sequences of a job on its open datasets: which pieces of documents each has.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use futures::future::try_join_all;
use parking_lot::Mutex;
use spdl_job::{ColumnKind, Job, LabelRule, Sequence};
use spdl_order::{Item, ItemKind};
use spdl_sequence::Piece;
use spdl_shard::{sequences::SequenceTable, store::DatasetStore};
use spdl_store::StoreError;
use tokio::sync::OnceCell;

use super::{
    OpenDataset, again,
    global_sequences::KeptGlobalSequences,
    open_pool::{LaidOutPool, LearnedLabels, OpenPool},
};
use crate::{
    feed::FeedError,
    fetch::{PlannedBlocks, StoreClient},
};

/// Number of pools whose places are kept for each lane: while a lane passes from one to the next, it uses two.
const POOLS_PER_LANE: usize = 4;
/// The least number of pools that are kept.
const MIN_KEPT_POOLS: usize = 64;

/// The sequences of a job. Ranks and their epochs share the layouts of pools that are in use. Pools are numbered on from source to source.
pub(crate) struct DatasetSequences {
    /// The pools of each dataset, in the order of the sources.
    datasets: Vec<DatasetPools>,
    pub(super) sequence: Sequence,
    requests: Arc<StoreClient>,
    /// The pools that were used last, the latest first.
    pools: Mutex<VecDeque<(PoolKey, PoolCell)>>,
    kept_pools: usize,
    /// What is counted as learned, if the job has labels.
    pub(super) labels: Option<LearnedLabels>,
    /// Whether the job has a column of the lengths of the global batch.
    pub(super) has_global_lengths: bool,
    pub(super) global_batches: KeptGlobalSequences,
}

/// The pools of a dataset, whose documents are packed by themselves.
struct DatasetPools {
    table: SequenceTable,
    /// The number of its first pool in the job.
    first: u32,
    /// Decides which documents share a sequence.
    seed: u64,
    /// The folder of the manifest, where the lengths of documents are read.
    store: DatasetStore,
    /// The URL as it is written in the job.
    url: Arc<str>,
}

/// A pool of one of a job's datasets.
pub(super) struct PoolOfDataset<'s> {
    /// The number of the dataset.
    pub(super) dataset: usize,
    pub(super) table: &'s SequenceTable,
    /// The pool's number in the dataset.
    pub(super) pool: u32,
}

/// Epoch and number of a pool. Of a source it is the source's own epoch.
type PoolKey = (u64, u32);
type PoolCell = Arc<OnceCell<Arc<OpenPool>>>;

/// The pools that some sequences are of.
pub(crate) struct OpenPools(BTreeMap<PoolKey, Arc<OpenPool>>);

impl fmt::Debug for DatasetSequences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatasetSequences").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

/// The pieces of a sequence of a batch.
#[derive(Debug, Default)]
pub(crate) struct SequencePieces {
    /// In the order of their places.
    pub(crate) pieces: Vec<Piece>,
    /// By chunk, the token that follows the last place.
    pub(crate) next: Option<Piece>,
    /// The pool that they are of.
    pub(crate) pool: u32,
    /// The labels that are learned, if the job has labels and it is known.
    pub(crate) learned: Option<u64>,
}

impl DatasetSequences {
    /// Creates the sequences of a job, whose datasets are packed by these tables.
    pub(super) fn new(
        job: &Job,
        sequence: Sequence,
        packed: impl Iterator<Item = (Arc<OpenDataset>, SequenceTable)>,
        requests: Arc<StoreClient>,
    ) -> Self {
        let (mut datasets, mut first) = (Vec::new(), 0);
        for (number, (dataset, table)) in packed.enumerate() {
            let pools = table.pools().sequences().len() as u32;
            let (store, url, seed) = (dataset.store.clone(), dataset.url.clone(), job.dataset_seed(number));
            datasets.push(DatasetPools { table, first, seed, store, url });
            first += pools;
        }
        let kept_pools = (job.all_lanes() as usize).saturating_mul(POOLS_PER_LANE).max(MIN_KEPT_POOLS);
        let labels = LabelRule::counted(&job.columns).map(LearnedLabels::from);
        let has_global_lengths = job.columns.iter().any(|column| matches!(column.kind, ColumnKind::GlobalLengths(_)));
        let (pools, global_batches) = Default::default();
        Self { datasets, sequence, requests, pools, kept_pools, labels, has_global_lengths, global_batches }
    }

    /// Returns the dataset of a pool of the job.
    pub(super) fn of(&self, pool: u32) -> PoolOfDataset<'_> {
        let dataset = self.datasets.partition_point(|dataset| dataset.first <= pool) - 1;
        let DatasetPools { table, first, .. } = &self.datasets[dataset];
        PoolOfDataset { dataset, table, pool: pool - first }
    }

    /// Returns the numbers that the blocks of dataset number `dataset` have in the plan, which are those of its pools.
    pub(super) fn planned_blocks(&self, dataset: usize) -> PlannedBlocks {
        let DatasetPools { table, first, .. } = &self.datasets[dataset];
        PlannedBlocks { pools: Some(table.pools().clone()), first: *first }
    }

    /// Returns the documents of a sequence, on average; of several sources, of that with the most.
    pub(crate) fn mean_documents(&self) -> u64 {
        let of = |dataset: &DatasetPools| dataset.table.fill().documents / dataset.table.fill().sequences.max(1);
        self.datasets.iter().map(of).max().unwrap_or(0)
    }

    /// Opens the pools of these samples, which are sequences.
    ///
    /// # Errors
    /// If the lengths of a pool's documents cannot be read, or are not those that were packed.
    pub(crate) async fn open(&self, items: &[Item]) -> Result<OpenPools, FeedError> {
        let valid = items.iter().filter(|item| item.kind != ItemKind::Invalid);
        let mut keys: Vec<PoolKey> = valid.map(key_of).collect();
        keys.sort_unstable();
        keys.dedup();
        let pools = try_join_all(keys.iter().map(|(epoch, pool)| self.pool(*epoch, *pool))).await?;
        Ok(OpenPools(keys.into_iter().zip(pools).collect()))
    }

    /// Finds the pieces of a sample, which is a sequence of one of these pools; none if it is invalid.
    pub(crate) fn pieces(&self, pools: &OpenPools, item: &Item) -> SequencePieces {
        if item.kind == ItemKind::Invalid {
            return SequencePieces { learned: self.labels.map(|_| 0), ..SequencePieces::default() };
        }
        let pool = &pools.0[&key_of(item)];
        let mut found = SequencePieces { pool: item.located.block, ..SequencePieces::default() };
        found.next = pool.pieces(item.located.index, &mut found.pieces);
        let of_sequence = (&found.pieces[..], found.next.as_ref());
        found.learned = self.labels.and_then(|labels| pool.learned((&self.sequence, labels), of_sequence));
        found
    }

    async fn pool(&self, epoch: u64, number: u32) -> Result<Arc<OpenPool>, FeedError> {
        let cell = self.cell((epoch, number));
        let opened = cell.get_or_try_init(|| async {
            let PoolOfDataset { dataset, pool, .. } = self.of(number);
            let dataset = &self.datasets[dataset];
            let laid_out = match self.laid_out(number) {
                Some(laid_out) => laid_out,
                None => self
                    .lay_out(dataset, pool)
                    .await
                    .map_err(|source| FeedError::Dataset { url: dataset.url.to_string(), source: Arc::new(source) })?,
            };
            Ok(Arc::new(OpenPool::new(laid_out, dataset.seed, epoch, pool)))
        });
        opened.await.cloned()
    }

    async fn lay_out(
        &self,
        DatasetPools { table, store, .. }: &DatasetPools,
        pool: u32,
    ) -> Result<LaidOutPool, StoreError> {
        let params = self.sequence.params();
        let (layout, learned) = again(&self.requests, || table.layout(store, params, pool)).await?;
        LaidOutPool::new(&params, Arc::new(layout), learned).map_err(|problem| StoreError::Changed {
            url: store.url().to_owned(),
            problem: format!("pool {pool}: {problem}"),
        })
    }

    fn cell(&self, key: PoolKey) -> PoolCell {
        let mut pools = self.pools.lock();
        if let Some(known) = pools.iter().position(|(other, _)| *other == key) {
            let pool = pools.remove(known).expect("it was found");
            pools.push_front(pool);
        } else {
            pools.truncate(self.kept_pools - 1);
            pools.push_front((key, PoolCell::default()));
        }
        pools[0].1.clone()
    }

    /// Returns the layout of a pool, if it is in use in another epoch.
    fn laid_out(&self, pool: u32) -> Option<LaidOutPool> {
        let pools = self.pools.lock();
        pools.iter().filter(|((_, other), _)| *other == pool).find_map(|(_, cell)| Some(cell.get()?.pool.clone()))
    }
}

/// Returns the epoch and the number of the pool that has a sequence.
const fn key_of(item: &Item) -> PoolKey {
    (item.source_epoch, item.located.block)
}
