//! A worker's shell: ranks that attach, a store that may be down, heartbeats to the coordinator.

mod blocks;
mod heartbeats;
mod help;
mod sharing;

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use spdl_control::{
    messages::{Home, Session, ToCoordinator},
    peers::PeerMap,
};
use spdl_feed::{BadLedger, BadSampleKind, FeedCore, FeedEffect, Remedy, remedy};
use spdl_insight::{Transport, tuning::Tunable};
use spdl_job::{BadSamples, layout::entry_flags};
use spdl_order::{Item, ItemKind, Step};
use spdl_types::{BadSample, NodeId, Position, SampleId, WorkerId, backoff::Backoff};

use self::{
    blocks::{SimBlocks, StepBlocks},
    help::{OpenBatch, SimHelp},
    sharing::{Begun, BegunSample, SimMember, SimSharing},
};
use crate::{
    asking::Asking,
    net::{ConnId, SimMessage},
    oracle::ReportedBadSample,
    process::{Running, SimProcess, Target},
    scenario::{JobDataset, SLOW_FILL},
    slab::{Content, SharedSlab, SlotEntry, slab},
    world::{Action, Event, ProcessInput, World},
};

/// The largest number of bad samples in a heartbeat: fewer than in the shell, so that they are split.
const BAD_PER_HEARTBEAT: usize = 2;
/// As in the shell: the pause until the next heartbeat if there are more bad samples, and after a refusal.
const MORE_BAD_US: u64 = 20_000;
const REFUSED_US: u64 = 500_000;
/// As in the shell: the pauses while no coordinator answers.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
/// The phases of a shutdown: how long the worker waits for the coordinator, how long it continues to serve clients, and
/// how long the clients remain that have found no other home.
const NOTICE_US: u64 = 300_000;
const DRAIN_US: u64 = 900_000;
const CLOSE_US: u64 = 300_000;
/// The number of attempts at a store that is down, with a pause after each, before the batch fails.
const STORE_ATTEMPTS: u32 = 8;
const STORE_PAUSE_US: u64 = 400_000;

pub(crate) struct SimWorker {
    pub(crate) process: SimProcess,
    pub(crate) asking: Asking,
    id: WorkerId,
    feeds: BTreeMap<ConnId, SimFeed>,
    bad: BadLedger,
    /// The bad samples in the heartbeat in progress.
    reported: Vec<ReportedBadSample>,
    help: SimHelp,
    blocks: SimBlocks,
    sharing: SimSharing,
    peer_map: PeerMap,
    failures: u32,
    heartbeat_state: HeartbeatState,
    shutdown: SimShutdown,
    /// Only the latest timer of each kind counts: one for heartbeats, one for leaving.
    heartbeat_timer: u64,
    leave_timer: u64,
}

/// The state of the task that sends heartbeats, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeartbeatState {
    /// A heartbeat was sent and not answered yet.
    Asking {
        is_draining: bool,
    },
    /// The last heartbeat was answered: a change, or the loss of the connection, triggers the next one at once.
    Resting {
        is_draining: bool,
    },
    /// No coordinator answered.
    BackingOff,
    Ended,
}

/// How far the shutdown of a worker has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimShutdown {
    Running,
    /// The coordinator is being informed.
    Draining,
    /// The ranks were informed, and are served until they have left.
    Announced,
    /// The remaining ranks are disconnected.
    Closing,
    /// The coordinator is being sent the leave request.
    Gone,
}

/// A rank that is served.
struct SimFeed {
    /// Present once the dataset is open.
    core: Option<FeedCore>,
    session: Session,
    rank: u32,
    from: Position,
    slots: u32,
    slab: SharedSlab,
    /// The batches whose samples are decoded one by one.
    open: BTreeMap<u64, OpenBatch>,
    /// Its part in sharing decoded samples, if it takes part in that.
    member: Option<SimMember>,
    /// The samples that are being decoded, by their batches.
    begun: BTreeMap<u64, Vec<BegunSample>>,
    /// The blocks of the steps that were begun, by where these begin.
    steps: BTreeMap<Position, StepBlocks>,
    /// The content that each slot is being filled with.
    filling: BTreeMap<u32, Rc<Content>>,
    transport: Transport,
    batches: u64,
    /// The batches that can never be made.
    failed: BTreeSet<u64>,
}

/// The store that all workers read.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) away_until_us: u64,
    pub(crate) slow_until_us: u64,
}

impl SimWorker {
    pub(crate) fn new(host: usize) -> Self {
        Self {
            process: SimProcess::new(host),
            asking: Asking::default(),
            id: WorkerId(0),
            feeds: BTreeMap::new(),
            bad: BadLedger::default(),
            reported: Vec::new(),
            help: SimHelp::default(),
            blocks: SimBlocks::new(0),
            sharing: SimSharing::default(),
            peer_map: PeerMap::default(),
            failures: 0,
            heartbeat_state: HeartbeatState::Ended,
            shutdown: SimShutdown::Running,
            heartbeat_timer: 0,
            leave_timer: 0,
        }
    }

    pub(crate) fn serves(&self) -> usize {
        self.feeds.len()
    }
}

pub(crate) fn socket_of(worker: usize) -> String {
    format!("/run/w{worker}.sock")
}

pub(crate) fn node_of(host: usize) -> NodeId {
    NodeId(format!("n{host}"))
}

/// Returns the worker with a home's address.
pub(crate) fn worker_at(home: &Home) -> usize {
    usize::from(home.quic.port() - 7500)
}

impl World {
    pub(crate) fn start_worker(&mut self, worker: usize) {
        let (now_us, drift, cache_samples) = (self.now_us, self.scenario.drift, self.scenario.cache_samples);
        let state = &mut self.workers[worker];
        state.process.start(now_us, drift, &mut self.dice);
        state.id = WorkerId(self.dice.bits());
        state.asking = Asking::default();
        state.feeds.clear();
        state.bad = BadLedger::default();
        state.reported.clear();
        state.help = SimHelp::new(now_us);
        state.blocks = SimBlocks::new(cache_samples);
        state.sharing = SimSharing::default();
        state.peer_map = PeerMap::default();
        state.failures = 0;
        state.heartbeat_state = HeartbeatState::BackingOff;
        state.shutdown = SimShutdown::Running;
        self.heartbeat_after(worker, 100, HeartbeatState::BackingOff);
    }

    pub(crate) fn kill_worker(&mut self, worker: usize) {
        self.workers[worker].feeds.clear();
        self.workers[worker].process.running = Running::Dead;
        self.close_all(Target::Worker(worker));
    }

    /// Begins a shutdown, as on SIGTERM: informs the coordinator, then the clients, which are served until they have
    /// left or the time is up.
    pub(crate) fn leave_worker(&mut self, worker: usize) {
        if self.workers[worker].shutdown == SimShutdown::Running {
            self.workers[worker].shutdown = SimShutdown::Draining;
            self.leave_after(worker, NOTICE_US);
            self.heartbeat_at_once(worker);
        }
    }

    fn leave_after(&mut self, worker: usize, delay_us: u64) {
        let timer = self.workers[worker].leave_timer + 1;
        self.workers[worker].leave_timer = timer;
        self.remind(delay_us, Target::Worker(worker), ProcessInput::Leave { timer });
    }

    fn on_leave(&mut self, worker: usize) {
        let target = Target::Worker(worker);
        let conns: Vec<ConnId> = self.workers[worker].feeds.keys().copied().collect();
        let (shutdown, next_us) = match self.workers[worker].shutdown {
            SimShutdown::Running | SimShutdown::Draining => (SimShutdown::Announced, DRAIN_US),
            SimShutdown::Announced => (SimShutdown::Closing, CLOSE_US),
            SimShutdown::Closing => {
                self.workers[worker].shutdown = SimShutdown::Gone;
                self.workers[worker].heartbeat_state = HeartbeatState::Ended;
                let leave = ToCoordinator::WorkerLeave { worker: self.workers[worker].id };
                self.ask_nothing_more(target);
                self.ask(target, leave);
                return self.leave_after(worker, NOTICE_US);
            }
            SimShutdown::Gone => return self.exit_worker(worker),
        };
        self.workers[worker].shutdown = shutdown;
        for conn in conns {
            match shutdown {
                SimShutdown::Announced => self.send(conn, 1, SimMessage::Leaving),
                _ => self.end_feed(worker, conn),
            }
        }
        self.leave_after(worker, next_us);
        self.leave_when_served(worker);
    }

    /// Continues the shutdown early if all ranks have left.
    fn leave_when_served(&mut self, worker: usize) {
        let state = &self.workers[worker];
        if state.feeds.is_empty() && (SimShutdown::Announced..=SimShutdown::Closing).contains(&state.shutdown) {
            self.leave_after(worker, 1);
        }
    }

    fn exit_worker(&mut self, worker: usize) {
        self.kill_worker(worker);
        let away_us = self.dice.within(1_000_000, 10_000_000);
        self.schedule(away_us, Event::World(Action::Start(Target::Worker(worker))));
    }

    pub(crate) fn worker_input(&mut self, worker: usize, input: ProcessInput) {
        let target = Target::Worker(worker);
        match input {
            ProcessInput::Heartbeat { timer } => {
                let state = &self.workers[worker];
                let is_due =
                    matches!(state.heartbeat_state, HeartbeatState::Resting { .. } | HeartbeatState::BackingOff);
                if is_due && timer == state.heartbeat_timer {
                    self.heartbeat(worker);
                }
            }
            ProcessInput::AnswerTimeout { id } => self.answer_timed_out(target, id),
            ProcessInput::Opened { conn } => self.on_opened(worker, conn),
            ProcessInput::Decoded { conn, sequence, samples } => {
                let now_us = self.now_us;
                self.workers[worker].help.end_decoding(now_us, samples);
                let feed = self.workers[worker].feeds.get_mut(&conn);
                let begun = feed.and_then(|feed| feed.begun.remove(&sequence)).unwrap_or_default();
                self.finish_samples(worker, conn, begun);
                self.on_fill_done(worker, conn, sequence, 0);
            }
            ProcessInput::FillDone { conn, sequence, attempts } => self.on_fill_done(worker, conn, sequence, attempts),
            ProcessInput::SampleDecoded { conn, sequence } => self.on_sample_decoded(worker, conn, sequence),
            ProcessInput::HelpTimeout { id } => self.on_help_timeout(worker, id),
            ProcessInput::Helped { conn, id, columns } => self.on_helped(worker, conn, id, columns),
            ProcessInput::Leave { timer } => {
                if timer == self.workers[worker].leave_timer {
                    self.on_leave(worker);
                }
            }
            other => unreachable!("{other:?} is not for a worker"),
        }
    }

    pub(crate) fn worker_lost(&mut self, worker: usize, conn: ConnId) {
        if !self.drop_feed(worker, conn) {
            self.block_link_lost(worker, conn);
            if !self.helper_lost(worker, conn) {
                self.asking_lost(Target::Worker(worker), conn);
            }
            return;
        }
        self.forget_lent(worker, conn);
        self.leave_when_served(worker);
    }

    pub(crate) fn worker_receives(&mut self, worker: usize, conn: ConnId, message: SimMessage) {
        match message {
            SimMessage::Answer { id, body, .. } => self.answered(Target::Worker(worker), id, *body),
            SimMessage::Attach { session, rank, from, slots } => {
                self.on_attach(worker, conn, *session, rank, from, slots)
            }
            SimMessage::Freed { slot } => {
                let Some(feed) = self.workers[worker].feeds.get_mut(&conn) else { return };
                let is_lent = feed.core.as_mut().is_some_and(|core| core.handle_freed(slot));
                if !is_lent {
                    return self.fail(format!("slot {slot} of worker {worker} was freed and not lent"));
                }
                self.carry_out_feed(worker, conn);
            }
            SimMessage::HelpAsk { id, seed, samples } => self.on_help_ask(worker, conn, id, seed, &samples),
            SimMessage::BlockAsk { key, is_for_owner } => self.on_block_ask(worker, conn, key, is_for_owner),
            SimMessage::Block { key, bytes } => self.on_block(worker, key, bytes),
            SimMessage::HelpAnswer { id, columns } => self.on_help_answer(worker, id, &columns),
            SimMessage::HelpBusy { id } => self.on_help_busy(worker, id),
            other => unreachable!("{other:?} is not for a worker"),
        }
    }

    fn on_attach(&mut self, worker: usize, conn: ConnId, session: Session, rank: u32, from: Position, slots: u32) {
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

    fn on_opened(&mut self, worker: usize, conn: ConnId) {
        if self.now_us < self.store.away_until_us {
            return self.remind(STORE_PAUSE_US, Target::Worker(worker), ProcessInput::Opened { conn });
        }
        let state = &mut self.workers[worker];
        let Some(feed) = state.feeds.get_mut(&conn) else { return };
        let dataset = self.scenario.dataset(&feed.session.job.name);
        state.blocks.enter(dataset);
        if self.scenario.shares_samples {
            feed.member = Some(state.sharing.join(feed.session.id, &dataset.job, self.now_us / 1_000));
        }
        let steps = feed.session.steps_of(feed.rank);
        feed.core = Some(FeedCore::new(steps, feed.from, feed.slots, Tunable::ReadAhead.initial()));
        self.carry_out_feed(worker, conn);
    }

    fn carry_out_feed(&mut self, worker: usize, conn: ConnId) {
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

    fn end_feed(&mut self, worker: usize, conn: ConnId) {
        self.drop_feed(worker, conn);
        self.forget_lent(worker, conn);
        self.close(conn, 1);
    }

    /// Removes a rank that is not served any more. Returns false if the connection was none of a rank.
    fn drop_feed(&mut self, worker: usize, conn: ConnId) -> bool {
        let state = &mut self.workers[worker];
        let Some(feed) = state.feeds.remove(&conn) else { return false };
        if let Some(member) = feed.member {
            state.sharing.leave(member);
        }
        if feed.core.is_some() {
            let dataset = self.scenario.dataset(&feed.session.job.name);
            state.blocks.leave(dataset, feed.steps.into_values());
        }
        true
    }

    /// Begins to fetch the blocks of a step, and announces its samples.
    fn prepare(&mut self, worker: usize, conn: ConnId, step: &Step) {
        let SimWorker { feeds, sharing, .. } = &mut self.workers[worker];
        let feed = feeds.get_mut(&conn).expect("its effects are carried out");
        let dataset = self.scenario.dataset(&feed.session.job.name);
        let mut items = Vec::new();
        dataset.plan.rank_items(step, feed.rank, feed.session.world, &mut items);
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
        let mut items = Vec::new();
        let dataset = self.scenario.dataset(&feed.session.job.name);
        dataset.plan.rank_items(step, feed.rank, feed.session.world, &mut items);
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

    /// Decodes samples of a rank. Returns their entries, or `None` if the job fails, and the samples of which
    /// [`finish_samples`](Self::finish_samples) is to be told once this is done.
    fn decode(&mut self, worker: usize, conn: ConnId, items: &[Item]) -> (Option<Vec<SlotEntry>>, Vec<BegunSample>) {
        let (may_keep, now_ms) = (!self.dice.percent(5), self.now_us / 1_000);
        let SimWorker { feeds, bad, blocks, sharing, .. } = &mut self.workers[worker];
        let feed = &feeds[&conn];
        let dataset = self.scenario.dataset(&feed.session.job.name);
        let mut begun = Vec::new();
        let taken = sharing.taken();
        let decode_or_take = |item: &Item| {
            let member = feed.member.filter(|_| item.kind != ItemKind::Invalid);
            let begin = member.map(|member| sharing.begin(member, item, may_keep, now_ms));
            if let Some(Begun::Take(columns)) = begin {
                let id = item.located.id.0;
                return Some(SlotEntry { at: item.at, id, flags: item_flags(item), columns: Some(columns) });
            }
            let entry = decode(item, dataset, bad, blocks);
            if let Some(Begun::Decode { is_kept }) = begin {
                let own = entry.filter(|entry| is_kept && entry.id == item.located.id.0);
                begun.push(SimSharing::begun(item, own.and_then(|entry| entry.columns)));
            }
            entry
        };
        let entries = items.iter().map(decode_or_take).collect();
        for _ in taken..sharing.taken() {
            self.coverage.count("sample_taken_from_another_session");
        }
        (entries, begun)
    }

    /// Notes that samples have been decoded, which others may take now.
    fn finish_samples(&mut self, worker: usize, conn: ConnId, begun: Vec<BegunSample>) {
        let SimWorker { feeds, sharing, .. } = &mut self.workers[worker];
        let Some(member) = feeds.get(&conn).and_then(|feed| feed.member) else { return };
        begun.into_iter().for_each(|begun| sharing.finish(member, begun));
    }

    fn count_entry(&mut self, entry: &SlotEntry) {
        for (flag, name) in [
            (entry_flags::SUBSTITUTED, "bad_sample_substituted"),
            (entry_flags::MASKED, "bad_sample_masked"),
            (entry_flags::PADDING, "entry_padded"),
            (entry_flags::INVALID, "entry_invalid"),
        ] {
            if entry.flags & flag != 0 {
                self.coverage.count(name);
            }
        }
    }

    fn set_entries(&mut self, worker: usize, conn: ConnId, slot: u32, entries: Vec<SlotEntry>) {
        let feed = self.workers[worker].feeds.get_mut(&conn).expect("its batch is being filled");
        let content = feed.filling.get_mut(&slot).expect("the slot is being filled");
        Rc::make_mut(content).entries = entries;
    }

    /// Handles a batch whose samples have been decoded one by one.
    fn on_all_decoded(&mut self, worker: usize, conn: ConnId, sequence: u64, slot: u32, entries: Vec<SlotEntry>) {
        self.set_entries(worker, conn, slot, entries);
        self.on_fill_done(worker, conn, sequence, 0);
    }

    fn on_fill_done(&mut self, worker: usize, conn: ConnId, sequence: u64, attempts: u32) {
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

/// Decodes an entry under the worker's policy for bad samples; returns `None` if the job fails.
fn decode(item: &Item, dataset: &JobDataset, ledger: &mut BadLedger, blocks: &mut SimBlocks) -> Option<SlotEntry> {
    let mut flags = item_flags(item);
    let mut located = item.located;
    let mut id = located.id.0;
    let mut attempts = 0;
    while item.kind != ItemKind::Invalid && dataset.bad.contains(&id) {
        let bad = BadSample {
            job: dataset.job.name.clone(),
            sample: SampleId(id),
            shard: "s".into(),
            key: "k".into(),
            cause: "c".into(),
        };
        let remedy = remedy(dataset.job.bad_samples, &dataset.plan, item.at, attempts);
        if remedy == Remedy::Fail {
            // As in the worker: before the bad sample is recorded.
            return None;
        }
        ledger.record(&dataset.job, dataset.job.dataset_fingerprint, bad, &BadSampleKind::default()).verdict.ok()?;
        match remedy {
            Remedy::Substitute(substitute) => {
                located = substitute;
                id = located.id.0;
                flags |= entry_flags::SUBSTITUTED;
                attempts += 1;
            }
            Remedy::Mask => {
                assert_eq!(dataset.job.bad_samples, BadSamples::Mask, "the job decides what is done");
                flags |= entry_flags::MASKED;
                break;
            }
            other => unreachable!("{other:?} is no remedy for so few bad samples"),
        }
    }
    let has_columns = flags & (entry_flags::INVALID | entry_flags::MASKED) == 0;
    let content = || JobDataset::content(blocks.sample(dataset, &located), dataset.job.seed, item.at.epoch);
    Some(SlotEntry { at: item.at, id, flags, columns: has_columns.then(content) })
}

/// Returns the flags of an entry whose sample decodes.
const fn item_flags(item: &Item) -> u32 {
    match item.kind {
        ItemKind::Sample => 0,
        ItemKind::Padding => entry_flags::PADDING,
        ItemKind::Invalid => entry_flags::INVALID,
    }
}
