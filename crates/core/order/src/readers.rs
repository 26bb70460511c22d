//! The rank that is responsible for a block. Workers that share a dataset compute it alike, without asking each other.

use super::{Plan, PlanKind, batch::classes};

impl Plan {
    /// Returns the rank that is responsible for block `block` of the dataset, with `world` ranks and `global_batch`
    /// samples per step. This rank reads the block, and is usually the only one that does. Where several ranks share a
    /// lane, its blocks are divided among them in proportion to what they read. `None` if the stream has no sample of
    /// the block, or if there is no such batch.
    ///
    /// A block that the deal cuts in two counts for the lane that holds its first sample.
    #[must_use]
    pub fn owner(&self, block: u32, global_batch: u32, world: u32) -> Option<u32> {
        if world == 0 || global_batch < world {
            return None;
        }
        match &*self.kind {
            PlanKind::Dataset(stream) => {
                stream.owner(block, classes(stream.deal.lanes(), global_batch), global_batch, world)
            }
            PlanKind::Blend(blend) => blend.owner(block, global_batch, world),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use crate::{BatchParams, EpochEnd, OrderParams, Plan};
    use spdl_types::Position;

    /// Returns the ranks that read each block in an epoch.
    fn readers(plan: &Plan, global_batch: u32, world: u32) -> BTreeMap<u32, BTreeSet<u32>> {
        let batches = BatchParams { global_batch, epochs: 1, epoch_end: EpochEnd::Drop, end: None };
        let mut readers: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for step in plan.steps(Position::START, &batches) {
            for rank in 0..world {
                let mut items = Vec::new();
                plan.rank_items(&step, rank, world, &mut items);
                for item in items {
                    readers.entry(item.located.block).or_default().insert(rank);
                }
            }
        }
        readers
    }

    fn plan(lanes: u32, shuffle: bool) -> Plan {
        Plan::new(&[30; 96], 5, OrderParams { version: 1, lanes, window: 40, shuffle }).unwrap()
    }

    #[test]
    fn the_owner_of_a_block_reads_it_at_every_world_and_all_ranks_own_some() {
        for (lanes, world) in [(1, 3), (4, 3), (8, 1), (8, 2), (8, 3), (8, 6), (8, 8), (24, 5)] {
            let plan = plan(lanes, true);
            let mut owners = BTreeSet::new();
            for (block, readers) in readers(&plan, 24, world) {
                let owner = plan.owner(block, 24, world).unwrap();
                assert!(readers.contains(&owner), "{lanes} lanes, world {world}: {owner} of {readers:?}");
                owners.insert(owner);
            }
            assert_eq!(owners.len(), world as usize, "{lanes} lanes, world {world}");
        }
    }

    #[test]
    fn a_rank_with_lanes_of_its_own_owns_what_it_reads_but_for_blocks_that_are_cut() {
        let plan = plan(8, true);
        let others = readers(&plan, 24, 4).into_iter().filter(|(block, readers)| {
            let owner = plan.owner(*block, 24, 4).unwrap();
            readers.iter().any(|reader| *reader != owner)
        });
        assert!(others.count() < 8, "a deal on 8 lanes cuts at most 7 blocks");
    }

    #[test]
    fn a_block_outside_the_dataset_and_a_batch_that_no_rank_shares_have_no_owner() {
        let plan = plan(8, false);
        assert!(plan.owner(95, 24, 3).is_some());
        assert_eq!([plan.owner(96, 24, 3), plan.owner(0, 24, 0), plan.owner(0, 2, 3)], [None; 3]);
    }
}
