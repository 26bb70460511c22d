//! The blocks of a worker: its cache, with the policy of the real one, and the blocks that it gets from other workers
//! and from the store. A model of the worker's `fetch`.
//!
//! The bytes of a block are one number, which its dataset and its number decide.

use std::collections::{BTreeMap, BTreeSet};

use spdl_control::peers::PeerAddress;
use spdl_feed::cache::{BlockKey, FirstCome, MemoryCache};
use spdl_insight::Transport;
use spdl_order::{Item, ItemKind, Located};
use spdl_types::{
    Position, WorkerId,
    mutations::{Mutation, mutated},
};

use crate::{
    net::{ConnId, SimMessage},
    process::Target,
    scenario::JobDataset,
    world::World,
};

/// A worker's cache of blocks, and its connections to the workers that it asks for others.
pub(super) struct SimBlocks {
    memory: MemoryCache<BlockKey, u64, FirstCome>,
    /// The most that it has held.
    most: u64,
    links: BTreeMap<WorkerId, ConnId>,
    /// The blocks that other workers were asked for.
    asked: BTreeSet<BlockKey>,
}

/// The blocks of one step of a rank.
#[derive(Debug, Default)]
pub(super) struct StepBlocks {
    planned: Vec<BlockKey>,
    /// The blocks that are held in the cache until the batch is handed over.
    held: Vec<u64>,
}

impl SimBlocks {
    pub(super) fn new(budget: u64) -> Self {
        let memory = MemoryCache::new(budget);
        Self { memory, most: 0, links: BTreeMap::new(), asked: BTreeSet::new() }
    }

    /// Returns a block's bytes if they are in the cache.
    fn kept(&mut self, key: &BlockKey) -> Option<u64> {
        let (id, bytes) = self.memory.hold(key).map(|(id, bytes)| (id, *bytes))?;
        self.memory.release(id);
        Some(bytes)
    }

    /// Keeps a block if there is room.
    fn keep(&mut self, key: BlockKey, size: u64, bytes: u64) {
        if self.kept(&key).is_none()
            && let Some(id) = self.memory.insert(key, size, bytes)
        {
            self.most = self.most.max(self.memory.used_bytes());
            self.memory.release(id);
        }
    }

    /// Returns the bytes of a block, from the cache or from the store.
    fn read(&mut self, dataset: &JobDataset, block: u32) -> u64 {
        let key = key(dataset, block);
        if let Some(bytes) = self.kept(&key) {
            return bytes;
        }
        let bytes = dataset.stored_block(block);
        self.keep(key, dataset.block_samples(block), bytes);
        bytes
    }

    /// Returns the stored bytes of a sample.
    pub(super) fn sample(&mut self, dataset: &JobDataset, located: &Located) -> u64 {
        JobDataset::stored_sample(self.read(dataset, located.block), located.index)
    }

    pub(super) fn enter(&mut self, dataset: &JobDataset) {
        self.memory.enter(dataset.job.dataset_fingerprint);
    }

    pub(super) fn leave(&mut self, dataset: &JobDataset, steps: impl IntoIterator<Item = StepBlocks>) {
        for step in steps {
            self.end_step(step);
        }
        self.memory.leave(dataset.job.dataset_fingerprint);
    }

    /// Notes that a rank is going to use these blocks, and holds those that are here.
    fn begin_step(&mut self, dataset: &JobDataset, blocks: &BTreeSet<u32>) -> StepBlocks {
        let mut step = StepBlocks::default();
        for block in blocks {
            let key = key(dataset, *block);
            self.memory.plan(key);
            step.planned.push(key);
            if let Some((id, _)) = self.memory.hold(&key) {
                step.held.push(id);
            }
        }
        step
    }

    /// Notes that a rank has used the blocks of a step.
    pub(super) fn end_step(&mut self, StepBlocks { planned, held }: StepBlocks) {
        for id in held {
            self.memory.release(id);
        }
        planned.into_iter().for_each(|key| self.memory.unplan(key));
    }
}

fn key(dataset: &JobDataset, block: u32) -> BlockKey {
    let fingerprint = dataset.job.dataset_fingerprint;
    let dataset = if mutated(Mutation::MixDatasets) { Default::default() } else { fingerprint };
    BlockKey { dataset, block }
}

impl World {
    /// Begins to fetch the blocks of a step that a rank is going to need: asks other workers for those that they may
    /// have.
    pub(super) fn prepare_blocks(&mut self, worker: usize, conn: ConnId, from: Position, items: &[Item]) {
        let state = &mut self.workers[worker];
        let feed = state.feeds.get_mut(&conn).expect("its effects are carried out");
        let dataset = self.scenario.dataset_of(&feed.session.job);
        let used = items.iter().filter(|item| item.kind != ItemKind::Invalid);
        let blocks: BTreeSet<u32> = used.map(|item| item.located.block).collect();
        let step = state.blocks.begin_step(dataset, &blocks);
        feed.steps.insert(from, step);
        let mut requests = Vec::new();
        for block in blocks {
            let key = key(dataset, block);
            if state.blocks.kept(&key).is_some() {
                self.coverage.count("block_found_in_the_cache");
                continue;
            }
            let session = feed.session.id;
            let owner = state.peer_map.owner(session, &dataset.plan, block);
            let holders = state.peer_map.holders(session, &dataset.plan, block);
            let asked = owner.into_iter().chain(holders).find(|address| address.worker != state.id);
            if let Some(address) = asked
                && state.blocks.asked.insert(key)
            {
                requests.push((address, key, owner == asked));
            }
        }
        for (address, key, is_for_owner) in requests {
            self.ask_for_block(worker, address, key, is_for_owner);
        }
    }

    fn ask_for_block(&mut self, worker: usize, address: PeerAddress, key: BlockKey, is_for_owner: bool) {
        let known = self.workers[worker].blocks.links.get(&address.worker).copied();
        let link = match known.filter(|link| self.is_open(*link, 0)) {
            Some(link) => link,
            None => {
                let to = Target::Worker(usize::from(address.quic.port() - 7500));
                self.connect(Target::Worker(worker), to, Transport::Quic)
            }
        };
        self.workers[worker].blocks.links.insert(address.worker, link);
        self.send(link, 0, SimMessage::BlockAsk { key, is_for_owner });
    }

    /// Answers another worker that asks for a block. One in fifty answers is wrong.
    pub(super) fn on_block_ask(&mut self, worker: usize, conn: ConnId, key: BlockKey, is_for_owner: bool) {
        let blocks = &mut self.workers[worker].blocks;
        let is_away = self.now_us < self.store.away_until_us;
        let bytes = match blocks.kept(&key) {
            None if is_for_owner && !is_away => {
                let of_key = |dataset: &&JobDataset| dataset.job.dataset_fingerprint == key.dataset;
                self.scenario.jobs.iter().find(of_key).map(|dataset| blocks.read(dataset, key.block))
            }
            kept => kept,
        };
        let bytes = bytes.map(|bytes| if self.dice.percent(2) { bytes ^ 1 } else { bytes });
        self.send(conn, 1, SimMessage::Block { key, bytes });
    }

    /// Keeps a block that came from another worker, if its checksum is right. The store has it otherwise.
    pub(super) fn on_block(&mut self, worker: usize, key: BlockKey, bytes: Option<u64>) {
        self.workers[worker].blocks.asked.remove(&key);
        let Some(bytes) = bytes else { return self.coverage.count("worker_did_not_have_a_block") };
        let of_key = |dataset: &&JobDataset| dataset.job.dataset_fingerprint == key.dataset;
        let Some(dataset) = self.scenario.jobs.iter().find(of_key) else { return };
        if bytes != dataset.stored_block(key.block) && !mutated(Mutation::BelieveWrongBlock) {
            return self.coverage.count("wrong_block_of_a_worker_discarded");
        }
        self.coverage.count("block_came_from_another_worker");
        self.workers[worker].blocks.keep(key, dataset.block_samples(key.block), bytes);
    }

    /// Drops the connection to a worker that was asked for blocks, and then all requests for blocks.
    pub(super) fn block_link_lost(&mut self, worker: usize, link: ConnId) {
        let blocks = &mut self.workers[worker].blocks;
        let before = blocks.links.len();
        blocks.links.retain(|_, known| *known != link);
        if blocks.links.len() < before {
            blocks.asked.clear();
        }
    }

    /// Checks that a worker's cache keeps to its budget.
    pub(super) fn check_cache(&mut self, worker: usize) {
        let SimBlocks { memory, most, .. } = &self.workers[worker].blocks;
        let (most, budget) = (*most, memory.budget_bytes());
        if most > budget {
            self.fail(format!("the cache of worker {worker} held {most} samples, and has room for {budget}"));
        }
    }
}
