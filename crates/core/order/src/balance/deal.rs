//! Deals costs to ranks evenly: the largest first, each to the rank that has least, and then exchanges between ranks.
//!
//! All of it is exact arithmetic on integers, with ties decided by number, so that every process deals alike.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

/// A rank that has most exchanges with one of so many ranks that have least.
const PARTNERS: usize = 64;
/// Number of exchanges for each rank, at most.
const EXCHANGES: usize = 4;
/// Ranks exchange while the largest sum is above the least possible one by more than this part of it.
const TOLERANCE: u128 = 1000;

/// Returns for each cost the number of the rank that it is dealt to, so that rank r gets `sizes[r]` of them and the largest sum of a
/// rank's costs is small.
///
/// No deal is better than max(mean, largest + the least ones beside it), and with four entries a rank and costs as lengths of documents have
/// them this one is mostly within 1 % of that. It takes O(n log n) and a bounded number of exchanges.
///
/// # Panics
/// If the sizes do not add up to the number of costs.
#[must_use]
pub fn deal_by_cost(costs: &[u64], sizes: &[usize]) -> Vec<u32> {
    assert_eq!(sizes.iter().sum::<usize>(), costs.len(), "the sizes of ranks and the number of costs");
    let mut hands = Hands::largest_first(costs, sizes);
    let bound = least_largest(costs, sizes);
    for _ in 0..EXCHANGES * sizes.len() {
        if hands.largest() <= bound + bound / TOLERANCE || !hands.exchange() {
            break;
        }
    }
    let mut ranks = vec![0; costs.len()];
    for (rank, hand) in (0..).zip(&hands.hands) {
        hand.iter().for_each(|(_, entry)| ranks[*entry] = rank);
    }
    ranks
}

/// Returns a lower bound of the largest sum of any deal: the mean over ranks, or the largest cost with as few others as some rank gets,
/// which are at least the least ones.
pub(super) fn least_largest(costs: &[u64], sizes: &[usize]) -> u128 {
    let total: u128 = costs.iter().map(|cost| u128::from(*cost)).sum();
    let ranks = sizes.iter().filter(|size| **size > 0);
    let (count, fewest) = (ranks.clone().count() as u128, ranks.min().copied().unwrap_or(0));
    if count == 0 {
        return 0;
    }
    let mut sorted = costs.to_vec();
    sorted.sort_unstable();
    let largest = sorted.pop().unwrap_or(0);
    let beside: u128 = sorted.iter().take(fewest - 1).map(|cost| u128::from(*cost)).sum();
    total.div_ceil(count).max(u128::from(largest) + beside)
}

/// A cost and the number of its entry.
type CostOfEntry = (u64, usize);

/// What ranks have.
struct Hands {
    /// The costs of each rank, ascending.
    hands: Vec<Vec<CostOfEntry>>,
    /// The sum of each rank that gets something, ascending, with the rank's number.
    loads: BTreeSet<(u128, usize)>,
}

/// An exchange of a cost of one rank for a smaller one of another.
struct Exchange {
    heavy: usize,
    light: usize,
    difference: u128,
}

impl Hands {
    /// Deals the largest cost first, each to the rank with the least sum among those that are not full.
    fn largest_first(costs: &[u64], sizes: &[usize]) -> Self {
        let mut entries: Vec<CostOfEntry> = (0..).zip(costs).map(|(entry, cost)| (*cost, entry)).collect();
        entries.sort_unstable_by_key(|(cost, entry)| (Reverse(*cost), *entry));
        let mut hands: Vec<Vec<CostOfEntry>> = sizes.iter().map(|size| Vec::with_capacity(*size)).collect();
        let with_room = sizes.iter().enumerate().filter(|(_, size)| **size > 0);
        let mut open: BinaryHeap<_> = with_room.map(|(rank, _)| Reverse((0_u128, rank))).collect();
        let mut loads = BTreeSet::new();
        for (cost, entry) in entries {
            let Reverse((load, rank)) = open.pop().expect("the sizes add up");
            hands[rank].push((cost, entry));
            let load = load + u128::from(cost);
            if hands[rank].len() < sizes[rank] {
                open.push(Reverse((load, rank)));
            } else {
                loads.insert((load, rank));
            }
        }
        hands.iter_mut().for_each(|hand| hand.sort_unstable());
        Self { hands, loads }
    }

    /// Returns the largest sum.
    fn largest(&self) -> u128 {
        self.loads.last().map_or(0, |(load, _)| *load)
    }

    /// Lets the rank with the largest sum exchange an entry with one of the ranks with the least ones, if both then have less than the
    /// largest sum. Returns whether it has.
    fn exchange(&mut self) -> bool {
        let Some(&(most, heavy)) = self.loads.last() else { return false };
        let found =
            self.loads.iter().take(PARTNERS).filter(|(_, light)| *light != heavy).find_map(|&(least, light)| {
                Some(((least, light), best_exchange(&self.hands[heavy], &self.hands[light], most - least)?))
            });
        let Some(((least, light), exchange)) = found else { return false };
        self.loads.remove(&(most, heavy));
        self.loads.remove(&(least, light));
        self.loads.insert((most - exchange.difference, heavy));
        self.loads.insert((least + exchange.difference, light));
        let given = self.hands[heavy].remove(exchange.heavy);
        let taken = self.hands[light].remove(exchange.light);
        for (rank, entry) in [(heavy, taken), (light, given)] {
            let hand = &mut self.hands[rank];
            hand.insert(hand.partition_point(|other| *other < entry), entry);
        }
        true
    }
}

/// Returns the exchange between two ranks, whose sums differ by `gap`, that leaves the smallest difference between them; `None` if each makes
/// it larger or leaves it. Of several, it is the one with the least cost of the first rank, and then of the second one.
fn best_exchange(heavy: &[CostOfEntry], light: &[CostOfEntry], gap: u128) -> Option<Exchange> {
    let mut best: Option<(u128, Exchange)> = None;
    for (number, (cost, _)) in heavy.iter().enumerate() {
        let wanted = u128::from(*cost).saturating_sub(gap / 2);
        let at = light.partition_point(|(other, _)| u128::from(*other) < wanted);
        let first = at.saturating_sub(1);
        for (other, (smaller, _)) in (first..).zip(&light[first..(at + 1).min(light.len())]) {
            let Some(difference) = cost.checked_sub(*smaller).map(u128::from) else { continue };
            if difference == 0 || difference >= gap {
                continue;
            }
            let left = gap.abs_diff(2 * difference);
            if best.as_ref().is_none_or(|(least, _)| left < *least) {
                best = Some((left, Exchange { heavy: number, light: other, difference }));
            }
        }
    }
    best.map(|(_, exchange)| exchange)
}
