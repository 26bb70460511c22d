//! The runs of sequences that further pieces may fit into, by how full they are.
//!
//! Packing takes the fullest run with enough room for each room, some thousand times a pool. In a list of levels, with a bit for each that has
//! runs, it is mostly found in one look.

use std::{collections::BTreeMap, mem::replace};

/// Up to so many levels there is a list of them. It is cleared for each pool.
const MAX_LISTED: u32 = 1 << 20;
/// The number of no node.
const NONE: u32 = u32::MAX;

/// Neighbouring sequences in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenRun {
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// Pieces in each.
    pub(crate) pieces: u32,
}

/// The runs of each level. The sequences of one level are equally full, those of a higher level are fuller.
#[derive(Debug)]
pub(crate) struct OpenRuns {
    /// The root of the heap of each level: a pairing heap, whose root is the run with the lowest number.
    roots: LevelRoots,
    nodes: Vec<HeapNode>,
    /// The first of the nodes without a run, which are linked by `next`.
    unused: u32,
}

#[derive(Debug)]
enum LevelRoots {
    /// Those of all levels, and which of them have one.
    Listed(Vec<u32>, Vec<u64>),
    Sorted(BTreeMap<u32, u32>),
}

#[derive(Debug)]
struct HeapNode {
    run: OpenRun,
    /// The first of the heaps below it.
    child: u32,
    /// The next heap below the same node.
    next: u32,
}

impl OpenRuns {
    /// Creates levels 0 to `highest` without runs.
    pub(crate) fn new(highest: u32) -> Self {
        let roots = match highest < MAX_LISTED {
            true => LevelRoots::Listed(vec![NONE; highest as usize + 1], vec![0; highest as usize / 64 + 1]),
            false => LevelRoots::Sorted(BTreeMap::new()),
        };
        Self { roots, nodes: Vec::new(), unused: NONE }
    }

    /// Adds a run to a level.
    pub(crate) fn push(&mut self, level: u32, run: OpenRun) {
        let node = HeapNode { run, child: NONE, next: NONE };
        let number = if self.unused == NONE {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let number = self.unused;
            self.unused = replace(&mut self.nodes[number as usize], node).next;
            number
        };
        let root = self.roots.of(level);
        let root = if root == NONE { number } else { self.meld(root, number) };
        self.roots.set(level, root);
    }

    /// Takes the first run of the highest level that has runs, of levels up to `most`; returns it with its level.
    pub(crate) fn take(&mut self, most: u32) -> Option<(u32, OpenRun)> {
        let level = self.roots.highest(most)?;
        let number = self.roots.of(level);
        let HeapNode { run, child, .. } = self.nodes[number as usize];
        self.nodes[number as usize].next = replace(&mut self.unused, number);
        let root = self.melded(child);
        self.roots.set(level, root);
        Some((level, run))
    }

    /// Makes one heap of two.
    fn meld(&mut self, one: u32, other: u32) -> u32 {
        let first = |number: u32| self.nodes[number as usize].run.first;
        let (root, below) = if first(one) < first(other) { (one, other) } else { (other, one) };
        let sibling = replace(&mut self.nodes[root as usize].child, below);
        self.nodes[below as usize].next = sibling;
        root
    }

    /// Makes one heap of those that begin with `heap`, in pairs and then from the last pair to the first; `NONE` if there are none.
    fn melded(&mut self, mut heap: u32) -> u32 {
        let mut pairs = NONE;
        while heap != NONE {
            let other = self.nodes[heap as usize].next;
            let (pair, next) = match other {
                NONE => (heap, NONE),
                _ => {
                    let next = self.nodes[other as usize].next;
                    (self.meld(heap, other), next)
                }
            };
            self.nodes[pair as usize].next = pairs;
            (pairs, heap) = (pair, next);
        }
        let mut root = NONE;
        while pairs != NONE {
            let next = self.nodes[pairs as usize].next;
            root = if root == NONE { pairs } else { self.meld(root, pairs) };
            pairs = next;
        }
        root
    }
}

impl LevelRoots {
    fn of(&self, level: u32) -> u32 {
        match self {
            Self::Listed(roots, _) => roots[level as usize],
            Self::Sorted(roots) => roots.get(&level).copied().unwrap_or(NONE),
        }
    }

    fn set(&mut self, level: u32, root: u32) {
        match self {
            Self::Listed(roots, used) => {
                roots[level as usize] = root;
                let (bit, word) = (1 << (level % 64), &mut used[level as usize / 64]);
                if root == NONE { *word &= !bit } else { *word |= bit }
            }
            Self::Sorted(roots) if root == NONE => drop(roots.remove(&level)),
            Self::Sorted(roots) => drop(roots.insert(level, root)),
        }
    }

    /// Returns the highest level with a root, of those up to `most`.
    fn highest(&self, most: u32) -> Option<u32> {
        match self {
            Self::Listed(_, used) => {
                let mut word = (most / 64) as usize;
                let mut bits = used[word] & (u64::MAX >> (63 - most % 64));
                while bits == 0 {
                    word = word.checked_sub(1)?;
                    bits = used[word];
                }
                Some(word as u32 * 64 + bits.ilog2())
            }
            Self::Sorted(roots) => roots.range(..=most).next_back().map(|(level, _)| *level),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_run_of_the_fullest_is_taken(
            highest in prop_oneof![Just(0_u32), 1_u32..200, Just(MAX_LISTED - 1), Just(MAX_LISTED), Just(u32::MAX)],
            steps in prop::collection::vec((any::<bool>(), 0_u32..300), 0..200),
        ) {
            let (mut runs, mut expected) = (OpenRuns::new(highest), BTreeSet::new());
            for (number, (is_push, level)) in (0_u32..).zip(steps) {
                // Every number once, in no order.
                let (level, first) = (level.min(highest), number.wrapping_mul(0x9e37_79b1));
                if is_push {
                    runs.push(level, OpenRun { first, count: number, pieces: level });
                    expected.insert((level, u32::MAX - first, number));
                } else {
                    let next = expected.range(..(level + 1, 0, 0)).next_back().copied();
                    next.inspect(|next| assert!(expected.remove(next)));
                    let next = next.map(|(at, first, count)| {
                        (at, OpenRun { first: u32::MAX - first, count, pieces: at })
                    });
                    prop_assert_eq!(runs.take(level), next);
                }
            }
        }
    }
}
