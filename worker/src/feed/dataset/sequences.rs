//! The sequences of a job on an open dataset: which pieces of documents each has.

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
    again,
    global_sequences::KeptGlobalSequences,
    open_pool::{LaidOutPool, LearnedLabels, OpenPool},
};
use crate::{feed::FeedError, fetch::StoreClient};

/// Number of pools whose places are kept for each lane: while a lane passes from one to the next, it uses two.
const POOLS_PER_LANE: usize = 4;
/// The least number of pools that are kept.
const MIN_KEPT_POOLS: usize = 64;

/// The sequences of a job. Ranks and their epochs share the layouts of pools that are in use.
pub(crate) struct DatasetSequences {
    pub(crate) table: SequenceTable,
    pub(super) sequence: Sequence,
    seed: u64,
    /// The folder of the manifest, where the lengths of documents are read.
    store: DatasetStore,
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

/// Epoch and number of a pool.
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
    pub(super) fn new(
        job: &Job,
        sequence: Sequence,
        table: SequenceTable,
        (store, requests): (DatasetStore, Arc<StoreClient>),
    ) -> Self {
        let kept_pools = (job.order.lanes as usize).saturating_mul(POOLS_PER_LANE).max(MIN_KEPT_POOLS);
        let labels = LabelRule::counted(&job.columns).map(LearnedLabels::from);
        let has_global_lengths = job.columns.iter().any(|column| matches!(column.kind, ColumnKind::GlobalLengths(_)));
        let (seed, (pools, global_batches)) = (job.seed, Default::default());
        Self { table, sequence, seed, store, requests, pools, kept_pools, labels, has_global_lengths, global_batches }
    }

    /// Opens the pools of these samples, which are sequences.
    ///
    /// # Errors
    /// If the lengths of a pool's documents cannot be read, or are not those that were packed.
    pub(crate) async fn open(&self, job: &Job, items: &[Item]) -> Result<OpenPools, FeedError> {
        let valid = items.iter().filter(|item| item.kind != ItemKind::Invalid);
        let mut keys: Vec<PoolKey> = valid.map(|item| (item.at.epoch, item.located.block)).collect();
        keys.sort_unstable();
        keys.dedup();
        let pools = try_join_all(keys.iter().map(|(epoch, pool)| self.pool(*epoch, *pool))).await;
        let pools =
            pools.map_err(|source| FeedError::Dataset { url: job.dataset.clone(), source: Arc::new(source) })?;
        Ok(OpenPools(keys.into_iter().zip(pools).collect()))
    }

    /// Finds the pieces of a sample, which is a sequence of one of these pools; none if it is invalid.
    pub(crate) fn pieces(&self, pools: &OpenPools, item: &Item) -> SequencePieces {
        if item.kind == ItemKind::Invalid {
            return SequencePieces { learned: self.labels.map(|_| 0), ..SequencePieces::default() };
        }
        let pool = &pools.0[&(item.at.epoch, item.located.block)];
        let mut found = SequencePieces { pool: item.located.block, ..SequencePieces::default() };
        found.next = pool.pieces(item.located.index, &mut found.pieces);
        let of_sequence = (&found.pieces[..], found.next.as_ref());
        found.learned = self.labels.and_then(|labels| pool.learned((&self.sequence, labels), of_sequence));
        found
    }

    async fn pool(&self, epoch: u64, pool: u32) -> Result<Arc<OpenPool>, StoreError> {
        let cell = self.cell((epoch, pool));
        let opened = cell.get_or_try_init(|| async {
            let laid_out = match self.laid_out(pool) {
                Some(laid_out) => laid_out,
                None => self.lay_out(pool).await?,
            };
            Ok(Arc::new(OpenPool::new(laid_out, self.seed, epoch, pool)))
        });
        opened.await.cloned()
    }

    async fn lay_out(&self, pool: u32) -> Result<LaidOutPool, StoreError> {
        let params = self.sequence.params();
        let (layout, learned) = again(&self.requests, || self.table.layout(&self.store, params, pool)).await?;
        LaidOutPool::new(&params, Arc::new(layout), learned).map_err(|problem| StoreError::Changed {
            url: self.store.url().to_owned(),
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
