//! The costs of an order: the blocks that nodes hold at once, and the bytes that they download.

use std::{collections::HashMap, ops::Range};

use serde::Serialize;
use spdl_order::{Item, ItemKind};

use super::dealt::DealtStep;

/// The largest number of samples from which costs are computed.
const MOST_SAMPLES: u64 = 20_000_000;

/// The ranks whose costs are computed, and how they share nodes.
#[derive(Clone, Debug)]
pub(crate) struct NodeRanks {
    /// The ranks to look at.
    pub(crate) ranks: Range<u32>,
    /// Number of ranks that share a node and its cache.
    pub(crate) ranks_per_node: u32,
}

/// The cost of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Costs {
    pub(crate) steps: u64,
    pub(crate) samples: u64,
    pub(crate) nodes: u32,
    pub(crate) blocks_alive_max: u64,
    pub(crate) cache_bytes_per_node: u64,
    pub(crate) downloads_per_dataset: f64,
    pub(crate) same_block_samples_per_batch: f64,
}

/// Adds up the costs of a plan, step by step: each node fetches a block at its first use on the node and keeps it until its last use.
pub(crate) struct CostTally {
    ranks: NodeRanks,
    costs: Costs,
    /// The first and the last step that uses a block, by node and block.
    uses: HashMap<(u32, u32), (u64, u64)>,
    rank_batches: u64,
    same_block: u64,
}

impl CostTally {
    /// Begins with no step.
    pub(crate) fn new(ranks: NodeRanks) -> Self {
        let nodes = (ranks.ranks.len() as u32).div_ceil(ranks.ranks_per_node);
        let costs = Costs { nodes, ..Costs::default() };
        Self { ranks, costs, uses: HashMap::new(), rank_batches: 0, same_block: 0 }
    }

    /// Returns whether no more steps are looked at.
    pub(crate) const fn is_full(&self) -> bool {
        self.costs.samples >= MOST_SAMPLES
    }

    /// Adds the next step.
    pub(crate) fn add(&mut self, step: &DealtStep<'_>) {
        let Self { ranks: NodeRanks { ranks, ranks_per_node }, costs, uses, .. } = self;
        let (mut items, mut blocks): (Vec<Item>, Vec<u32>) = Default::default();
        for rank in ranks.clone() {
            step.rank_items(rank, &mut items);
            if items.is_empty() {
                continue;
            }
            blocks.clear();
            blocks.extend(items.iter().filter(|item| item.kind != ItemKind::Invalid).map(|item| item.located.block));
            costs.samples += blocks.len() as u64;
            for block in &blocks {
                let span =
                    uses.entry(((rank - ranks.start) / *ranks_per_node, *block)).or_insert((costs.steps, costs.steps));
                span.1 = costs.steps;
            }
            blocks.sort_unstable();
            let shared = blocks.chunk_by(|a, b| a == b).filter(|run| run.len() > 1).map(<[u32]>::len).sum::<usize>();
            self.same_block += shared as u64;
            self.rank_batches += 1;
        }
        costs.steps += 1;
    }

    /// Returns the costs of a plan whose blocks have these sizes in bytes.
    pub(crate) fn costs(self, block_bytes: &[u64]) -> Costs {
        let Self { mut costs, uses, rank_batches, same_block, .. } = self;
        let bytes_of = |block: u32| block_bytes[block as usize];
        let downloads: u64 = uses.keys().map(|(_, block)| bytes_of(*block)).sum();
        let dataset: u64 = block_bytes.iter().sum();
        costs.downloads_per_dataset = downloads as f64 / dataset.max(1) as f64;
        costs.same_block_samples_per_batch = same_block as f64 / rank_batches.max(1) as f64;
        for node in 0..costs.nodes {
            let mut changes: Vec<(u64, bool, u64)> = Vec::new();
            for ((_, block), (first, last)) in uses.iter().filter(|((of, _), _)| *of == node) {
                changes.push((*first, true, bytes_of(*block)));
                changes.push((*last + 1, false, bytes_of(*block)));
            }
            // Within a step, blocks are dropped before others are fetched: `false` sorts before `true`.
            changes.sort_unstable();
            let (mut alive, mut bytes) = (0u64, 0u64);
            for (_, begins, size) in changes {
                if begins {
                    alive += 1;
                    bytes += size;
                } else {
                    alive -= 1;
                    bytes -= size;
                }
                costs.blocks_alive_max = costs.blocks_alive_max.max(alive);
                costs.cache_bytes_per_node = costs.cache_bytes_per_node.max(bytes);
            }
        }
        costs
    }
}
