//! The samples of a job that are dealt to ranks by their sizes, which were measured when the job was created.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use spdl_job::SampleCost;
use spdl_order::{BalancedBatch, Item, Plan, Step};
use spdl_shard::sizes::SizeTable;

use super::kept_steps::KeptSteps;

/// Deals the samples of steps to ranks. The ranks of a session share it.
pub(crate) struct SizedSamples {
    sizes: Arc<SizeTable>,
    cost: SampleCost,
    steps: KeptSteps<OnceLock<BalancedBatch>>,
}

impl fmt::Debug for SizedSamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SizedSamples").field("cost", &self.cost).finish_non_exhaustive()
    }
}

impl SizedSamples {
    pub(super) fn new(sizes: Arc<SizeTable>, cost: SampleCost) -> Self {
        Self { sizes, cost, steps: KeptSteps::default() }
    }

    /// Returns what a rank of a `world` gets in a step of a plan of the dataset whose samples these are.
    pub(crate) fn rank_items(&self, plan: &Plan, step: &Step, rank: u32, world: u32) -> Vec<Item> {
        let cell = self.steps.cell((*step, world));
        let batch = cell.get_or_init(|| self.sizes.deal(plan.step_items(step), &self.cost, world).0);
        batch.rank_items(rank).copied().collect()
    }
}
