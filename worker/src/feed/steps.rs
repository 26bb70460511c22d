//! The coming batches of a rank: what the plan says, grouped by block, with the blocks on their way.

use std::{collections::VecDeque, sync::Arc};

use spdl_shard::{
    Position,
    order::{BatchParams, Item, ItemKind, Plan, Step},
};

use super::dataset::Dataset;
use crate::fetch::{BlockHold, Fetcher};

/// Steps beyond those being filled whose blocks are fetched ahead. Raised, blocks of the far future take the room of
/// those of the near one; lowered, a slow object is noticed later.
const STEPS_AHEAD: usize = 16;

/// One batch of a rank, before it is filled.
#[derive(Debug)]
pub(crate) struct PlannedStep {
    pub(crate) step: Step,
    pub(crate) items: Vec<Item>,
    /// Runs of entries whose samples lie in one block.
    pub(crate) groups: Vec<Group>,
    /// Keep the blocks until the batch is filled.
    pub(crate) holds: Vec<BlockHold>,
}

/// Entries of a batch whose samples lie in one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) block: u32,
    pub(crate) entries: Vec<u32>,
}

/// Walks the plan of one rank.
#[derive(Debug)]
pub(crate) struct Steps {
    plan: Plan,
    params: BatchParams,
    rank: u32,
    world: u32,
    from: Position,
    is_over: bool,
    is_first: bool,
    ahead: VecDeque<PlannedStep>,
    dataset: Arc<Dataset>,
    fetcher: Arc<Fetcher>,
}

impl Steps {
    pub(crate) fn new(
        plan: Plan,
        params: BatchParams,
        (rank, world): (u32, u32),
        from: Position,
        dataset: Arc<Dataset>,
        fetcher: Arc<Fetcher>,
    ) -> Self {
        let ahead = VecDeque::new();
        Self { plan, params, rank, world, from, is_over: false, is_first: true, ahead, dataset, fetcher }
    }

    /// Where the next step that was not planned yet starts; after the last one, where the stream ends.
    pub(crate) const fn planned_to(&self) -> Position {
        self.from
    }

    /// Whether the last step was planned.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over && self.ahead.is_empty()
    }

    /// The next batch; `None` after the last.
    pub(crate) fn next(&mut self) -> Option<PlannedStep> {
        if self.ahead.is_empty() {
            self.plan_one();
        }
        self.ahead.pop_front()
    }

    /// Plans on, and sets the blocks of the coming steps on their way.
    pub(crate) fn look_ahead(&mut self) {
        while self.ahead.len() < STEPS_AHEAD && !self.is_over {
            self.plan_one();
        }
    }

    fn plan_one(&mut self) {
        let Some(step) = self.plan.step(self.from, &self.params) else {
            self.is_over = true;
            return;
        };
        let mut items = Vec::new();
        self.plan.rank_items(&step, self.rank, self.world, &mut items);
        let groups = group(&items);
        let mut holds = Vec::new();
        // The very first batch does not wait for whole blocks: a trainer is waiting for it.
        if !self.is_first {
            holds.extend(groups.iter().filter_map(|group| self.fetcher.prefetch(&self.dataset.place(group.block))));
        }
        self.is_first = false;
        self.from = step.next;
        self.ahead.push_back(PlannedStep { step, items, groups, holds });
    }
}

/// Groups the entries that hold a sample by block, in order of place in the dataset.
fn group(items: &[Item]) -> Vec<Group> {
    let mut entries: Vec<u32> = (0..).take(items.len()).collect();
    entries.retain(|entry| items[*entry as usize].kind != ItemKind::Invalid);
    entries.sort_unstable_by_key(|entry| items[*entry as usize].located.id);
    let block_of = |entry: &u32| items[*entry as usize].located.block;
    entries
        .chunk_by(|a, b| block_of(a) == block_of(b))
        .map(|entries| Group { block: block_of(&entries[0]), entries: entries.to_vec() })
        .collect()
}
