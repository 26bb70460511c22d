//! A worker's shell: ranks that attach, a store that may be down, heartbeats to the coordinator.

mod blocks;
mod decode;
mod feed;
mod heartbeats;
mod help;
mod sharing;
mod shutdown;

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use spdl_control::{
    messages::{Home, Session},
    peers::PeerMap,
};
use spdl_feed::{BadLedger, FeedCore};
use spdl_insight::Transport;
use spdl_types::{NodeId, Position, WorkerId, backoff::Backoff};

use self::{
    blocks::{SimBlocks, StepBlocks},
    help::{OpenBatch, SimHelp},
    sharing::{BegunSample, SimMember, SimSharing},
};
use crate::{
    asking::Asking,
    net::{ConnId, SimMessage},
    oracle::ReportedBadSample,
    process::{Running, SimProcess, Target},
    slab::{Content, SharedSlab},
    world::{ProcessInput, World},
};

/// The largest number of bad samples in a heartbeat: fewer than in the shell, so that they are split.
const BAD_PER_HEARTBEAT: usize = 2;
/// As in the shell: the pause until the next heartbeat if there are more bad samples, and after a refusal.
const MORE_BAD_US: u64 = 20_000;
const REFUSED_US: u64 = 500_000;
/// As in the shell: the pauses while no coordinator answers.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));

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
    /// The blocks of the steps that were begun, by the positions where the steps begin.
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
}
