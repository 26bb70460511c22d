//! The coordinator's shell: requests in, changes to a disk that takes its time, replies out once they are durable.

use std::collections::VecDeque;

use spdl_coordinator::{
    core::{Answer, Change, ConnectionId, Coordinator, Durable, Effect, NearestThenLeastLoaded, Peer, Role},
    state::{MemoryState, StateStore},
};
use spdl_wire::messages::{FromCoordinator, ToCoordinator};

use crate::{
    net::{ConnId, Message},
    process::{Process, Target},
    world::{Event, Input, World},
};

/// As the shell's.
const TICK_US: u64 = 200_000;

pub(crate) struct CoordinatorProcess {
    pub(crate) process: Process,
    core: Option<Coordinator>,
    state: MemoryState,
    waiting: VecDeque<Write>,
    writing: Vec<Write>,
    pub(crate) slow_disk_until_us: u64,
}

/// Changes, and what is said once they are durable.
struct Write {
    changes: Vec<Change>,
    reply: Option<(ConnId, u64, FromCoordinator)>,
}

impl CoordinatorProcess {
    pub(crate) fn new(host: usize) -> Self {
        Self {
            process: Process::new(host),
            core: None,
            state: MemoryState::default(),
            waiting: VecDeque::new(),
            writing: Vec::new(),
            slow_disk_until_us: 0,
        }
    }

    pub(crate) fn durable(&self) -> Durable {
        self.state.load().expect("memory does not fail")
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
        let job = self.scenario.job.clone();
        self.with_coordinator(None, false, |core, now_ms| {
            core.handle_job(now_ms, Ok(job));
        });
        self.remind(TICK_US, Target::Coordinator, Input::Tick);
    }

    /// Kills it. What was being written may have been written, and what was said after it was not.
    pub(crate) fn kill_coordinator(&mut self) {
        let written = self.dice.index(self.coordinator.writing.len() + 1);
        let writes: Vec<Write> = self.coordinator.writing.drain(..).collect();
        for (number, write) in writes.into_iter().enumerate() {
            if number < written {
                self.apply(&write.changes);
                if write.reply.is_some() {
                    self.coverage.count("coordinator_crashed_after_persisting_before_replying");
                }
            } else {
                self.coverage.count("coordinator_crashed_before_persisting");
            }
        }
        self.coordinator.waiting.clear();
        self.coordinator.core = None;
        self.process_mut(Target::Coordinator).running = crate::process::Running::Dead;
        self.close_all(Target::Coordinator);
    }

    /// Stops it in order: everything is durable.
    pub(crate) fn stop_coordinator(&mut self) {
        self.with_coordinator(None, false, |core, _| core.flush());
        let writes: Vec<Write> = self.coordinator.writing.drain(..).chain(self.coordinator.waiting.drain(..)).collect();
        for write in &writes {
            self.apply(&write.changes);
        }
        self.kill_coordinator();
    }

    /// Its disk is lost; the file of its job is not.
    pub(crate) fn wipe_coordinator(&mut self) {
        self.coverage.count("coordinator_lost_its_state");
        self.coordinator.state = MemoryState::default();
        self.oracle.coordinator_wiped();
    }

    fn apply(&mut self, changes: &[Change]) {
        self.coordinator.state.apply(changes).expect("memory does not fail");
    }

    /// Runs the core, and hands its changes to the disk. What is returned goes out when they are durable.
    fn with_coordinator<R>(
        &mut self,
        reply: Option<(ConnId, u64)>,
        waits: bool,
        event: impl FnOnce(&mut Coordinator, u64) -> R,
    ) -> R
    where
        R: MaybeReply,
    {
        let now_ms = self.coordinator.process.clock.read_ms(self.now_us);
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
        let reply = reply.and_then(|(conn, id)| Some((conn, id, result.reply()?)));
        let coordinator = &self.coordinator;
        let is_writing = !coordinator.writing.is_empty() || !coordinator.waiting.is_empty();
        match (changes.is_empty() && !(waits && is_writing), reply) {
            (true, Some((conn, id, reply))) => self.answer(conn, id, reply),
            (true, None) => {}
            (false, reply) => {
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
        let is_slow = self.now_us < coordinator.slow_disk_until_us;
        let most_us = if is_slow { 2_000_000 } else { self.scenario.disk_us };
        let delay_us = self.dice.within(50, most_us);
        self.remind(delay_us, Target::Coordinator, Input::Written);
    }

    pub(crate) fn coordinator_input(&mut self, input: Input) {
        match input {
            Input::Tick => {
                self.with_coordinator(None, false, |core, now_ms| core.handle_tick(now_ms));
                let now_ms = self.coordinator.process.clock.read_ms(self.now_us);
                if let Err(problem) = self.oracle.ticked(now_ms, self.scenario.config.persist_ms) {
                    self.fail(problem);
                }
                self.remind(TICK_US, Target::Coordinator, Input::Tick);
            }
            Input::Written => {
                let writes: Vec<Write> = self.coordinator.writing.drain(..).collect();
                for write in writes {
                    self.apply(&write.changes);
                    if let Some((conn, id, reply)) = write.reply {
                        self.answer(conn, id, reply);
                    }
                }
                self.write_next();
            }
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
        let answer =
            self.with_coordinator(Some((conn, id)), waits, |core, now_ms| core.handle_request(now_ms, &peer, question));
        let Answer::Reply(reply) = answer else { unreachable!("nobody submits jobs") };
        let now_ms = self.coordinator.process.clock.read_ms(self.now_us);
        if let Err(problem) = self.oracle.answered(now_ms, &body, &reply, &mut self.coverage) {
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
