//! The sequences of a job on an open dataset: which pieces of documents each has.

use std::{collections::VecDeque, fmt, sync::Arc};

use parking_lot::Mutex;
use spdl_job::{Job, Sequence};
use spdl_order::{Located, view::SampleSet};
use spdl_sequence::{Piece, PoolEpoch, PoolLayout, Pools};
use spdl_shard::{
    manifest::Manifest,
    sequences::{PoolDocuments, SequenceTable},
    store::DatasetStore,
};
use spdl_store::StoreError;
use spdl_types::{Position, SampleId};
use tokio::sync::OnceCell;

use super::again;
use crate::{feed::FeedError, fetch::StoreClient};

/// Number of pools whose places are kept for each lane: while a lane passes from one to the next, it uses two.
const POOLS_PER_LANE: usize = 4;
/// The least number of pools that are kept.
const MIN_KEPT_POOLS: usize = 64;

/// The sequences of a job. Ranks and their epochs share the layouts of pools that are in use.
pub(crate) struct DatasetSequences {
    table: SequenceTable,
    sequence: Sequence,
    seed: u64,
    view: Option<Arc<SampleSet>>,
    /// The folder of the manifest, where the lengths of documents are read.
    store: DatasetStore,
    requests: Arc<StoreClient>,
    /// The pools that were used last, the latest first.
    pools: Mutex<VecDeque<(PoolKey, PoolCell)>>,
    kept_pools: usize,
}

/// Epoch and number of a pool.
type PoolKey = (u64, u32);
type PoolCell = Arc<OnceCell<Arc<PoolEpoch>>>;

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
}

impl DatasetSequences {
    pub(super) fn new(
        job: &Job,
        sequence: Sequence,
        table: SequenceTable,
        view: Option<Arc<SampleSet>>,
        (store, requests): (DatasetStore, Arc<StoreClient>),
    ) -> Self {
        let kept_pools = (job.order.lanes as usize).saturating_mul(POOLS_PER_LANE).max(MIN_KEPT_POOLS);
        Self { table, sequence, seed: job.seed, view, store, requests, pools: Mutex::default(), kept_pools }
    }

    /// Returns the pools: the blocks of the plan are pools.
    pub(crate) const fn pools(&self) -> &Arc<Pools> {
        self.table.pools()
    }

    /// Returns the numbers of the dataset's blocks that hold documents of a pool.
    pub(crate) fn blocks<'m>(&'m self, pool: u32, manifest: &'m Manifest) -> impl Iterator<Item = u32> + 'm {
        let is_kept = |number: &u32| {
            let Some(set) = &self.view else { return true };
            let block = manifest.block(*number);
            let [start, end] = [block.first_sample, block.first_sample + u64::from(block.samples)].map(SampleId);
            set.below(end) > set.below(start)
        };
        self.pools().blocks(pool).into_iter().flatten().filter(is_kept)
    }

    /// Returns the sample that is document number `document` of a pool.
    pub(crate) fn document(&self, pool: u32, document: u32) -> SampleId {
        let number = self.table.documents(pool).start + u64::from(document);
        self.view.as_ref().map_or(SampleId(number), |set| set.select(number))
    }

    /// Finds the pieces of a sequence: sample `located` of the plan, at this position.
    ///
    /// # Errors
    /// If the lengths of its pool's documents cannot be read, or are not those that were packed.
    pub(crate) async fn pieces(&self, job: &Job, at: Position, located: Located) -> Result<SequencePieces, FeedError> {
        let pool = self
            .pool(at.epoch, located.block)
            .await
            .map_err(|source| FeedError::Dataset { url: job.dataset.clone(), source: Arc::new(source) })?;
        let mut found = SequencePieces { pool: located.block, ..SequencePieces::default() };
        found.next = pool.pieces(located.index, &mut found.pieces);
        Ok(found)
    }

    async fn pool(&self, epoch: u64, pool: u32) -> Result<Arc<PoolEpoch>, StoreError> {
        let cell = self.cell((epoch, pool));
        let opened = cell.get_or_try_init(|| async {
            let layout = match self.layout_of(pool) {
                Some(layout) => layout,
                None => self.lay_out(pool).await?,
            };
            Ok(Arc::new(PoolEpoch::new(layout, self.seed, epoch, pool)))
        });
        opened.await.cloned()
    }

    async fn lay_out(&self, pool: u32) -> Result<Arc<PoolLayout>, StoreError> {
        let PoolDocuments { lengths, .. } = again(&self.requests, || self.table.read_pool(&self.store, pool)).await?;
        let (params, sequences) = (self.sequence.params(), self.pools().sequences()[pool as usize]);
        let layout = spdl_store::blocking(move || PoolLayout::new(&params, lengths)).await;
        let problem = match layout {
            Ok(layout) if layout.sequences() == sequences => return Ok(Arc::new(layout)),
            Ok(layout) => format!("pool {pool} fills {} sequences, and its table has {sequences}", layout.sequences()),
            Err(error) => error.to_string(),
        };
        Err(StoreError::Changed { url: self.store.url().to_owned(), problem })
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
    fn layout_of(&self, pool: u32) -> Option<Arc<PoolLayout>> {
        let pools = self.pools.lock();
        pools.iter().filter(|((_, other), _)| *other == pool).find_map(|(_, cell)| Some(cell.get()?.layout().clone()))
    }
}
