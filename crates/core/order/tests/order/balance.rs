//! Balance is frozen: the golden vectors of `tests/order/golden-balance-v1.json` must come out forever, and the second
//! implementation, in Python beside them, must agree on them and on random batches.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test reads files and starts a process"
)]

use std::num::NonZeroU32;

use proptest::{collection::vec, prelude::*};
use serde::{Deserialize, Serialize};
use spdl_order::{BalancedBatch, BatchParams, CostSpread, EpochEnd, Item, OrderParams, Plan, deal_by_cost};
use spdl_types::Position;

use crate::{
    delivery::dice,
    twin::{FOLDER, python},
};

/// A batch whose entries have these costs.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CostedBatch {
    costs: Vec<u64>,
    world: u32,
    within: Option<NonZeroU32>,
}

#[derive(Deserialize)]
struct Case {
    #[serde(flatten)]
    batch: CostedBatch,
    ranks: Vec<u32>,
}

impl CostedBatch {
    fn items(&self) -> (Plan, Vec<Item>) {
        let count = self.costs.len() as u32;
        let plan = Plan::new(&[count], 1, OrderParams { version: 1, lanes: 1, window: 1, shuffle: false }).unwrap();
        let batches = BatchParams { global_batch: count, epochs: 1, epoch_end: EpochEnd::Drop, end: None };
        let items = plan.step_items(&plan.step(Position::START, &batches).unwrap());
        (plan, items)
    }

    fn balanced(&self) -> BalancedBatch {
        BalancedBatch::new(self.items().1, &self.costs, self.world, self.within)
    }

    /// Returns the rank of each entry.
    fn ranks(&self) -> Vec<u32> {
        let (balanced, mut ranks) = (self.balanced(), vec![u32::MAX; self.costs.len()]);
        for rank in 0..self.world {
            balanced.rank_items(rank).for_each(|item| ranks[item.at.offset as usize] = rank);
        }
        ranks
    }
}

fn golden() -> Vec<Case> {
    serde_json::from_str(&std::fs::read_to_string(format!("{FOLDER}/golden-balance-v1.json")).unwrap()).unwrap()
}

/// Returns batches from a fixed sequence, with costs of several kinds: few values, many values, and a few that are far above all others.
fn random_batches(count: u64) -> Vec<CostedBatch> {
    let mut below = dice(3);
    let mut batch = |number: u64| {
        let (world, size) = (1 + below(24) as u32, 1 + below(150));
        let most = [3, 1 << 14, 1 << 31][number as usize % 3];
        let cost = |below: &mut dyn FnMut(u64) -> u64| match below(most) {
            cost if number % 2 == 1 && below(9) == 0 => cost * cost,
            cost => cost,
        };
        let costs = (0..size).map(|_| cost(&mut below)).collect();
        let within = NonZeroU32::new(below(12) as u32).filter(|_| number.is_multiple_of(2));
        CostedBatch { costs, world, within }
    };
    (0..count).map(&mut batch).collect()
}

#[test]
fn the_golden_deals_come_out() {
    let cases = golden();
    assert!(cases.iter().any(|case| case.batch.within.is_some()) && cases.len() >= 6);
    for case in cases {
        assert_eq!(case.batch.ranks(), case.ranks, "{:?}", case.batch);
    }
}

#[test]
fn the_python_twin_deals_alike() {
    let mut batches: Vec<_> = golden().into_iter().map(|case| case.batch).collect();
    batches.extend(random_batches(300));
    for (batch, twin) in batches.iter().zip(python("balance.py", &batches)) {
        assert_eq!(serde_json::to_value(batch.ranks()).unwrap(), twin, "{batch:?}");
    }
}

fn any_batch() -> impl Strategy<Value = CostedBatch> {
    let cost = prop_oneof![0..4_u64, 0..1_000_000_u64, any::<u64>()];
    (vec(cost, 1..200), 1..40_u32, proptest::option::of(1..20_u32)).prop_map(|(costs, world, within)| CostedBatch {
        costs,
        world,
        within: within.and_then(NonZeroU32::new),
    })
}

proptest! {
    #[test]
    fn every_entry_comes_once_and_each_rank_has_as_many_as_without_balance(batch in any_batch()) {
        let ((plan, all), balanced) = (batch.items(), batch.balanced());
        let batches = BatchParams { global_batch: all.len() as u32, epochs: 1, epoch_end: EpochEnd::Drop, end: None };
        let step = plan.step(Position::START, &batches).unwrap();
        let (mut dealt, mut before) = (Vec::new(), Vec::new());
        for rank in 0..batch.world {
            plan.rank_items(&step, rank, batch.world, &mut before);
            let of_rank: Vec<Item> = balanced.rank_items(rank).copied().collect();
            prop_assert_eq!(of_rank.len(), before.len(), "rank {}", rank);
            prop_assert!(of_rank.is_sorted_by_key(|item| item.at.offset), "a rank's entries keep their order");
            dealt.extend(of_rank);
        }
        dealt.sort_by_key(|item| item.at);
        prop_assert_eq!(dealt, all);
    }

    #[test]
    fn a_group_deals_only_what_its_ranks_have_without_balance(batch in any_batch()) {
        let Some(within) = batch.within else { return Ok(()) };
        let (entries, world) = (batch.costs.len() as u64, u64::from(batch.world));
        for (entry, rank) in (0..).zip(batch.ranks()) {
            let first = u64::from(rank / within * within.get());
            let end = (first + u64::from(within.get())).min(world);
            prop_assert!((first * entries / world..end * entries / world).contains(&entry), "{} at {}", entry, rank);
        }
    }

    #[test]
    fn the_sums_of_ranks_differ_by_no_more_than_the_largest_cost(costs in vec(0..1_000_000_u64, 1..200), world in 1..16_usize) {
        let costs = &costs[..costs.len() / world * world];
        let sizes = vec![costs.len() / world; world];
        let mut loads = vec![0_u64; world];
        for (rank, cost) in deal_by_cost(costs, &sizes).into_iter().zip(costs) {
            loads[rank as usize] += cost;
        }
        let (most, least) = (loads.iter().max().copied().unwrap_or(0), loads.iter().min().copied().unwrap_or(0));
        let largest = costs.iter().max().copied().unwrap_or(0);
        prop_assert!(most - least <= largest, "{} and {} with costs up to {}", most, least, largest);
    }
}

#[test]
fn one_rank_has_the_entries_as_they_are_and_a_rank_without_a_share_has_none() {
    let batch = CostedBatch { costs: vec![5, 1, 9], world: 1, within: None };
    let (balanced, (_, items)) = (batch.balanced(), batch.items());
    assert_eq!(balanced.rank_items(0).copied().collect::<Vec<_>>(), items);
    assert_eq!(balanced.items(), items);
    let sparse = CostedBatch { world: 5, ..batch };
    let counts: Vec<usize> = (0..5).map(|rank| sparse.balanced().rank_items(rank).count()).collect();
    assert_eq!(counts, [0, 1, 0, 1, 1]);
    let CostSpread { before, balanced, least } = sparse.balanced().spread(&sparse.costs, 5);
    assert_eq!([before, balanced, least], [3.0; 3], "the largest costs 9, and the mean of five ranks is 3");
}

#[test]
fn one_large_entry_has_the_smallest_ones_beside_it() {
    let costs = [9, 8, 100, 7, 6, 1, 2, 5];
    let ranks = deal_by_cost(&costs, &[4, 4]);
    let beside: Vec<u64> = (0..8).filter(|entry| ranks[*entry] == ranks[2]).map(|entry| costs[entry]).collect();
    assert_eq!(beside, [100, 1, 2, 5]);
    let batch = CostedBatch { costs: costs.to_vec(), world: 2, within: None };
    let CostSpread { before, balanced, least } = batch.balanced().spread(&batch.costs, 2);
    assert_eq!([before, balanced, least].map(|spread| (spread * 138.0).round()), [248.0, 216.0, 216.0]);
}
