//! The coming batches of a rank: their samples grouped by block, while the blocks are fetched.

use std::{collections::VecDeque, sync::Arc};

use smallvec::SmallVec;
use spdl_core::order::{Item, ItemKind, Plan, Step};

use super::dataset::OpenDataset;
use crate::fetch::{BlockHold, Fetcher};

/// One batch of a rank, before it is filled.
#[derive(Debug)]
pub(crate) struct PlannedStep {
    pub(crate) step: Step,
    pub(crate) items: Vec<Item>,
    /// Entries grouped by the block of their sample.
    pub(crate) groups: Vec<Group>,
    /// Keep the blocks in memory until the batch is filled.
    pub(crate) holds: Vec<BlockHold>,
}

/// The entries of a batch whose samples lie in the same block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) block: u32,
    pub(crate) entries: SmallVec<[u32; 2]>,
}

/// The steps of one rank that are prepared and not being filled yet.
#[derive(Debug)]
pub(crate) struct Steps {
    plan: Plan,
    rank: u32,
    world: u32,
    is_first: bool,
    ahead: VecDeque<PlannedStep>,
    dataset: Arc<OpenDataset>,
    fetcher: Arc<Fetcher>,
}

impl Steps {
    pub(crate) fn new(plan: Plan, (rank, world): (u32, u32), dataset: Arc<OpenDataset>, fetcher: Arc<Fetcher>) -> Self {
        Self { plan, rank, world, is_first: true, ahead: VecDeque::new(), dataset, fetcher }
    }

    /// Starts to fetch the blocks of a step.
    pub(crate) fn prepare(&mut self, step: Step) {
        let mut items = Vec::new();
        self.plan.rank_items(&step, self.rank, self.world, &mut items);
        let groups = group(&items);
        let mut holds = Vec::new();
        // The first batch does not wait for whole blocks, as a trainer is waiting for it.
        if !self.is_first {
            let prefetch = |block| self.fetcher.prefetch(self.dataset.block_key(block), || self.dataset.place(block));
            holds.extend(groups.iter().filter_map(|group| prefetch(group.block)));
        }
        self.is_first = false;
        self.ahead.push_back(PlannedStep { step, items, groups, holds });
    }

    /// Returns the oldest prepared step, to be filled.
    pub(crate) fn take(&mut self, step: Step) -> PlannedStep {
        let planned = self.ahead.pop_front().expect("a step is prepared before it is filled");
        assert_eq!(planned.step, step, "steps are filled in the order in which they were prepared");
        planned
    }
}

/// Groups the entries that hold a sample by block, in the order of the dataset.
fn group(items: &[Item]) -> Vec<Group> {
    let mut entries: Vec<u32> = (0..).take(items.len()).collect();
    entries.retain(|entry| items[*entry as usize].kind != ItemKind::Invalid);
    entries.sort_unstable_by_key(|entry| items[*entry as usize].located.id);
    let block_of = |entry: &u32| items[*entry as usize].located.block;
    entries
        .chunk_by(|a, b| block_of(a) == block_of(b))
        .map(|entries| Group { block: block_of(&entries[0]), entries: entries.into() })
        .collect()
}

#[cfg(test)]
mod tests {
    use spdl_core::Position;

    use super::*;
    use crate::feed::tests::scene::{Scene, resources};

    #[tokio::test]
    async fn the_blocks_of_every_batch_but_the_first_are_fetched_ahead_and_kept_until_it_is_filled() {
        let scene = Scene::new(&[], "epochs = 1\nglobal_batch = 12");
        let resources = resources(64 << 20, None);
        let dataset = resources.datasets.open(&scene.job).await.unwrap();
        let plan = dataset.plan(&scene.job).unwrap();
        let params = scene.job.batches(12);
        let all: Vec<Step> = plan.steps(Position::START, &params).take(4).collect();
        let mut steps = Steps::new(plan, (0, 1), dataset, resources.fetcher.clone());
        all.iter().for_each(|step| steps.prepare(*step));
        for (number, step) in all.into_iter().enumerate() {
            let PlannedStep { items, groups, holds, .. } = steps.take(step);
            assert_eq!(groups.iter().map(|group| group.entries.len()).sum::<usize>(), items.len());
            let expected = if number == 0 { 0 } else { groups.len() };
            assert_eq!(holds.len(), expected, "batch {number} reads {} blocks", groups.len());
        }
    }

    #[test]
    #[should_panic(expected = "in the order in which they were prepared")]
    fn a_batch_is_not_filled_with_the_samples_of_another() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _entered = runtime.enter();
        let scene = Scene::new(&[], "epochs = 1\nglobal_batch = 12");
        let resources = resources(64 << 20, None);
        let dataset = runtime.block_on(resources.datasets.open(&scene.job)).unwrap();
        let plan = dataset.plan(&scene.job).unwrap();
        let [first, second] =
            [0, 12].map(|offset| plan.step(Position::new(0, offset), &scene.job.batches(12)).unwrap());
        let mut steps = Steps::new(plan, (0, 1), dataset, resources.fetcher.clone());
        steps.prepare(first);
        steps.take(second);
    }
}
