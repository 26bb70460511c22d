//! The eviction policies of the memory caches: which value without holds is evicted first.

use std::{collections::BTreeMap, fmt};

use super::BlockKey;
use spdl_types::Fingerprint;

/// A value of a cache that has no holds. Numbers are given in the order in which values came into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleValue<K> {
    /// Its number.
    pub id: u64,
    /// Its key.
    pub key: K,
    /// Its size.
    pub bytes: u64,
}

/// Why room is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Room for a new value, which the caller can do without.
    NewValue,
    /// The budget has shrunk.
    SmallerBudget,
}

/// A policy of eviction. It knows the values without holds: call [`add`](Self::add) when the last hold of a value is
/// released, and [`remove`](Self::remove) when it is held again or dropped for another reason.
pub trait Eviction<K>: fmt::Debug + Default {
    /// Adds a value that lost its last hold.
    fn add(&mut self, value: IdleValue<K>);

    /// Removes a value that was added.
    fn remove(&mut self, value: &IdleValue<K>);

    /// Returns the bytes that may be evicted for this demand.
    fn idle_bytes(&self, demand: Demand) -> u64;

    /// Removes the value that is evicted first, and returns its number; `None` if none may be evicted.
    fn take_first(&mut self, demand: Demand) -> Option<u64>;
}

/// Evicts the least recently used value first. For values that are used again and again, such as indexes.
#[derive(Debug, Default)]
pub struct LeastRecentlyUsed {
    uses: u64,
    bytes: u64,
    /// The values by the time of their last use.
    by_use: BTreeMap<u64, (u64, u64)>,
    used_at: BTreeMap<u64, u64>,
}

impl<K> Eviction<K> for LeastRecentlyUsed {
    fn add(&mut self, value: IdleValue<K>) {
        self.uses += 1;
        self.bytes += value.bytes;
        self.by_use.insert(self.uses, (value.id, value.bytes));
        self.used_at.insert(value.id, self.uses);
    }

    fn remove(&mut self, value: &IdleValue<K>) {
        let at = self.used_at.remove(&value.id).expect("an idle value was added");
        self.by_use.remove(&at);
        self.bytes -= value.bytes;
    }

    fn idle_bytes(&self, _: Demand) -> u64 {
        self.bytes
    }

    fn take_first(&mut self, _: Demand) -> Option<u64> {
        let (_, (id, bytes)) = self.by_use.pop_first()?;
        self.used_at.remove(&id);
        self.bytes -= bytes;
        Some(id)
    }
}

/// Keeps the first blocks of a dataset: evicts the block that came last. Blocks that a plan uses soon are not evicted
/// for new values.
///
/// Where each block is used once an epoch, no policy saves more reads from the store: a block that hits was in the
/// cache when the epoch began, so an epoch has at most as many hits as the cache has room for blocks. Evicting the
/// least recently used block would be wrong, as that block is the next to be used. Belady's policy, which knows the
/// order of the next epoch, has as many hits, but all of them at the beginning of an epoch.
///
/// Evicts blocks of unused datasets first, beginning with the dataset that has been unused longest. Among datasets in
/// use, it evicts from the dataset that keeps the most, so that each keeps as much as the others or all that it needs.
#[derive(Debug, Default)]
pub struct FirstCome {
    time: u64,
    datasets: BTreeMap<Fingerprint, KeptDataset>,
    /// How many plans use a block soon.
    planned: BTreeMap<BlockKey, u32>,
    /// The bytes of the blocks without holds that plans use soon.
    waiting: BTreeMap<u64, u64>,
    kept_bytes: u64,
    waiting_bytes: u64,
}

/// The blocks of a dataset that nobody holds and no plan uses soon.
#[derive(Debug, Default)]
struct KeptDataset {
    /// The ranks that read the dataset.
    readers: u32,
    /// When the last rank left it.
    left_at: u64,
    bytes: u64,
    /// The bytes of each.
    blocks: BTreeMap<u64, u64>,
}

impl FirstCome {
    /// Notes that one more rank reads a dataset.
    pub fn enter(&mut self, dataset: Fingerprint) {
        self.datasets.entry(dataset).or_default().readers += 1;
    }

    /// Notes that a rank does not read a dataset any more.
    ///
    /// # Panics
    ///
    /// If the dataset was not entered.
    pub fn leave(&mut self, dataset: Fingerprint) {
        self.time += 1;
        let kept = self.datasets.get_mut(&dataset).expect("a dataset that is left was entered");
        kept.readers -= 1;
        kept.left_at = self.time;
        self.forget_unused(dataset);
    }

    /// Notes that a plan uses a block soon, from now until [`Self::unplan`].
    pub fn plan(&mut self, key: BlockKey) {
        *self.planned.entry(key).or_default() += 1;
    }

    /// Notes that a plan does not use a block soon any more; `idle` is the block, if it is in the cache and has no holds.
    ///
    /// # Panics
    ///
    /// If the block was not planned.
    pub fn unplan(&mut self, key: BlockKey, idle: Option<IdleValue<BlockKey>>) {
        let plans = self.planned.get_mut(&key).expect("a block was planned");
        *plans -= 1;
        if *plans == 0 {
            self.planned.remove(&key);
            if let Some(value) = idle
                && self.waiting.remove(&value.id).is_some()
            {
                self.waiting_bytes -= value.bytes;
                self.add(value);
            }
        }
    }

    /// Returns the bytes of the blocks that nobody holds and no plan uses soon.
    #[must_use]
    pub const fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Returns the dataset whose blocks are evicted first.
    fn giving(&self) -> Option<Fingerprint> {
        let first = |(_, kept): &(&Fingerprint, &KeptDataset)| match kept.readers {
            0 => (0, kept.left_at),
            _ => (1, u64::MAX - kept.bytes),
        };
        let having = self.datasets.iter().filter(|(_, kept)| !kept.blocks.is_empty());
        having.min_by_key(first).map(|(dataset, _)| *dataset)
    }

    /// Returns whether no dataset is read or kept, and no block is planned.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.datasets.is_empty() && self.planned.is_empty() && self.waiting.is_empty() && self.kept_bytes == 0
    }

    fn forget_unused(&mut self, dataset: Fingerprint) {
        if self.datasets.get(&dataset).is_some_and(|kept| kept.readers == 0 && kept.blocks.is_empty()) {
            self.datasets.remove(&dataset);
        }
    }
}

impl Eviction<BlockKey> for FirstCome {
    fn add(&mut self, IdleValue { id, key, bytes }: IdleValue<BlockKey>) {
        if self.planned.contains_key(&key) {
            self.waiting.insert(id, bytes);
            self.waiting_bytes += bytes;
            return;
        }
        self.time += 1;
        let time = self.time;
        let kept =
            self.datasets.entry(key.dataset).or_insert_with(|| KeptDataset { left_at: time, ..Default::default() });
        kept.blocks.insert(id, bytes);
        kept.bytes += bytes;
        self.kept_bytes += bytes;
    }

    fn remove(&mut self, IdleValue { id, key, bytes }: &IdleValue<BlockKey>) {
        if self.waiting.remove(id).is_some() {
            self.waiting_bytes -= bytes;
            return;
        }
        let kept = self.datasets.get_mut(&key.dataset).expect("the dataset of an idle block is known");
        kept.blocks.remove(id).expect("an idle block was added");
        kept.bytes -= bytes;
        self.kept_bytes -= bytes;
        self.forget_unused(key.dataset);
    }

    fn idle_bytes(&self, demand: Demand) -> u64 {
        match demand {
            Demand::NewValue => self.kept_bytes,
            Demand::SmallerBudget => self.kept_bytes + self.waiting_bytes,
        }
    }

    fn take_first(&mut self, demand: Demand) -> Option<u64> {
        let Some(dataset) = self.giving() else {
            if demand == Demand::NewValue {
                return None;
            }
            let (id, bytes) = self.waiting.pop_last()?;
            self.waiting_bytes -= bytes;
            return Some(id);
        };
        let kept = self.datasets.get_mut(&dataset).expect("the dataset that gives room is known");
        let (id, bytes) = kept.blocks.pop_last().expect("the dataset that gives room has blocks");
        kept.bytes -= bytes;
        self.kept_bytes -= bytes;
        self.forget_unused(dataset);
        Some(id)
    }
}
