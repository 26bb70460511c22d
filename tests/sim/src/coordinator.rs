//! The coordinator's shell: requests in, changes to a disk that takes its time, replies out once they are durable.

use std::collections::VecDeque;

use spdl_coordinator::{
    core::{Answer, Change, ConnectionId, Coordinator, Durable, Effect, NearestThenLeastLoaded, Peer, Role},
    state::{MemoryState, StateStore},
};
use spdl_wire::{
    messages::{FromCoordinator, Refusal, ToCoordinator},
    planted::{Bug, has},
};

use crate::{
    net::{ConnId, Message},
    process::{Process, Target},
    world::{Action, Event, Input, World},
};

/// As the shell's: its clock, how often a write is tried again, and how long the answer to a beat waits for one.
const TICK_US: u64 = 200_000;
const RETRY_US: u64 = 1_000_000;
const BEAT_PATIENCE_US: u64 = 1_000_000;
/// The state is one that another coordinator can go on from.
const IS_SHARED: bool = true;

pub(crate) struct CoordinatorProcess {
    pub(crate) process: Process,
    core: Option<Coordinator>,
    /// The latest time that the core was told: its own, should its clock step back.
    newest_ms: u64,
    state: MemoryState,
    /// The state as it was at some time before.
    backup: MemoryState,
    waiting: VecDeque<Write>,
    /// All that is written together.
    writing: Vec<Write>,
    /// Changes that were refused, and go before all others.
    refused: Vec<Change>,
    pub(crate) disk: Disk,
    /// It is killed when it next writes changes that belong together.
    pub(crate) dies_writing: bool,
}

/// What it writes to.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) slow_until_us: u64,
    /// Each write takes tens of seconds.
    pub(crate) stuck_until_us: u64,
    /// It is full, or etcd is away.
    pub(crate) refuses_until_us: u64,
}

/// Changes, and what is said once they are durable.
struct Write {
    changes: Vec<Change>,
    reply: Option<Reply>,
}

struct Reply {
    conn: ConnId,
    id: u64,
    body: FromCoordinator,
    /// Refused where what it tells could not be written.
    must_last: bool,
}

impl CoordinatorProcess {
    pub(crate) fn new(host: usize) -> Self {
        Self {
            process: Process::new(host),
            core: None,
            newest_ms: 0,
            state: MemoryState::default(),
            backup: MemoryState::default(),
            waiting: VecDeque::new(),
            writing: Vec::new(),
            refused: Vec::new(),
            disk: Disk::default(),
            dies_writing: false,
        }
    }

    pub(crate) fn durable(&self) -> Durable {
        self.state.load().expect("memory does not fail")
    }

    /// Nothing waits to be written.
    fn is_quiet(&self) -> bool {
        self.writing.is_empty() && self.waiting.is_empty() && self.refused.is_empty()
    }

    pub(crate) fn status(&self) -> Option<spdl_coordinator::core::Status> {
        self.core.as_ref().map(Coordinator::status)
    }
}

impl World {
    pub(crate) fn start_coordinator(&mut self) {
        let (now_us, drift) = (self.now_us, self.scenario.drift);
        self.coordinator.process.start(now_us, drift, &mut self.dice);
        let now_ms = self.coordinator.process.clock.read_ms(now_us);
        let durable = self.coordinator.durable();
        if let Err(problem) = self.oracle.coordinator_started(&durable) {
            self.fail(problem);
        }
        let core = Coordinator::new(self.scenario.config, Box::new(NearestThenLeastLoaded), durable, now_ms);
        self.coordinator.core = Some(core);
        self.coordinator.newest_ms = now_ms;
        let job = self.scenario.job.clone();
        self.with_coordinator(None, false, |core, now_ms| {
            core.handle_job(now_ms, Ok(job));
        });
        self.remind(TICK_US, Target::Coordinator, Input::Tick);
    }

    /// Kills it. What was being written may have been written, all of it, and what was said after it was not.
    pub(crate) fn kill_coordinator(&mut self) {
        let writes: Vec<Write> = self.coordinator.writing.drain(..).collect();
        if !writes.is_empty() {
            let is_written = !self.is_refusing() && self.dice.percent(50);
            let mut changes = std::mem::take(&mut self.coordinator.refused);
            changes.extend(writes.iter().flat_map(|write| write.changes.clone()));
            let kept = if has(Bug::CutWrites) { self.dice.index(changes.len() + 1) } else { changes.len() };
            if is_written {
                self.apply(&changes[..kept]);
            }
            let is_said = writes.iter().any(|write| write.reply.is_some());
            match is_written {
                true if is_said => self.coverage.count("coordinator_crashed_after_persisting_before_replying"),
                true => {}
                false => self.coverage.count("coordinator_crashed_before_persisting"),
            }
        }
        self.coordinator.waiting.clear();
        self.coordinator.refused.clear();
        self.coordinator.core = None;
        self.process_mut(Target::Coordinator).running = crate::process::Running::Dead;
        self.close_all(Target::Coordinator);
    }

    /// Stops it in order: everything is durable, where that can be.
    pub(crate) fn stop_coordinator(&mut self) {
        self.with_coordinator(None, false, |core, _| core.flush());
        let coordinator = &mut self.coordinator;
        let mut changes = std::mem::take(&mut coordinator.refused);
        for write in coordinator.writing.drain(..).chain(coordinator.waiting.drain(..)) {
            changes.extend(write.changes);
        }
        if !self.is_refusing() {
            self.apply(&changes);
        }
        self.kill_coordinator();
    }

    fn is_refusing(&self) -> bool {
        self.now_us < self.coordinator.disk.refuses_until_us
    }

    /// Its disk is lost; the file of its job is not.
    pub(crate) fn wipe_coordinator(&mut self) {
        self.coverage.count("coordinator_lost_its_state");
        self.coordinator.state = MemoryState::default();
        self.oracle.coordinator_wiped();
    }

    /// Its disk is replaced by a copy that was made earlier.
    pub(crate) fn roll_back_coordinator(&mut self) {
        if self.coordinator.backup.load().is_ok_and(|durable| !durable.sessions.is_empty()) {
            self.coverage.count("coordinator_rolled_back");
        }
        self.coordinator.state = self.coordinator.backup.clone();
        self.oracle.coordinator_wiped();
    }

    fn apply(&mut self, changes: &[Change]) {
        self.coordinator.state.apply(changes).expect("memory does not fail");
    }

    /// Runs the core, and hands its changes to the disk. What is returned goes out when they are durable.
    fn with_coordinator<R>(
        &mut self,
        asked: Option<(ConnId, u64, &ToCoordinator)>,
        waits: bool,
        event: impl FnOnce(&mut Coordinator, u64) -> R,
    ) -> R
    where
        R: MaybeReply,
    {
        let now_ms = self.coordinator.process.clock.read_ms(self.now_us);
        self.coordinator.newest_ms = self.coordinator.newest_ms.max(now_ms);
        let core = self.coordinator.core.as_mut().expect("it runs");
        let result = event(core, now_ms);
        let mut changes = Vec::new();
        let mut lines = Vec::new();
        while let Some(effect) = core.poll_effect() {
            match effect {
                Effect::Persist(change) => changes.push(change),
                Effect::Log(line) => lines.push(line.text),
            }
        }
        for line in lines {
            self.on_log(&line);
        }
        self.oracle.persisting(&changes);
        let reply = asked.and_then(|(conn, id, question)| {
            let must_last = Coordinator::answer_must_last(question, IS_SHARED);
            Some(Reply { conn, id, body: result.reply()?, must_last })
        });
        let is_quiet = self.coordinator.is_quiet();
        match (changes.is_empty() && (is_quiet || !waits), reply) {
            (true, Some(Reply { conn, id, body, .. })) => self.answer(conn, id, body),
            (true, None) => {}
            (false, reply) => {
                if let (Some(reply), Some((.., ToCoordinator::WorkerBeat(_)))) = (&reply, asked) {
                    let late = Input::BeatPatience { conn: reply.conn, id: reply.id };
                    self.remind(BEAT_PATIENCE_US, Target::Coordinator, late);
                }
                self.coordinator.waiting.push_back(Write { changes, reply });
                self.write_next();
            }
        }
        result
    }

    fn on_log(&mut self, line: &str) {
        self.note(format_args!("coordinator says: {line}"));
        if line.contains("was silent for") {
            self.coverage.count("worker_was_silent_for_longer_than_liveness");
        }
        if line.contains("lost its connection") {
            self.coverage.count("worker_lost_its_connection");
        }
    }

    fn write_next(&mut self) {
        let coordinator = &mut self.coordinator;
        if !coordinator.writing.is_empty() || coordinator.waiting.is_empty() {
            return;
        }
        coordinator.writing = coordinator.waiting.drain(..).collect();
        let (is_slow, is_stuck) =
            (self.now_us < coordinator.disk.slow_until_us, self.now_us < coordinator.disk.stuck_until_us);
        let delay_us = match (is_stuck, is_slow) {
            (true, _) => self.dice.within(10_000_000, 60_000_000),
            (_, true) => self.dice.within(50, 2_000_000),
            _ => self.dice.within(50, self.scenario.disk_us),
        };
        if is_stuck {
            self.coverage.count("write_took_tens_of_seconds");
        }
        self.remind(delay_us, Target::Coordinator, Input::Written);
        let belong_together = self.coordinator.writing.iter().any(|write| write.changes.len() > 1);
        if belong_together && std::mem::take(&mut self.coordinator.dies_writing) {
            let early_us = self.dice.within(1, delay_us);
            self.remind(delay_us - early_us, Target::Coordinator, Input::DieWriting);
        }
    }

    /// What was being written is durable, or was refused and is tried again with all that comes later.
    fn on_written(&mut self) {
        let is_refused = self.is_refusing();
        let writes: Vec<Write> = self.coordinator.writing.drain(..).collect();
        let mut changes = std::mem::take(&mut self.coordinator.refused);
        let mut replies = Vec::new();
        for write in writes {
            changes.extend(write.changes);
            replies.extend(write.reply);
        }
        if is_refused {
            self.coordinator.refused = changes;
            self.remind(RETRY_US, Target::Coordinator, Input::RetryWrite);
        } else {
            self.apply(&changes);
            if self.dice.percent(10) {
                self.coordinator.backup = self.coordinator.state.clone();
            }
        }
        for Reply { conn, id, body, must_last } in replies {
            match is_refused {
                true if must_last => self.refuse(conn, id, "the disk is full"),
                true => {
                    self.coverage.count("answered_though_not_written");
                    self.answer(conn, id, body);
                }
                false => self.answer(conn, id, body),
            }
        }
        self.write_next();
    }

    fn refuse(&mut self, conn: ConnId, id: u64, cause: &str) {
        self.coverage.count("refused_as_not_written");
        self.answer(conn, id, FromCoordinator::Refused(Refusal::Internal { cause: cause.to_owned() }));
    }

    /// A worker has waited long enough for its bad samples to be durable.
    fn on_beat_patience(&mut self, conn: ConnId, id: u64) {
        let coordinator = &mut self.coordinator;
        let mut writes = coordinator.writing.iter_mut().chain(&mut coordinator.waiting);
        let of_it = |reply: &mut Reply| (reply.conn, reply.id) == (conn, id);
        if let Some(reply) = writes.find_map(|write| write.reply.take_if(of_it)) {
            match reply.must_last {
                true => self.refuse(conn, id, "the disk takes long"),
                false => self.answer(conn, id, reply.body),
            }
        }
    }

    pub(crate) fn coordinator_input(&mut self, input: Input) {
        match input {
            Input::Tick => {
                self.with_coordinator(None, false, |core, now_ms| core.handle_tick(now_ms));
                if let Err(problem) = self.oracle.ticked(self.coordinator.newest_ms, self.scenario.config.persist_ms) {
                    self.fail(problem);
                }
                self.remind(TICK_US, Target::Coordinator, Input::Tick);
            }
            Input::Written => self.on_written(),
            // In calm nothing goes wrong any more, a kill that was on its way either.
            Input::DieWriting if self.is_calm => {}
            Input::DieWriting => {
                self.coverage.count("coordinator_killed_while_it_wrote_changes_that_belong_together");
                self.kill_coordinator();
                let away_us = self.dice.within(1_000, 2_000_000);
                self.schedule(away_us, Event::World(Action::Start(Target::Coordinator)));
            }
            Input::RetryWrite => {
                let coordinator = &mut self.coordinator;
                if coordinator.writing.is_empty() && !coordinator.refused.is_empty() {
                    coordinator.waiting.push_back(Write { changes: Vec::new(), reply: None });
                    self.write_next();
                }
            }
            Input::BeatPatience { conn, id } => self.on_beat_patience(conn, id),
            other => unreachable!("{other:?} is not for the coordinator"),
        }
    }

    pub(crate) fn coordinator_receives(&mut self, conn: ConnId, message: Message) {
        let Message::Ask { id, body } = message else { unreachable!("{message:?} is not for the coordinator") };
        let role = match *body {
            ToCoordinator::WorkerBeat(_) | ToCoordinator::WorkerLeave { .. } => Role::Worker,
            _ => Role::Client,
        };
        let peer = Peer { connection: ConnectionId(conn), role, name: String::new() };
        let question = (*body).clone();
        if !self.is_open(conn, 0) {
            self.coverage.count("late_question_answered");
        }
        let waits = Coordinator::answer_waits_for_earlier(&question);
        let asked = question.clone();
        let answer = self.with_coordinator(Some((conn, id, &asked)), waits, |core, now_ms| {
            core.handle_request(now_ms, &peer, question)
        });
        let Answer::Reply(reply) = answer else { unreachable!("nobody submits jobs") };
        if let Err(problem) = self.oracle.answered(self.coordinator.newest_ms, &body, &reply, &mut self.coverage) {
            self.fail(problem);
        }
    }

    pub(crate) fn coordinator_lost(&mut self, conn: ConnId) {
        self.with_coordinator(None, false, |core, now_ms| core.handle_closed(now_ms, ConnectionId(conn)));
    }

    fn answer(&mut self, conn: ConnId, id: u64, reply: FromCoordinator) {
        if let FromCoordinator::Joined { session, .. } = &reply {
            self.oracle.adopted(session.id);
        }
        self.send(conn, 1, Message::Answer { era: self.oracle.era(), id, body: Box::new(reply) });
    }
}

/// What running the core gives: a reply to send, or nothing.
trait MaybeReply {
    fn reply(&self) -> Option<FromCoordinator>;
}

impl MaybeReply for () {
    fn reply(&self) -> Option<FromCoordinator> {
        None
    }
}

impl MaybeReply for Answer {
    fn reply(&self) -> Option<FromCoordinator> {
        match self {
            Self::Reply(reply) => Some(reply.clone()),
            Self::CreateJob { .. } => None,
        }
    }
}

impl World {
    /// An input to a process, from itself.
    pub(crate) fn remind(&mut self, delay_us: u64, target: Target, input: Input) {
        let life = self.process(target).life;
        self.schedule(delay_us, Event::Input { target, life, input });
    }
}
