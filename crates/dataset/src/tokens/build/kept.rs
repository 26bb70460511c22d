//! Runs that stay in memory until they are merged. Where a source fits there, nothing but its shards is written.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use spdl_shard::store::DatasetStore;

use super::{
    run::{RunFacts, RunIndex, RunPieces, SliceStart, hash_of},
    work::{BuildPlan, RunTotals, run_name},
};
use crate::{DatasetError, folder::put_pieces, sorter::Sorted};

/// The runs in memory, those of all threads: no more than fits there is made again after a kill.
#[derive(Debug)]
pub(super) struct KeptRuns {
    memory_bytes: u64,
    units: Mutex<KeptUnits>,
}

#[derive(Debug, Default)]
struct KeptUnits {
    runs: BTreeMap<u32, Arc<KeptRun>>,
    /// Memory that they take, in bytes.
    bytes: u64,
    /// Set once a run was not kept: so is no later one.
    is_full: bool,
}

/// A run in memory.
#[derive(Debug)]
pub(super) struct KeptRun {
    sorted: Arc<Sorted>,
    facts: RunFacts,
    index: Vec<SliceStart>,
}

impl KeptRuns {
    /// Keeps runs in at most so much memory, in bytes.
    pub(super) fn within(memory_bytes: u64) -> Arc<Self> {
        Arc::new(Self { memory_bytes, units: Mutex::default() })
    }

    fn units(&self) -> MutexGuard<'_, KeptUnits> {
        self.units.lock().expect("nothing panics with it")
    }

    /// Keeps the run of a unit, if there is room for it; otherwise it has to be written. `totals` lacks its documents.
    pub(super) fn keep(&self, plan: &BuildPlan, unit: u32, sorted: &Arc<Sorted>, totals: RunTotals) -> bool {
        if !sorted.is_in_memory() || self.units().is_full {
            return false;
        }
        let run = KeptRun::new(plan, unit, sorted, totals);
        let mut units = self.units();
        let bytes = units.bytes.saturating_add(run.memory_bytes());
        units.is_full |= bytes > self.memory_bytes;
        if units.is_full {
            return false;
        }
        units.bytes = bytes;
        units.runs.insert(unit, Arc::new(run));
        true
    }

    /// Returns the run of a unit, if it is kept.
    pub(super) fn run(&self, unit: u32) -> Option<Arc<KeptRun>> {
        self.units().runs.get(&unit).cloned()
    }

    /// Writes all runs, so that they stay when the process ends.
    pub(super) async fn write(&self, to: &DatasetStore, plan: &BuildPlan) -> Result<(), DatasetError> {
        let kept = std::mem::take(&mut *self.units());
        for (unit, run) in kept.runs {
            write_run(to, plan, unit, &run.sorted, run.facts.totals).await?;
        }
        Ok(())
    }

    /// Forgets all runs.
    pub(super) fn clear(&self) {
        *self.units() = KeptUnits::default();
    }
}

impl KeptRun {
    fn new(plan: &BuildPlan, unit: u32, sorted: &Arc<Sorted>, totals: RunTotals) -> Self {
        let (mut facts, mut index) = (RunFacts::begin(plan, unit, totals), RunIndex::new(plan));
        for number in 0..sorted.len() as usize {
            let (key, document) = sorted.item(number);
            index.add(hash_of(key), facts.here());
            facts.add(document.len());
        }
        let index = index.end(facts.here());
        Self { sorted: Arc::clone(sorted), facts, index }
    }

    fn memory_bytes(&self) -> u64 {
        self.sorted.memory_bytes() + size_of_val(&*self.index) as u64
    }

    /// Returns what it has, and its index.
    pub(super) fn index(&self) -> (RunFacts, Vec<SliceStart>) {
        (self.facts, self.index.clone())
    }

    /// Returns the number of documents before an offset at which a slice begins or the run ends.
    pub(super) fn documents_before(&self, offset: u64) -> usize {
        let slice = self.index.partition_point(|slice| slice.offset < offset);
        self.index[slice].documents as usize
    }

    /// Returns the hash of a document, and its tokens with their mask.
    pub(super) fn document(&self, number: usize) -> (u64, &[u8]) {
        let (key, document) = self.sorted.item(number);
        (hash_of(key), document)
    }
}

/// Writes the run of a unit. `totals` lacks its documents.
pub(super) async fn write_run(
    to: &DatasetStore,
    plan: &BuildPlan,
    unit: u32,
    sorted: &Arc<Sorted>,
    totals: RunTotals,
) -> Result<(), DatasetError> {
    put_pieces(to, &run_name(unit), RunPieces::new(plan, unit, sorted.iter()?, totals)).await
}
