//! Finds the documents of a job's sequences, in each of its datasets.

use std::{collections::HashMap, sync::Arc};

use spdl_job::Job;
use spdl_order::{Item, Located};
use spdl_sequence::{Piece, PoolEpoch, SequenceParams};
use spdl_shard::{sequences::SequenceTable, store::DatasetStore};
use spdl_store::StoreError;
use spdl_types::SampleId;

use crate::datasets::{EvaluatedDataset, EvaluatedDatasets};

/// Finds the documents of a job's sequences.
pub(crate) struct PackedDocuments {
    datasets: Vec<PackedDataset>,
    params: SequenceParams,
    /// The pools that were used last, by their epochs and numbers.
    pools: HashMap<(u64, u32), PoolEpoch>,
    /// Number of pools that are kept.
    kept_pools: usize,
}

/// A dataset of a job that is packed, with the numbers that its first pool and its first document have in the job.
struct PackedDataset {
    table: SequenceTable,
    /// The folder of the manifest.
    store: DatasetStore,
    seed: u64,
    first_pool: u32,
    first_document: u64,
}

impl PackedDocuments {
    /// Returns what finds the documents of `job` in its datasets; `None` if its samples are no sequences.
    pub(crate) fn new(job: &Job, datasets: &EvaluatedDatasets) -> Option<Self> {
        let params = job.sequence.as_ref()?.params();
        let (mut packed, mut first_pool, mut first_document) = (Vec::new(), 0, 0);
        for (number, EvaluatedDataset { store, manifest, evaluated }) in datasets.iter().enumerate() {
            let (table, store) = (evaluated.samples.sequences()?.clone(), store.clone());
            let pools = table.pools().sequences().len() as u32;
            packed.push(PackedDataset { table, store, seed: job.dataset_seed(number), first_pool, first_document });
            first_pool += pools;
            first_document += manifest.samples();
        }
        let kept_pools = 2 * job.all_lanes() as usize;
        Some(Self { datasets: packed, params, pools: HashMap::new(), kept_pools })
    }

    /// Returns the number of the dataset that the sequences of a block are of.
    pub(crate) fn dataset_of(&self, block: u32) -> usize {
        self.datasets.partition_point(|dataset| dataset.first_pool <= block) - 1
    }

    /// Returns the documents of a sequence, as samples of the job's datasets, and what it has of each, in the order of their places. `epoch` is
    /// that of its own source.
    ///
    /// # Errors
    /// If the lengths of documents cannot be read, or are not those that were packed.
    pub(crate) async fn of(
        &mut self,
        epoch: u64,
        Located { block, index, .. }: Located,
    ) -> Result<Vec<(SampleId, Piece)>, StoreError> {
        let PackedDataset { table, store, seed, first_pool, first_document } = &self.datasets[self.dataset_of(block)];
        let pool = block - first_pool;
        if !self.pools.contains_key(&(epoch, block)) {
            let (layout, _) = table.layout(store, self.params, pool).await?;
            if self.pools.len() >= self.kept_pools {
                self.pools.clear();
            }
            self.pools.insert((epoch, block), PoolEpoch::new(Arc::new(layout), *seed, epoch, pool));
        }
        let mut pieces = Vec::new();
        self.pools[&(epoch, block)].pieces(index, &mut pieces);
        let document = |piece: &Piece| SampleId(first_document + table.document(pool, piece.document).0);
        Ok(pieces.into_iter().map(|piece| (document(&piece), piece)).collect())
    }

    /// Returns what a sequence of a batch has of each of its documents, in the order of their places.
    ///
    /// # Errors
    /// As those of [`of`](Self::of).
    pub(crate) async fn pieces(&mut self, item: &Item) -> Result<Vec<Piece>, StoreError> {
        let found = self.of(item.source_epoch, item.located).await?;
        Ok(found.into_iter().map(|(_, piece)| piece).collect())
    }
}
