//! The record indexes of shards: read when they are needed, and kept in memory within a budget.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

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

type LazyIndex = OnceCell<Arc<dyn ShardIndex>>;
type IndexCell = Arc<LazyIndex>;
type IndexKey = (Fingerprint, u32);

/// Caches record indexes by dataset and shard, within a budget.
#[derive(Debug)]
pub(super) struct Indexes {
    cache: Mutex<MemoryCache<IndexKey, IndexCell, LeastRecentlyUsed>>,
    /// Those that the cache has no room for, while they are in use: who needs one meanwhile has the same.
    beside: Mutex<HashMap<IndexKey, Weak<LazyIndex>>>,
    has_warned: AtomicBool,
}

/// Keeps a record index in memory while it is in use.
#[derive(Debug)]
pub(crate) struct IndexHold {
    indexes: Arc<Indexes>,
    /// The number of the cache entry; `None` if the cache had no room, so that this index is gone after this use.
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
        Self {
            cache: Mutex::new(MemoryCache::new(bytes)),
            beside: Mutex::default(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Gives up a quarter of the budget. Returns its bytes.
    pub(super) fn give_quarter(&self) -> u64 {
        let mut cache = self.cache.lock();
        let bytes = cache.budget_bytes();
        cache.set_budget(bytes - bytes / 4);
        bytes / 4
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
        let facts = dataset.manifest.shard(shard);
        let mut beside = self.beside.lock();
        let shared = beside.get(&key).and_then(Weak::upgrade);
        let cell = shared.unwrap_or_default();
        let id = cache.insert(key, facts.index_bytes, cell.clone());
        beside.retain(|_, index| index.strong_count() > 0);
        if id.is_none() {
            beside.insert(key, Arc::downgrade(&cell));
            if !self.has_warned.swap(true, Relaxed) {
                let (index_bytes, room_bytes) = (facts.index_bytes, cache.budget_bytes());
                tracing::warn!(
                    shard = facts.url,
                    index_bytes,
                    room_bytes,
                    "there is no room for an index, so it is read again for each use: raise the worker's memory, of which a sixteenth is for indexes"
                );
            }
        }
        (id, cell)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use crate::feed::tests::{
        fixture::{FeedFixture, resources},
        flaky,
    };

    #[tokio::test]
    async fn an_index_without_room_is_shared_while_it_is_in_use() {
        let fixture = FeedFixture::new(&[], "global_batch = 4");
        let (store, wrap) = flaky();
        let resources = resources(1 << 30, Some(wrap));
        let datasets = resources.datasets.open(&fixture.job).await.unwrap();
        let dataset = datasets.first();
        dataset.indexes.cache.lock().set_budget(1);
        let reads = || store.lock().as_ref().unwrap().reads();
        let before = reads();
        let (one, other) = futures::future::join(dataset.index(0), dataset.index(0)).await;
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(ptr::addr_eq(&raw const *one, &raw const *other) && one.id.is_none());
        drop(one);
        assert_eq!(dataset.index(0).await.unwrap().record_count(), other.record_count());
        let once = reads() - before;
        drop(other);
        drop(dataset.index(0).await.unwrap());
        assert_eq!(reads() - before, 2 * once, "nobody had it any more");
    }
}
