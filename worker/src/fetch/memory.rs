//! The bookkeeping of a cache with a byte budget: its entries, their holds and the order of eviction. It does no I/O.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// A cache of values of known size, by key. Values with holds stay; of the others the least recently used is evicted
/// first. `used_bytes` exceeds `budget_bytes` only if the budget shrinks below the values with holds.
#[derive(Debug)]
pub(crate) struct MemoryCache<K, V> {
    budget_bytes: u64,
    used_bytes: u64,
    next: u64,
    current: HashMap<K, u64>,
    entries: HashMap<u64, CachedBlock<K, V>>,
    /// Entries without holds, by the time of their last use.
    idle: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct CachedBlock<K, V> {
    key: K,
    value: V,
    bytes: u64,
    holds: u32,
    idle_since: u64,
}

/// The state of an entry after a hold on it was released.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The entry has other holds, or is gone because it was retired or evicted.
    Nothing,
    /// The entry has no holds; it stays until its room is needed.
    Idle,
}

impl<K: Copy + Eq + Hash, V> MemoryCache<K, V> {
    pub(crate) fn new(budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            used_bytes: 0,
            next: 0,
            current: HashMap::new(),
            entries: HashMap::new(),
            idle: BTreeMap::new(),
        }
    }

    /// Returns the value of `key` and adds a hold, if the key is present.
    pub(crate) fn hold(&mut self, key: &K) -> Option<(u64, &V)> {
        let id = *self.current.get(key)?;
        let entry = self.entries.get_mut(&id).expect("a current entry exists");
        if entry.holds == 0 {
            self.idle.remove(&entry.idle_since);
        }
        entry.holds += 1;
        Some((id, &entry.value))
    }

    /// Adds a value with one hold, and evicts others as needed. `None` if the values with holds leave no room.
    pub(crate) fn insert(&mut self, key: K, bytes: u64, value: V) -> Option<u64> {
        assert!(!self.current.contains_key(&key), "the key is there already");
        if !self.make_room(bytes) {
            return None;
        }
        let id = self.tick();
        self.used_bytes += bytes;
        self.current.insert(key, id);
        self.entries.insert(id, CachedBlock { key, value, bytes, holds: 1, idle_since: 0 });
        Some(id)
    }

    /// Releases one hold.
    pub(crate) fn release(&mut self, id: u64) -> Released {
        let now = self.tick();
        let entry = self.entries.get_mut(&id).expect("a held entry exists");
        assert!(entry.holds > 0, "released more often than held");
        entry.holds -= 1;
        if entry.holds > 0 {
            return Released::Nothing;
        }
        if self.current.get(&entry.key) != Some(&id) {
            self.drop_entry(id);
            return Released::Nothing;
        }
        entry.idle_since = now;
        self.idle.insert(now, id);
        self.trim();
        if self.entries.contains_key(&id) { Released::Idle } else { Released::Nothing }
    }

    /// Lowers the size of a value that takes less than was expected when it was added.
    pub(crate) fn shrink(&mut self, id: u64, bytes: u64) {
        if let Some(entry) = self.entries.get_mut(&id)
            && bytes < entry.bytes
        {
            self.used_bytes -= entry.bytes - bytes;
            entry.bytes = bytes;
        }
    }

    /// Makes `key` unknown. Existing holds keep the value.
    pub(crate) fn retire(&mut self, key: &K) {
        if let Some(id) = self.current.remove(key) {
            let entry = &self.entries[&id];
            if entry.holds == 0 {
                self.idle.remove(&entry.idle_since);
                self.drop_entry(id);
            }
        }
    }

    /// Does the same as [`Self::retire`], but only if `id` is the current entry of the key.
    pub(crate) fn retire_entry(&mut self, key: &K, id: u64) {
        if self.current.get(key) == Some(&id) {
            self.retire(key);
        }
    }

    pub(crate) fn set_budget(&mut self, budget_bytes: u64) {
        self.budget_bytes = budget_bytes;
        self.trim();
    }

    /// Returns the bytes of the values that `is_meant`, among those that are there for all who ask.
    pub(crate) fn bytes_of(&self, is_meant: impl Fn(&V) -> bool) -> u64 {
        let current = self.current.values().map(|id| &self.entries[id]);
        current.filter(|entry| is_meant(&entry.value)).map(|entry| entry.bytes).sum()
    }

    pub(crate) const fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    pub(crate) const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn make_room(&mut self, bytes: u64) -> bool {
        let idle_bytes: u64 = if self.used_bytes + bytes <= self.budget_bytes {
            return true;
        } else {
            self.idle.values().map(|id| self.entries[id].bytes).sum()
        };
        if self.used_bytes - idle_bytes + bytes > self.budget_bytes {
            return false;
        }
        while self.used_bytes + bytes > self.budget_bytes {
            self.evict_oldest();
        }
        true
    }

    fn trim(&mut self) {
        while self.used_bytes > self.budget_bytes && !self.idle.is_empty() {
            self.evict_oldest();
        }
    }

    fn evict_oldest(&mut self) {
        let (_, id) = self.idle.pop_first().expect("something is idle");
        self.current.remove(&self.entries[&id].key);
        self.drop_entry(id);
    }

    fn drop_entry(&mut self, id: u64) {
        let entry = self.entries.remove(&id).expect("an entry that is dropped exists");
        self.used_bytes -= entry.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_least_recently_used_goes_first_and_what_is_held_stays() {
        let mut cache = MemoryCache::new(30);
        let ids: Vec<u64> = (0..3).map(|key| cache.insert(key, 10, key).unwrap()).collect();
        cache.release(ids[1]);
        cache.release(ids[0]);
        assert!(cache.hold(&1).is_some(), "held again, so it is no candidate");
        let fourth = cache.insert(3, 10, 3).unwrap();
        assert!(cache.hold(&0).is_none(), "the only idle one made room");
        assert!(cache.insert(4, 10, 4).is_none(), "everything is held");
        cache.release(fourth);
        assert!(cache.insert(4, 10, 4).is_some());
    }

    #[test]
    fn a_retired_value_is_found_no_more_and_counts_until_its_holder_is_done() {
        let mut cache = MemoryCache::new(10);
        let id = cache.insert(1, 10, "wrong").unwrap();
        cache.retire(&1);
        assert!(cache.hold(&1).is_none());
        assert!(cache.insert(1, 10, "right").is_none(), "the old bytes are still in memory");
        cache.release(id);
        assert!(cache.insert(1, 10, "right").is_some());
    }

    proptest! {
        #[test]
        fn the_budget_is_never_exceeded_and_no_byte_is_lost(
            steps in proptest::collection::vec((0u8..5, 0u32..12, 1u64..40), 1..200),
        ) {
            let mut cache = MemoryCache::new(100);
            let mut held: Vec<u64> = Vec::new();
            for (step, key, bytes) in steps {
                match step {
                    0 | 1 => match cache.hold(&key).map(|(id, _)| id) {
                        Some(id) => held.push(id),
                        None => held.extend(cache.insert(key, bytes, ())),
                    },
                    2 if !held.is_empty() => {
                        cache.release(held.swap_remove(key as usize % held.len()));
                    }
                    3 if !held.is_empty() => cache.shrink(held[key as usize % held.len()], bytes),
                    _ => cache.retire(&key),
                }
                prop_assert!(cache.used_bytes() <= 100);
            }
            for id in held.drain(..) {
                cache.release(id);
            }
            for key in 0..12 {
                cache.retire(&key);
            }
            prop_assert_eq!(cache.used_bytes(), 0);
            prop_assert!(cache.entries.is_empty() && cache.idle.is_empty());
        }
    }
}
