//! The working window of a rank: the blocks that its plan has in use.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use spdl_feed::cache::BlockKey;
use spdl_types::{Fingerprint, Position};

use super::fetcher::Fetcher;

/// The blocks of datasets that the plan of one rank has in use. While the window exists, the datasets count as read by
/// the rank, and none of the window's blocks is evicted for others.
#[derive(Debug)]
pub(crate) struct WorkingWindow {
    fetcher: Arc<Fetcher>,
    datasets: Vec<Fingerprint>,
    /// The position from which on a block is not used any more.
    until: HashMap<BlockKey, Position>,
    ends: BTreeSet<(Position, BlockKey)>,
}

impl WorkingWindow {
    /// Creates the empty window of a rank that begins to read these datasets.
    pub(crate) fn new(fetcher: Arc<Fetcher>, datasets: Vec<Fingerprint>) -> Self {
        fetcher.requests.memory.enter();
        for dataset in &datasets {
            fetcher.memory.lock().enter(*dataset);
            fetcher.disk.iter().for_each(|disk| disk.enter(*dataset));
        }
        Self { fetcher, datasets, until: HashMap::new(), ends: BTreeSet::new() }
    }

    /// Adds blocks, each with the position from which on it is not used any more.
    pub(crate) fn add(&mut self, blocks: impl Iterator<Item = (BlockKey, Position)>) {
        let mut memory = self.fetcher.memory.lock();
        for (block, until) in blocks {
            match self.until.insert(block, until) {
                None => memory.plan(block),
                Some(before) => {
                    self.ends.remove(&(before, block));
                    self.until.insert(block, until.max(before));
                }
            }
            self.ends.insert((self.until[&block], block));
        }
    }

    /// Removes the blocks that no batch at or after `position` uses.
    pub(crate) fn advance(&mut self, position: Position) {
        let mut memory = self.fetcher.memory.lock();
        while let Some((until, block)) = self.ends.first().copied()
            && until <= position
        {
            self.ends.pop_first();
            self.until.remove(&block);
            memory.unplan(block);
        }
    }
}

impl Drop for WorkingWindow {
    fn drop(&mut self) {
        let mut memory = self.fetcher.memory.lock();
        for block in self.until.keys() {
            memory.unplan(*block);
        }
        self.datasets.iter().for_each(|dataset| memory.leave(*dataset));
        drop(memory);
        self.fetcher.requests.memory.leave();
        for dataset in &self.datasets {
            self.fetcher.disk.iter().for_each(|disk| disk.leave(*dataset));
        }
    }
}
