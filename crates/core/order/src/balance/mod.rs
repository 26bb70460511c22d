//! Balance: a global batch is dealt to ranks by what its entries cost, and each rank gets as many entries as without it.
//!
//! Which entries the batch has, their positions and the sum of all ranks' receipts stay the same. `docs/spec/balance.md` has the rules.

mod deal;

use std::{num::NonZeroU32, ops::Range};

pub use self::deal::deal_by_cost;
use self::deal::least_largest;
use super::{Item, Plan, Step, batch::rank_entries};

/// The entries of a global batch, dealt to ranks by cost.
#[derive(Clone, Debug)]
pub struct BalancedBatch {
    items: Vec<Item>,
    /// The rank of each entry.
    ranks: Vec<u32>,
}

impl BalancedBatch {
    /// Deals the entries of a global batch, in the order of [`Plan::rank_items`] for one rank, to `world` ranks. `costs` are theirs.
    /// With `within`, the ranks are cut into groups of so many neighbours, the last of which may be smaller, and each group
    /// deals the entries that its ranks have without balance: ranks of one node then read what the node reads in any case.
    ///
    /// # Panics
    /// If there is not one cost for each entry, or `world` is 0.
    #[must_use]
    pub fn new(items: Vec<Item>, costs: &[u64], world: u32, within: Option<NonZeroU32>) -> Self {
        assert_eq!(items.len(), costs.len(), "a cost for each entry");
        let (mut ranks, entries) = (Vec::with_capacity(items.len()), items.len() as u64);
        for group in groups(world, within) {
            let shares = group.clone().map(|rank| rank_entries(entries, rank, world));
            let (first, last) =
                (rank_entries(entries, group.start, world), rank_entries(entries, group.end - 1, world));
            let sizes: Vec<usize> = shares.map(|share| (share.end - share.start) as usize).collect();
            let of_group = &costs[first.start as usize..last.end as usize];
            ranks.extend(deal_by_cost(of_group, &sizes).into_iter().map(|rank| group.start + rank));
        }
        Self { items, ranks }
    }

    /// Returns the entries of a rank, in the order of [`Plan::rank_items`] for one rank.
    pub fn rank_items(&self, rank: u32) -> impl Iterator<Item = &Item> {
        self.items.iter().zip(&self.ranks).filter(move |(_, of)| **of == rank).map(|(item, _)| item)
    }

    /// Returns all entries, in the order of [`Plan::rank_items`] for one rank.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Returns how even the deal to `world` ranks is, and how even it would be without balance.
    ///
    /// # Panics
    /// If there is not one cost for each entry, or the batch is dealt to more ranks.
    #[must_use]
    pub fn spread(&self, costs: &[u64], world: u32) -> CostSpread {
        assert_eq!(self.items.len(), costs.len(), "a cost for each entry");
        let entries = costs.len() as u64;
        let total: u128 = costs.iter().map(|cost| u128::from(*cost)).sum();
        let mut loads = vec![0_u128; world as usize];
        for (rank, cost) in self.ranks.iter().zip(costs) {
            loads[*rank as usize] += u128::from(*cost);
        }
        let slice = |rank| rank_entries(entries, rank, world);
        let sum = |slice: Range<u64>| {
            costs[slice.start as usize..slice.end as usize].iter().map(|cost| u128::from(*cost)).sum()
        };
        let sizes: Vec<usize> = (0..world).map(slice).map(|slice| (slice.end - slice.start) as usize).collect();
        let to_mean = |cost: u128| if total == 0 { 1.0 } else { cost as f64 * f64::from(world) / total as f64 };
        CostSpread {
            before: to_mean((0..world).map(|rank| sum(slice(rank))).max().unwrap_or(0)),
            balanced: to_mean(loads.into_iter().max().unwrap_or(0)),
            least: to_mean(least_largest(costs, &sizes)).max(1.0),
        }
    }
}

/// How even a step is: what the rank with the largest cost has, as a multiple of the mean over ranks. The other ranks wait for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostSpread {
    /// Without balance.
    pub before: f64,
    /// With balance.
    pub balanced: f64,
    /// What no deal of these numbers of entries can be below: 1, or the largest cost of an entry with the least ones beside it.
    pub least: f64,
}

/// Returns the groups of ranks that deal entries among themselves.
fn groups(world: u32, within: Option<NonZeroU32>) -> impl Iterator<Item = Range<u32>> {
    assert!(world > 0, "a world of no rank");
    let size = within.map_or(world, NonZeroU32::get).min(world);
    (0..world.div_ceil(size)).map(move |group| group * size..((group + 1) * size).min(world))
}

impl Plan {
    /// Returns the entries of all ranks in a step, in the order in which [`rank_items`](Self::rank_items) deals them to ranks.
    #[must_use]
    pub fn step_items(&self, step: &Step) -> Vec<Item> {
        let mut items = Vec::with_capacity(step.global_batch as usize);
        self.rank_items(step, 0, 1, &mut items);
        items
    }
}
