//! The ranks that a worker serves: they attach, and their batches are planned, filled and handed over.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use spdl_control::messages::Session;
use spdl_feed::{FeedCore, FeedEffect};
use spdl_insight::{Transport, tuning::Tunable};
use spdl_order::Step;
use spdl_types::Position;

use super::{SimFeed, SimShutdown, SimWorker, help::OpenBatch};
use crate::{
    net::{ConnId, SimMessage},
    process::Target,
    scenario::SLOW_FILL,
    slab::{Content, SlotEntry, slab},
    world::{ProcessInput, World},
};

/// The number of attempts at a store that is down, with a pause after each, before the batch fails.
const STORE_ATTEMPTS: u32 = 8;
const STORE_PAUSE_US: u64 = 400_000;

impl World {
    pub(super) fn on_attach(
        &mut self,
        worker: usize,
        conn: ConnId,
        session: Session,
        rank: u32,
        from: Position,
        slots: u32,
    ) {
        if self.workers[worker].shutdown >= SimShutdown::Announced {
            return self.close(conn, 1);
        }
        if self.scenario.help_role(worker).is_some_and(|role| role.is_helper_only) {
            return self.fail(format!("rank {rank} comes to worker {worker}, which only helps others"));
        }
        // In the calm phase there is also room for ranks of older launches that are still running.
        let is_full = !self.is_calm && self.workers[worker].feeds.len() >= self.scenario.max_ranks;
        if is_full || self.dice.percent(self.scenario.refused_percent) {
            self.coverage.count(if is_full { "rank_refused_at_the_limit" } else { "rank_refused_for_memory" });
            self.send(conn, 1, SimMessage::Fault { message: "there is no room".into(), is_retryable: true });
            return self.close(conn, 1);
        }
        // If memory is short, the rank gets fewer slots.
        let slots = if self.dice.percent(10) { slots.min(2) } else { slots };
        let transport = self.conns[&conn].transport;
        let slab = slab(slots);
        let shared = (transport == Transport::Local).then(|| slab.clone());
        let feed = SimFeed {
            core: None,
            session,
            rank,
            from,
            slots,
            slab,
            open: BTreeMap::new(),
            member: None,
            begun: BTreeMap::new(),
            steps: BTreeMap::new(),
            filling: BTreeMap::new(),
            transport,
            batches: 0,
            failed: BTreeSet::new(),
        };
        self.workers[worker].feeds.insert(conn, feed);
        self.send(conn, 1, SimMessage::Attached { slots, slab: shared });
        let open_us = self.dice.within(100, 20_000);
        self.remind(open_us, Target::Worker(worker), ProcessInput::Opened { conn });
    }

    pub(super) fn on_opened(&mut self, worker: usize, conn: ConnId) {
        if self.now_us < self.store.away_until_us {
            return self.remind(STORE_PAUSE_US, Target::Worker(worker), ProcessInput::Opened { conn });
        }
        let state = &mut self.workers[worker];
        let Some(feed) = state.feeds.get_mut(&conn) else { return };
        let dataset = self.scenario.dataset_of(&feed.session.job);
        state.blocks.enter(dataset);
        if self.scenario.shares_samples {
            feed.member = Some(state.sharing.join(feed.session.id, &dataset.job, self.now_us / 1_000));
        }
        let steps = feed.session.steps_of(feed.rank);
        feed.core = Some(FeedCore::new(steps, feed.from, feed.slots, Tunable::ReadAhead.initial()));
        self.carry_out_feed(worker, conn);
    }

    pub(super) fn carry_out_feed(&mut self, worker: usize, conn: ConnId) {
        while let Some(feed) = self.workers[worker].feeds.get_mut(&conn)
            && let Some(effect) = feed.core.as_mut().and_then(FeedCore::poll_effect)
        {
            match effect {
                FeedEffect::Prepare(step) => self.prepare(worker, conn, &step),
                FeedEffect::Fill { sequence, slot, step } => self.fill(worker, conn, sequence, slot, &step),
                FeedEffect::HandOver { sequence, slot } => self.hand_over(worker, conn, sequence, slot),
                FeedEffect::End { sequence, position } => self.send(conn, 1, SimMessage::End { sequence, position }),
                FeedEffect::Fail { sequence } => {
                    let is_retryable = !feed.failed.contains(&sequence);
                    let why = if is_retryable { "the store is away" } else { "too many bad samples" };
                    let message = format!("batch {sequence}: {why}");
                    self.send(conn, 1, SimMessage::Fault { message, is_retryable });
                    self.end_feed(worker, conn);
                }
            }
        }
    }

    pub(super) fn end_feed(&mut self, worker: usize, conn: ConnId) {
        self.drop_feed(worker, conn);
        self.forget_lent(worker, conn);
        self.close(conn, 1);
    }

    /// Removes a rank that is not served any more. Returns false if the connection was not that of a rank.
    pub(super) fn drop_feed(&mut self, worker: usize, conn: ConnId) -> bool {
        let state = &mut self.workers[worker];
        let Some(feed) = state.feeds.remove(&conn) else { return false };
        if let Some(member) = feed.member {
            state.sharing.leave(member);
        }
        if feed.core.is_some() {
            let dataset = self.scenario.dataset_of(&feed.session.job);
            state.blocks.leave(dataset, feed.steps.into_values());
        }
        true
    }

    /// Begins to fetch the blocks of a step, and announces its samples.
    fn prepare(&mut self, worker: usize, conn: ConnId, step: &Step) {
        let SimWorker { feeds, sharing, .. } = &mut self.workers[worker];
        let feed = feeds.get_mut(&conn).expect("its effects are carried out");
        let dataset = self.scenario.dataset_of(&feed.session.job);
        let items = dataset.rank_items(step, feed.rank, feed.session.world);
        if let Some(member) = feed.member {
            sharing.announce(member, &items);
        }
        self.prepare_blocks(worker, conn, step.from, &items);
    }

    fn fill(&mut self, worker: usize, conn: ConnId, sequence: u64, slot: u32, step: &Step) {
        let now_us = self.now_us;
        let is_slow = now_us < self.store.slow_until_us || self.dice.percent(2);
        let fill_us = self.dice.within(500, self.scenario.fill_us) * if is_slow { SLOW_FILL } else { 1 };
        let state = &mut self.workers[worker];
        let feed = state.feeds.get_mut(&conn).expect("its effects are carried out");
        // From now on the slot's memory is being written.
        feed.slab.borrow_mut()[slot as usize] = None;
        let dataset = self.scenario.dataset_of(&feed.session.job);
        let items = dataset.rank_items(step, feed.rank, feed.session.world);
        let content = Content {
            rank: feed.rank,
            world: feed.session.world,
            from: step.from,
            next: step.next,
            entries: Vec::new(),
        };
        feed.filling.insert(slot, Rc::new(content));
        if state.help.has_helpers() {
            feed.open.insert(sequence, OpenBatch::new(slot, items, fill_us));
            return self.go_on_with_batch(worker, conn, sequence);
        }
        let (entries, begun) = self.decode(worker, conn, &items);
        let samples = entries.as_ref().map_or(0, Vec::len);
        let state = &mut self.workers[worker];
        let feed = state.feeds.get_mut(&conn).expect("it was just found");
        feed.begun.insert(sequence, begun);
        state.help.begin_decoding(now_us);
        match entries {
            Some(entries) => {
                entries.iter().for_each(|entry| self.count_entry(entry));
                self.set_entries(worker, conn, slot, entries);
            }
            None => {
                feed.failed.insert(sequence);
            }
        }
        self.remind(fill_us, Target::Worker(worker), ProcessInput::Decoded { conn, sequence, samples });
    }

    fn set_entries(&mut self, worker: usize, conn: ConnId, slot: u32, entries: Vec<SlotEntry>) {
        let feed = self.workers[worker].feeds.get_mut(&conn).expect("its batch is being filled");
        let content = feed.filling.get_mut(&slot).expect("the slot is being filled");
        Rc::make_mut(content).entries = entries;
    }

    /// Handles a batch whose samples have been decoded one by one.
    pub(super) fn on_all_decoded(
        &mut self,
        worker: usize,
        conn: ConnId,
        sequence: u64,
        slot: u32,
        entries: Vec<SlotEntry>,
    ) {
        self.set_entries(worker, conn, slot, entries);
        self.on_fill_done(worker, conn, sequence, 0);
    }

    pub(super) fn on_fill_done(&mut self, worker: usize, conn: ConnId, sequence: u64, attempts: u32) {
        let is_away = self.now_us < self.store.away_until_us;
        let Some(feed) = self.workers[worker].feeds.get_mut(&conn) else { return };
        let cannot = feed.failed.contains(&sequence);
        let Some(core) = feed.core.as_mut() else { return };
        if is_away && attempts < STORE_ATTEMPTS {
            let again = ProcessInput::FillDone { conn, sequence, attempts: attempts + 1 };
            return self.remind(STORE_PAUSE_US, Target::Worker(worker), again);
        }
        if cannot {
            self.coverage.count("batch_failed_for_bad_samples");
            core.handle_failed(sequence);
        } else if is_away {
            self.coverage.count("store_fault_moved_a_rank");
            core.handle_failed(sequence);
        } else {
            core.handle_filled(sequence);
        }
        self.carry_out_feed(worker, conn);
    }

    fn hand_over(&mut self, worker: usize, conn: ConnId, sequence: u64, slot: u32) {
        let feed = self.workers[worker].feeds.get_mut(&conn).expect("its effects are carried out");
        let content = feed.filling.remove(&slot).expect("what is handed over was filled");
        let step = feed.steps.remove(&content.from);
        feed.batches += 1;
        feed.slab.borrow_mut()[slot as usize] = Some(content.clone());
        let content = (feed.transport == Transport::Quic).then_some(content);
        self.send(conn, 1, SimMessage::Filled { sequence, slot, content });
        if let Some(step) = step {
            self.workers[worker].blocks.end_step(step);
        }
        self.check_cache(worker);
    }
}
