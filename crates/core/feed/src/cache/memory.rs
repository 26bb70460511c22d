//! The bookkeeping of a cache with a byte budget: its entries and their holds. It does no I/O. An [`Eviction`] policy
//! chooses the entries to evict.

use std::collections::BTreeMap;

use super::{
    BlockKey,
    eviction::{Demand, Eviction, FirstCome, IdleValue},
};
use spdl_types::{
    Fingerprint,
    mutations::{Mutation, mutated},
};

/// A cache of values of known size, by key. Values with holds stay; of the others the policy `E` evicts. `used_bytes`
/// exceeds `budget_bytes` only if the budget shrinks below the values with holds.
#[derive(Debug)]
pub struct MemoryCache<K, V, E> {
    budget_bytes: u64,
    used_bytes: u64,
    next: u64,
    current: BTreeMap<K, u64>,
    entries: BTreeMap<u64, CachedValue<K, V>>,
    eviction: E,
}

#[derive(Debug)]
struct CachedValue<K, V> {
    key: K,
    value: V,
    bytes: u64,
    holds: u32,
}

/// The state of an entry after a hold on it was released.
#[derive(Debug, PartialEq, Eq)]
pub enum Released {
    /// The entry has other holds, or is gone because it was retired or evicted.
    Nothing,
    /// The entry has no holds; it stays until its room is needed.
    Idle,
}

impl<K: Copy + Ord, V, E: Eviction<K>> MemoryCache<K, V, E> {
    /// Creates an empty cache.
    #[must_use]
    pub fn new(budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            used_bytes: 0,
            next: 0,
            current: BTreeMap::new(),
            entries: BTreeMap::new(),
            eviction: E::default(),
        }
    }

    /// Returns the value of `key` and adds a hold, if the key is present.
    pub fn hold(&mut self, key: &K) -> Option<(u64, &V)> {
        let id = *self.current.get(key)?;
        let entry = self.entries.get_mut(&id).expect("a current entry exists");
        if entry.holds == 0 && !mutated(Mutation::EvictHeld) {
            self.eviction.remove(&entry.idle(id));
        }
        entry.holds += 1;
        Some((id, &entry.value))
    }

    /// Adds a value with one hold, and evicts others as needed. `None` if the values with holds leave no room.
    ///
    /// # Panics
    ///
    /// If the key is there already.
    pub fn insert(&mut self, key: K, bytes: u64, value: V) -> Option<u64> {
        assert!(!self.current.contains_key(&key), "the key is there already");
        if !self.make_room(bytes) {
            return None;
        }
        self.next += 1;
        let id = self.next;
        self.used_bytes += bytes;
        self.current.insert(key, id);
        self.entries.insert(id, CachedValue { key, value, bytes, holds: 1 });
        Some(id)
    }

    /// Releases one hold.
    ///
    /// # Panics
    ///
    /// If the value has none.
    pub fn release(&mut self, id: u64) -> Released {
        let entry = self.entries.get_mut(&id).expect("a held entry exists");
        assert!(entry.holds > 0, "released more often than held");
        entry.holds -= 1;
        if entry.holds > 0 {
            return Released::Nothing;
        }
        let idle = entry.idle(id);
        if self.current.get(&idle.key) != Some(&id) {
            self.drop_entry(id);
            return Released::Nothing;
        }
        self.eviction.add(idle);
        self.trim();
        if self.entries.contains_key(&id) { Released::Idle } else { Released::Nothing }
    }

    /// Sets the size of a value that was added with size 0, and evicts others as needed. Returns `false` if the values
    /// with holds leave no room, or if the value is gone.
    pub fn reserve(&mut self, id: u64, bytes: u64) -> bool {
        if !self.entries.contains_key(&id) || !self.make_room(bytes) {
            return false;
        }
        let entry = self.entries.get_mut(&id).expect("a value with holds makes no room");
        assert!(entry.holds > 0 && entry.bytes == 0, "{} holds, {} bytes", entry.holds, entry.bytes);
        entry.bytes = bytes;
        self.used_bytes += bytes;
        true
    }

    /// Lowers the size of a value that takes less than was expected when it was added.
    pub fn shrink(&mut self, id: u64, bytes: u64) {
        if let Some(entry) = self.entries.get_mut(&id)
            && bytes < entry.bytes
        {
            if entry.holds == 0 {
                self.eviction.remove(&entry.idle(id));
            }
            self.used_bytes -= entry.bytes - bytes;
            entry.bytes = bytes;
            if entry.holds == 0 {
                self.eviction.add(entry.idle(id));
            }
        }
    }

    /// Makes `key` unknown. Existing holds keep the value.
    pub fn retire(&mut self, key: &K) {
        if let Some(id) = self.current.remove(key) {
            let entry = &self.entries[&id];
            if entry.holds == 0 {
                self.eviction.remove(&entry.idle(id));
                self.drop_entry(id);
            }
        }
    }

    /// Does the same as [`Self::retire`], but only if `id` is the current entry of the key.
    pub fn retire_entry(&mut self, key: &K, id: u64) {
        if self.current.get(key) == Some(&id) {
            self.retire(key);
        }
    }

    /// Changes the budget, and evicts what exceeds it.
    pub fn set_budget(&mut self, budget_bytes: u64) {
        self.budget_bytes = budget_bytes;
        self.trim();
    }

    /// Returns the total size of the values for which `is_meant` is true, without the retired ones.
    pub fn bytes_of(&self, is_meant: impl Fn(&V) -> bool) -> u64 {
        let current = self.current.values().map(|id| &self.entries[id]);
        current.filter(|entry| is_meant(&entry.value)).map(|entry| entry.bytes).sum()
    }

    /// Returns the budget.
    #[must_use]
    pub const fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Returns the bytes of all values, those that were retired and have holds included.
    #[must_use]
    pub const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn make_room(&mut self, bytes: u64) -> bool {
        let idle_bytes = self.eviction.idle_bytes(Demand::NewValue);
        if self.used_bytes - idle_bytes + bytes > self.budget_bytes {
            return false;
        }
        while self.used_bytes + bytes > self.budget_bytes && !mutated(Mutation::ExceedCache) {
            assert!(self.evict(Demand::NewValue), "{idle_bytes} bytes may make room");
        }
        true
    }

    fn trim(&mut self) {
        while self.used_bytes > self.budget_bytes && self.evict(Demand::SmallerBudget) {}
    }

    /// Evicts one value; `false` if none may be.
    fn evict(&mut self, demand: Demand) -> bool {
        let Some(id) = self.eviction.take_first(demand) else { return false };
        let key = self.entries[&id].key;
        self.current.remove(&key);
        if mutated(Mutation::ServeEvicted) && demand == Demand::NewValue {
            // The key leads to the value that takes the room.
            self.current.insert(key, self.next + 1);
        }
        self.drop_entry(id);
        true
    }

    fn drop_entry(&mut self, id: u64) {
        let entry = self.entries.remove(&id).expect("an entry that is dropped exists");
        self.used_bytes -= entry.bytes;
    }
}

/// What the blocks in memory are used for.
impl<V> MemoryCache<BlockKey, V, FirstCome> {
    /// Notes that one more rank reads a dataset.
    pub fn enter(&mut self, dataset: Fingerprint) {
        self.eviction.enter(dataset);
    }

    /// Notes that a rank does not read a dataset any more.
    pub fn leave(&mut self, dataset: Fingerprint) {
        self.eviction.leave(dataset);
    }

    /// Notes that a plan uses a block soon, whether it is here or not.
    pub fn plan(&mut self, key: BlockKey) {
        self.eviction.plan(key);
    }

    /// Notes that a plan does not use a block soon any more.
    pub fn unplan(&mut self, key: BlockKey) {
        let idle = self.current.get(&key).map(|id| (id, &self.entries[id]));
        let idle = idle.filter(|(_, entry)| entry.holds == 0).map(|(id, entry)| entry.idle(*id));
        self.eviction.unplan(key, idle);
    }

    /// Returns the bytes of blocks in use, or soon in use by a plan.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        self.used_bytes - self.eviction.kept_bytes()
    }
}

impl<K: Copy, V> CachedValue<K, V> {
    const fn idle(&self, id: u64) -> IdleValue<K> {
        IdleValue { id, key: self.key, bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::eviction::LeastRecentlyUsed;
    use proptest::prelude::*;

    const fn block(dataset: u8, block: u32) -> BlockKey {
        BlockKey { dataset: Fingerprint(dataset as u128), block }
    }

    /// Adds blocks of 10 bytes and uses each once.
    fn fill(cache: &mut MemoryCache<BlockKey, (), FirstCome>, keys: impl IntoIterator<Item = BlockKey>) {
        for key in keys {
            if let Some(id) = cache.hold(&key).map(|(id, _)| id).or_else(|| cache.insert(key, 10, ())) {
                cache.release(id);
            }
        }
    }

    fn kept(cache: &MemoryCache<BlockKey, (), FirstCome>, dataset: u8) -> Vec<u32> {
        let keys = cache.current.keys().filter(|key| key.dataset == block(dataset, 0).dataset);
        let mut kept: Vec<u32> = keys.map(|key| key.block).collect();
        kept.sort_unstable();
        kept
    }

    #[test]
    fn the_least_recently_used_goes_first_and_what_is_held_stays() {
        let mut cache = MemoryCache::<_, _, LeastRecentlyUsed>::new(30);
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
        let mut cache = MemoryCache::<_, _, LeastRecentlyUsed>::new(10);
        let id = cache.insert(1, 10, "wrong").unwrap();
        cache.retire(&1);
        assert!(cache.hold(&1).is_none());
        assert!(cache.insert(1, 10, "right").is_none(), "the old bytes are still in memory");
        cache.release(id);
        assert!(cache.insert(1, 10, "right").is_some());
    }

    #[test]
    fn what_came_first_stays_from_epoch_to_epoch_and_what_came_last_goes_with_the_room() {
        let mut cache = MemoryCache::new(60);
        cache.enter(block(0, 0).dataset);
        for epoch in 0..5 {
            fill(&mut cache, (0..20).map(|number| block(0, (number * (2 * epoch + 1) + epoch) % 20)));
            assert_eq!(kept(&cache, 0)[..5], [0, 1, 2, 3, 4], "in epoch {epoch}");
        }
        cache.set_budget(30);
        assert_eq!(kept(&cache, 0), [0, 1, 2]);
        assert_eq!(cache.used_bytes(), 30);
    }

    #[test]
    fn a_block_that_a_plan_uses_soon_makes_no_room_unless_the_budget_shrinks() {
        let mut cache = MemoryCache::new(30);
        cache.enter(block(0, 0).dataset);
        cache.plan(block(0, 2));
        cache.plan(block(0, 2));
        fill(&mut cache, [0, 1, 2, 3].map(|number| block(0, number)));
        assert_eq!(kept(&cache, 0), [0, 2, 3], "1 made room");
        assert_eq!(cache.window_bytes(), 10);
        let holds = [4, 5].map(|number| cache.insert(block(0, number), 10, ()));
        assert!(holds.iter().all(Option::is_some) && cache.insert(block(0, 6), 10, ()).is_none());
        assert_eq!(kept(&cache, 0), [2, 4, 5]);
        cache.unplan(block(0, 2));
        assert!(cache.insert(block(0, 6), 10, ()).is_none(), "another rank uses it");
        cache.set_budget(20);
        assert_eq!(kept(&cache, 0), [4, 5], "the budget is a limit for plans, too");
        cache.unplan(block(0, 2));
        for hold in holds.into_iter().flatten() {
            cache.release(hold);
        }
        fill(&mut cache, [block(0, 7)]);
        assert_eq!(kept(&cache, 0), [4, 7], "a block that no plan uses makes room");
    }

    #[test]
    fn a_block_that_a_plan_is_done_with_is_one_of_those_that_may_go() {
        let mut cache = MemoryCache::new(30);
        cache.enter(block(0, 0).dataset);
        cache.plan(block(0, 1));
        fill(&mut cache, [0, 1, 2].map(|number| block(0, number)));
        cache.unplan(block(0, 1));
        assert_eq!(cache.window_bytes(), 0);
        fill(&mut cache, [3, 4, 5].map(|number| block(0, number)));
        assert_eq!(kept(&cache, 0), [0, 1, 5]);
    }

    #[test]
    fn datasets_in_use_share_the_room_and_one_that_nobody_reads_any_more_gives_its_own() {
        let mut cache = MemoryCache::new(100);
        let read = |cache: &mut MemoryCache<_, _, _>, dataset, blocks| {
            fill(cache, (0..blocks).map(|number| block(dataset, number)));
        };
        cache.enter(block(0, 0).dataset);
        read(&mut cache, 0, 30);
        assert_eq!(kept(&cache, 0).len(), 10);
        cache.enter(block(1, 0).dataset);
        read(&mut cache, 1, 30);
        let shares = [0, 1].map(|dataset| kept(&cache, dataset).len());
        assert!(shares.iter().all(|blocks| (4..=6).contains(blocks)), "{shares:?}");
        cache.enter(block(2, 0).dataset);
        for _ in 0..3 {
            (0..3).for_each(|dataset| read(&mut cache, dataset, if dataset == 2 { 2 } else { 30 }));
        }
        assert_eq!(kept(&cache, 2), [0, 1], "all that it has");
        cache.leave(block(0, 0).dataset);
        cache.leave(block(2, 0).dataset);
        read(&mut cache, 1, 30);
        assert_eq!([0, 1, 2].map(|dataset| kept(&cache, dataset).len()), [0, 10, 0]);
        cache.leave(block(1, 0).dataset);
        assert!(cache.hold(&block(1, 0)).is_some(), "nobody needs the room");
    }

    /// Returns a key of one of two datasets.
    fn any_block(number: u32) -> BlockKey {
        block((number % 2) as u8, number)
    }

    proptest! {
        #[test]
        fn the_budget_is_never_exceeded_and_no_byte_is_lost(
            steps in proptest::collection::vec((0u8..9, 0u32..12, 1u64..40), 1..300),
        ) {
            let mut cache = MemoryCache::new(100);
            let mut held: Vec<u64> = Vec::new();
            let (mut plans, mut readers) = (Vec::new(), Vec::new());
            for (step, number, bytes) in steps {
                let key = any_block(number);
                match step {
                    0 | 1 => match cache.hold(&key).map(|(id, _)| id) {
                        Some(id) => held.push(id),
                        None if bytes % 2 == 0 => held.extend(cache.insert(key, bytes, ())),
                        None => {
                            let id = cache.insert(key, 0, ()).unwrap();
                            let has_room = cache.used_bytes() + bytes <= 100;
                            prop_assert!(cache.reserve(id, bytes) || !has_room);
                            held.push(id);
                        }
                    },
                    2 if !held.is_empty() => {
                        cache.release(held.swap_remove(number as usize % held.len()));
                    }
                    3 if !held.is_empty() => cache.shrink(held[number as usize % held.len()], bytes),
                    4 => {
                        cache.plan(key);
                        plans.push(key);
                    }
                    5 if !plans.is_empty() => cache.unplan(plans.swap_remove(number as usize % plans.len())),
                    6 => {
                        cache.enter(key.dataset);
                        readers.push(key.dataset);
                    }
                    7 if !readers.is_empty() => cache.leave(readers.swap_remove(number as usize % readers.len())),
                    _ => cache.retire(&key),
                }
                prop_assert!(cache.used_bytes() <= 100 && cache.window_bytes() <= cache.used_bytes());
            }
            for id in held.drain(..) {
                cache.release(id);
            }
            plans.drain(..).for_each(|key| cache.unplan(key));
            readers.drain(..).for_each(|dataset| cache.leave(dataset));
            prop_assert_eq!(cache.window_bytes(), 0);
            (0..12).for_each(|number| cache.retire(&any_block(number)));
            prop_assert_eq!(cache.used_bytes(), 0);
            prop_assert!(cache.entries.is_empty() && cache.eviction.is_empty());
        }
    }
}
