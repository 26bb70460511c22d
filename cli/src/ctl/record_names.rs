//! The records of samples, by name: their shards and keys, which are in the shards' indexes.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};
use spdl_job::Job;
use spdl_order::{Plan, PlanError};
use spdl_sequence::Piece;
use spdl_shard::format::ShardIndex;
use spdl_store::StoreError;
use spdl_types::{Position, SampleId};

use super::CtlError;
use crate::{
    datasets::{EvaluatedDataset, EvaluatedDatasets},
    packed_documents::PackedDocuments,
};

/// Maximum bytes of the indexes that are kept: consecutive samples come from few shards.
const MAX_KEPT_BYTES: u64 = 256 << 20;

/// The name of a sample's record, as columns have it in `__shard__` and `__key__`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordName {
    pub(crate) shard: String,
    pub(crate) key: String,
}

/// What a sample consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SampleNames {
    /// Its record.
    Record(RecordName),
    /// The documents of a sequence, in the order of their places.
    Documents(Vec<RecordName>),
}

/// Finds the records of a job's samples.
pub(crate) struct RecordNames {
    datasets: EvaluatedDatasets,
    /// The indexes that were read, by the number of the dataset and the shard.
    indexes: HashMap<(usize, u32), Arc<dyn ShardIndex>>,
    kept_bytes: u64,
    /// The plan and the documents of sequences, if the job has them.
    packed: Option<(Plan, PackedDocuments)>,
    /// The names of the job's sources, if it has several datasets.
    sources: Vec<String>,
}

impl RecordNames {
    /// Finds records in the datasets of a job.
    pub(crate) fn new(job: &Job, datasets: EvaluatedDatasets) -> Result<Self, CtlError> {
        let documents = PackedDocuments::new(job, &datasets);
        let with_plan = documents.map(|documents| Ok((datasets.plan(job)?, documents)));
        let packed = with_plan.transpose().map_err(|error: PlanError| error)?;
        let sources = job.sources.iter().map(|source| source.name.clone()).collect();
        Ok(Self { datasets, indexes: HashMap::new(), kept_bytes: 0, packed, sources })
    }

    /// Returns what sample `id` consists of, which is at this position.
    ///
    /// # Panics
    /// If the job has no such sample.
    pub(crate) async fn of(&mut self, at: Position, id: SampleId) -> Result<SampleNames, CtlError> {
        if self.packed.is_none() {
            return Ok(SampleNames::Record(self.record(id).await?));
        }
        let documents = self.documents(at, id).await?;
        Ok(SampleNames::Documents(documents.into_iter().map(|(name, _)| name).collect()))
    }

    /// Returns the documents of sequence `id`, which is at this position, and what it has of each, in the order of their places.
    ///
    /// # Panics
    /// If the job has no sequences, or no such one.
    pub(crate) async fn documents(&mut self, at: Position, id: SampleId) -> Result<Vec<(RecordName, Piece)>, CtlError> {
        let (plan, documents) = self.packed.as_mut().expect("a job with sequences");
        let pieces = documents.of(plan.source_epoch(at), plan.locate(id)).await?;
        let mut names = Vec::with_capacity(pieces.len());
        for (document, piece) in pieces {
            names.push((self.record(document).await?, piece));
        }
        Ok(names)
    }

    /// Returns the source that sequence `id` is of; `None` for a job of one dataset.
    ///
    /// # Panics
    /// If the job has no sequences, or no such one.
    pub(crate) fn source_of_sequence(&self, id: SampleId) -> Option<&str> {
        let (plan, documents) = self.packed.as_ref().expect("a job with sequences");
        self.sources.get(documents.dataset_of(plan.locate(id).block)).map(String::as_str)
    }

    /// Returns the name of the record that has a sample of the datasets.
    async fn record(&mut self, id: SampleId) -> Result<RecordName, StoreError> {
        let (of, SampleId(id)) = self.datasets.of_sample(id);
        let EvaluatedDataset { store, manifest, .. } = self.datasets.iter().nth(of).expect("it has the sample");
        let block = manifest.block_of(id).expect("a sample of the dataset");
        let number = manifest.block(block).shard;
        let shard = manifest.shard(number);
        let index = match self.indexes.get(&(of, number)) {
            Some(index) => index.clone(),
            None => {
                let index = store.index(&shard).await?;
                self.kept_bytes += shard.index_bytes;
                if self.kept_bytes > MAX_KEPT_BYTES {
                    self.indexes.clear();
                    self.kept_bytes = shard.index_bytes;
                }
                self.indexes.insert((of, number), index.clone());
                index
            }
        };
        let in_shard = u32::try_from(id - shard.first_sample).expect("a shard has at most 2^32 samples");
        let (record, _) = index.locate(in_shard);
        Ok(RecordName { shard: shard.url.to_owned(), key: index.record(record).key.text().into_owned() })
    }
}
