//! The record indexes of shards: read when they are needed, and kept in memory within a budget.

use std::{ops::Deref, sync::Arc};

use parking_lot::Mutex;
use spdl_feed::cache::{LeastRecentlyUsed, MemoryCache};
use spdl_shard::format::ShardIndex;
use spdl_types::Fingerprint;
use tokio::sync::OnceCell;

use super::{OpenDataset, again};
use crate::fetch::FetchError;

impl OpenDataset {
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

type IndexCell = Arc<OnceCell<Arc<dyn ShardIndex>>>;

/// Caches record indexes by dataset and shard, within a budget.
#[derive(Debug)]
pub(super) struct Indexes {
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

impl Deref for IndexHold {
    type Target = dyn ShardIndex;

    fn deref(&self) -> &(dyn ShardIndex + 'static) {
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
    pub(super) fn new(bytes: u64) -> Self {
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
