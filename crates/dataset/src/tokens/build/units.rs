//! Tokenizes units on several threads, each into a run, in memory or in the store.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use spdl_shard::store::DatasetStore;
use tokio::{runtime::Handle, task::JoinSet};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    BuildCounts, DocumentSource, SourceDocument, TokenBuildOptions,
    kept::{KeptRuns, write_run},
    run::checked,
    stopped,
    work::{BuildPlan, RunTotals},
};
use crate::{
    DatasetError,
    sorter::{SortMemory, Sorter},
    tokens::TokenEncoding,
};

/// Memory in which the documents of a unit are sorted, in bytes; the others are in a temporary file.
const SORT_BYTES: usize = 32 << 20;
/// Time between two reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// The units that are to be done, and what all threads know of them.
pub(super) struct UnitWork {
    pub(super) to: DatasetStore,
    pub(super) source: Arc<dyn DocumentSource>,
    pub(super) plan: BuildPlan,
    pub(super) encoding: TokenEncoding,
    skip_bad: u64,
    pub(super) units: Vec<u32>,
    kept: Arc<KeptRuns>,
    pub(super) counts: Arc<BuildCounts>,
    next: AtomicUsize,
    /// Set when the threads have to end.
    has_to_end: AtomicBool,
}

impl UnitWork {
    pub(super) fn new(
        to: &DatasetStore,
        source: &Arc<dyn DocumentSource>,
        plan: &BuildPlan,
        options: &TokenBuildOptions,
        units: Vec<u32>,
        kept: &Arc<KeptRuns>,
        counts: &Arc<BuildCounts>,
    ) -> Self {
        Self {
            to: to.clone(),
            source: Arc::clone(source),
            plan: plan.clone(),
            encoding: options.encoding,
            skip_bad: options.skip_bad,
            units,
            kept: Arc::clone(kept),
            counts: Arc::clone(counts),
            next: AtomicUsize::new(0),
            has_to_end: AtomicBool::new(false),
        }
    }

    /// Does all units on so many threads. Of several errors, that of the first unit is returned.
    pub(super) async fn run(
        self: Arc<Self>,
        threads: usize,
        report: &(dyn Fn() + Send + Sync),
        stop: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<(), DatasetError> {
        let mut working = JoinSet::new();
        for _ in 0..threads.min(self.units.len()) {
            let work = Arc::clone(&self);
            working.spawn_blocking(move || work.some_units());
        }
        let mut is_stopped = false;
        let mut failed = BTreeMap::new();
        let mut ticks = tokio::time::interval(REPORT_INTERVAL);
        loop {
            tokio::select! {
                biased;
                () = &mut *stop, if !is_stopped => {
                    is_stopped = true;
                    self.has_to_end.store(true, Relaxed);
                }
                done = working.join_next() => match done {
                    None => break,
                    Some(done) => failed.extend(done.expect("tokenizing does not panic")),
                },
                _ = ticks.tick() => report(),
            }
        }
        report();
        match failed.into_values().next() {
            _ if is_stopped => Err(stopped(&self.to)),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Does one unit after the other until there are no more, or one fails, which is returned.
    fn some_units(&self) -> Option<(u32, DatasetError)> {
        let mut memory = SortMemory::default();
        while !self.has_to_end.load(Relaxed)
            && let Some(unit) = self.units.get(self.next.fetch_add(1, Relaxed))
        {
            if let Err(error) = self.unit(*unit, &mut memory) {
                self.has_to_end.store(true, Relaxed);
                return Some((*unit, error));
            }
        }
        None
    }

    /// Tokenizes a unit unless its run is there. If all has to end meanwhile, it leaves the unit undone: whatever ended it is the error.
    fn unit(&self, unit: u32, memory: &mut SortMemory) -> Result<(), DatasetError> {
        let runtime = Handle::current();
        if let Some(known) = runtime.block_on(checked(&self.to, &self.plan, unit))? {
            self.counts.keep_unit(self.source.unit_bytes(unit as usize), known.totals);
            return Ok(());
        }
        let mut sorter = Sorter::within(std::mem::take(memory), &self.to.temporary_folder(), SORT_BYTES);
        // The tokens of a text take about as much as the text.
        sorter.reserve(self.source.unit_bytes(unit as usize) / 4 * 5);
        let (mut number, mut totals) = (0_u64, RunTotals::default());
        let mut stored = self.encoding.documents();
        let mut is_ended = false;
        let read = self.source.read(unit as usize, &mut |document| {
            is_ended = self.has_to_end.load(Relaxed);
            if is_ended {
                return Err(stopped(&self.to));
            }
            let (ids, learned) = match document {
                SourceDocument::Ids(ids, learned) => (ids, learned),
                SourceDocument::Bad(error) => {
                    self.counts.leave_out(error, self.skip_bad)?;
                    totals.bad += 1;
                    return Ok(None);
                }
            };
            if ids.is_empty() {
                totals.empty += 1;
                return Ok(None);
            }
            stored.clear();
            let pushed = match learned {
                Some(learned) => stored.push_masked(ids, learned),
                None => stored.push(ids),
            };
            if let Err(problem) = pushed {
                return Ok(Some(problem));
            }
            let document = stored.iter().next().expect("it was added");
            sorter.push(&self.hash(unit, number).to_be_bytes(), document)?;
            number += 1;
            totals.tokens += ids.len() as u64;
            self.counts.add_document(ids.len() as u64);
            Ok(None)
        });
        if is_ended {
            return Ok(());
        }
        read?;
        let sorted = sorter.finish()?;
        if !self.kept.keep(&self.plan, unit, &sorted, totals) {
            runtime.block_on(write_run(&self.to, &self.plan, unit, &sorted, totals))?;
            *memory = sorted.into_memory();
        }
        Ok(())
    }

    /// Returns by what a document is sorted: all are equal if they stay in order.
    fn hash(&self, unit: u32, number: u64) -> u64 {
        let of = [u64::from(unit), number].map(u64::to_le_bytes).concat();
        self.plan.seed.map_or(0, |seed| xxh3_64_with_seed(&of, seed))
    }
}
