//! The records of samples, by name: their shards and keys, which are in the shards' indexes.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};
use spdl_job::Job;
use spdl_shard::{format::ShardIndex, manifest::Manifest, store::DatasetStore};
use spdl_store::StoreError;

/// Maximum bytes of the indexes that are kept: consecutive samples come from few shards.
const MAX_KEPT_BYTES: u64 = 256 << 20;

/// The name of a sample's record, as columns have it in `__shard__` and `__key__`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordName {
    pub(crate) shard: String,
    pub(crate) key: String,
}

/// Finds the records of a dataset's samples.
pub(crate) struct RecordNames {
    store: DatasetStore,
    manifest: Manifest,
    indexes: HashMap<u32, Arc<dyn ShardIndex>>,
    kept_bytes: u64,
}

impl RecordNames {
    /// Opens the dataset of a job.
    pub(crate) async fn open(job: &Job) -> Result<Self, StoreError> {
        let store = DatasetStore::open(&job.dataset)?;
        let manifest = store.manifest().await?;
        Ok(Self { store, manifest, indexes: HashMap::new(), kept_bytes: 0 })
    }

    /// Returns the name of the record that has sample `id`.
    ///
    /// # Panics
    /// If the dataset has no such sample.
    pub(crate) async fn of(&mut self, id: u64) -> Result<RecordName, StoreError> {
        let block = self.manifest.block_of(id).expect("a sample of the dataset");
        let number = self.manifest.block(block).shard;
        let shard = self.manifest.shard(number);
        let index = match self.indexes.get(&number) {
            Some(index) => index.clone(),
            None => {
                let index = self.store.index(&shard).await?;
                self.kept_bytes += shard.index_bytes;
                if self.kept_bytes > MAX_KEPT_BYTES {
                    self.indexes.clear();
                    self.kept_bytes = shard.index_bytes;
                }
                self.indexes.insert(number, index.clone());
                index
            }
        };
        let in_shard = u32::try_from(id - shard.first_sample).expect("a shard has at most 2^32 samples");
        let (record, _) = index.locate(in_shard);
        Ok(RecordName { shard: shard.url.to_owned(), key: index.record(record).key.text().into_owned() })
    }
}
