//! Results that are kept by key: the user's handle of a cache, and the stage's side of it, by which items with one key
//! share one run.

use std::{
    fmt,
    hash::Hash,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError},
};

use lru::LruCache;

use crate::{
    link::Slot,
    sync::{Mutex, MutexGuard},
};

/// Results of an operation by their keys, for [`Op::cached`](crate::Op::cached). Once it is full, the least recently used
/// results make room. Clones share the results, so that pipelines can, one after the other or at once.
pub struct Cache<K, V>(Arc<Mutex<KeptResults<K, V>>>);

struct KeptResults<K, V> {
    /// Each value with its size.
    values: LruCache<K, (V, u64)>,
    size: fn(&V) -> u64,
    limit: u64,
    stats: ResultCacheStats,
}

/// What a [`Cache`] has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResultCacheStats {
    /// Items whose result was in the cache, or was in the making for another item.
    pub hits: u64,
    /// Items that the operation ran for.
    pub misses: u64,
    /// Number of results that are kept.
    pub items: u64,
    /// Their sizes in total, in the unit of the bound: items or bytes.
    pub size: u64,
}

impl<K, V> Clone for Cache<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Hash + Eq, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Cache").field(&self.stats()).finish()
    }
}

impl<K: Hash + Eq, V> Cache<K, V> {
    /// Creates a cache of at most `count` results; 0 keeps none.
    #[must_use]
    pub fn of_items(count: u64) -> Self {
        Self::new(count, |_| 1)
    }

    /// Creates a cache of results of at most `bytes` in total, where `size` returns the bytes of one. A result that is larger
    /// than that is not kept.
    #[must_use]
    pub fn of_bytes(bytes: u64, size: fn(&V) -> u64) -> Self {
        Self::new(bytes, size)
    }

    fn new(limit: u64, size: fn(&V) -> u64) -> Self {
        let values = LruCache::unbounded();
        Self(Arc::new(Mutex::new(KeptResults { values, size, limit, stats: ResultCacheStats::default() })))
    }

    /// Returns what the cache has done and holds.
    #[must_use]
    pub fn stats(&self) -> ResultCacheStats {
        let kept = lock(&self.0);
        ResultCacheStats { items: kept.values.len() as u64, ..kept.stats }
    }

    /// Keeps a value, if there can be room for it.
    fn keep(&self, key: K, value: V) {
        let mut kept = lock(&self.0);
        let size = (kept.size)(&value);
        if size > kept.limit {
            return;
        }
        // What is evicted is dropped without the lock, as that runs code of the user's.
        let mut evicted: Vec<_> = kept.values.push(key, (value, size)).into_iter().collect();
        kept.stats.size += size;
        kept.stats.size -= evicted.iter().map(|(_, (_, size))| size).sum::<u64>();
        while kept.stats.size > kept.limit {
            let (key, (value, size)) = kept.values.pop_lru().expect("values have a size");
            kept.stats.size -= size;
            evicted.push((key, (value, size)));
        }
        drop(kept);
    }
}

/// Locks a mutex under which the user's keys are compared and values are copied, which may panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stage's side of a cache.
pub(crate) trait Memo<T, U>: Send + Sync {
    /// Asks for the result for an item, which is to be placed in `slot`.
    fn ask(&self, item: T, slot: Slot) -> MemoAnswer<T, U>;
    /// Keeps the result of a run. Returns the slots of the items that have waited for it.
    fn succeeded(&self, run: u64, value: &U) -> Vec<Slot>;
    /// Ends a run without a result, unless an item waits for it: it has to run the operation, under the same number.
    fn failed(&self, run: u64) -> Option<(Slot, T)>;
    fn copy(&self, value: &U) -> U;
}

pub(crate) enum MemoAnswer<T, U> {
    /// The result was kept.
    Kept(U),
    /// The operation has to run for the item. The number names the run.
    Run(u64, T),
    /// The operation runs for another item with this key, which will place the result.
    Shared,
}

pub(crate) struct KeyedMemo<F, T, K, V> {
    cache: Cache<K, V>,
    key: F,
    runs: Mutex<Runs<T, K>>,
}

/// The runs of a stage. There are no more than the stage has units, so they are searched one by one.
struct Runs<T, K> {
    next_number: u64,
    running: Vec<Running<T, K>>,
}

struct Running<T, K> {
    number: u64,
    key: K,
    waiting: Vec<(Slot, T)>,
}

impl<F, T, K, V> KeyedMemo<F, T, K, V> {
    pub(crate) fn new(cache: Cache<K, V>, key: F) -> Self {
        Self { cache, key, runs: Mutex::new(Runs { next_number: 0, running: Vec::new() }) }
    }
}

impl<T, K> Runs<T, K> {
    fn at(&self, number: u64) -> usize {
        self.running.iter().position(|run| run.number == number).expect("a run is there until it has ended")
    }
}

impl<F, T, K, U> Memo<T, U> for KeyedMemo<F, T, K, U>
where
    F: Fn(&T) -> K + Send + Sync,
    T: Send,
    K: Hash + Eq + Send,
    U: Clone + Send,
{
    fn ask(&self, item: T, slot: Slot) -> MemoAnswer<T, U> {
        let key = (self.key)(&item);
        let mut runs = lock(&self.runs);
        let mut kept = lock(&self.cache.0);
        if let Some((value, _)) = kept.values.get(&key) {
            let value = value.clone();
            kept.stats.hits += 1;
            return MemoAnswer::Kept(value);
        }
        if let Some(run) = runs.running.iter_mut().find(|run| run.key == key) {
            kept.stats.hits += 1;
            run.waiting.push((slot, item));
            return MemoAnswer::Shared;
        }
        kept.stats.misses += 1;
        let number = runs.next_number;
        runs.next_number += 1;
        runs.running.push(Running { number, key, waiting: Vec::new() });
        MemoAnswer::Run(number, item)
    }

    fn succeeded(&self, run: u64, value: &U) -> Vec<Slot> {
        let copy = catch_unwind(AssertUnwindSafe(|| value.clone()));
        let mut runs = lock(&self.runs);
        let at = runs.at(run);
        let Running { key, waiting, .. } = runs.running.swap_remove(at);
        // If a size or a key panics, the value is left out. The next item with the key finds it kept, or runs the
        // operation again.
        let _ = catch_unwind(AssertUnwindSafe(|| copy.map(|copy| self.cache.keep(key, copy))));
        drop(runs);
        waiting.into_iter().map(|(slot, _)| slot).collect()
    }

    fn failed(&self, run: u64) -> Option<(Slot, T)> {
        let mut runs = lock(&self.runs);
        let at = runs.at(run);
        if runs.running[at].waiting.is_empty() {
            drop(runs.running.swap_remove(at));
            return None;
        }
        let mut kept = lock(&self.cache.0);
        (kept.stats.hits, kept.stats.misses) = (kept.stats.hits - 1, kept.stats.misses + 1);
        Some(runs.running[at].waiting.remove(0))
    }

    fn copy(&self, value: &U) -> U {
        value.clone()
    }
}
