//! The writer thread of a coordinator, and the disk of a coordinator whose state is a file.
//!
//! Changes that wait together are written together. After a failed write the changes are retried after a pause; until
//! then no write is attempted, and all pending requests get the failure.

use std::collections::VecDeque;

use spdl_control::{
    coordinator::{Change, Durable, MemoryState, Terms},
    messages::FromCoordinator,
};
use spdl_job::Job;
use spdl_types::mutations::{Mutation, mutated};

use crate::{
    net::ConnId,
    process::Target,
    world::{ProcessInput, World},
};

/// The pause before a failed write is retried.
const RETRY_US: u64 = 1_000_000;

/// The durable state: that of the only coordinator, or the content of etcd.
#[derive(Default)]
pub(crate) struct DurableState {
    memory: MemoryState,
    /// A copy of an earlier state.
    backup: MemoryState,
    pub(crate) disk: SimDisk,
}

/// The disk below the state: the coordinator's or etcd's.
#[derive(Debug, Default)]
pub(crate) struct SimDisk {
    pub(crate) slow_until_us: u64,
    /// Until then each write takes tens of seconds.
    pub(crate) stuck_until_us: u64,
    /// Until then the disk is full.
    pub(crate) refuses_until_us: u64,
}

/// Changes, and the reply to send once they are durable.
pub(crate) struct Write {
    changes: Vec<Change>,
    reply: Option<Reply>,
}

pub(crate) struct Reply {
    pub(crate) conn: ConnId,
    pub(crate) id: u64,
    pub(crate) body: FromCoordinator,
    pub(crate) terms: Terms,
    pub(crate) asked: Asked,
}

/// What a reply answers, as far as the oracle needs it.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// A join, with the names of job and run, and whether the rank joins its session again.
    Join(String, String, bool),
    Submit(String),
    Remove(String),
    /// The job with other stages.
    Replace(Box<Job>),
    /// A change of the job of this name.
    Change(String),
    /// What was decided about a job, and which decision about it that is.
    Decided {
        job: String,
        is_removal: bool,
        decision: u64,
    },
    Other,
}

/// The writer of a coordinator while it leads.
#[derive(Default)]
pub(crate) struct Writer {
    waiting: VecDeque<Write>,
    /// The writes in progress, which are one batch.
    writing: Vec<Write>,
    /// Changes of failed writes, which go before all others.
    refused: Vec<Change>,
    problem: Option<String>,
    rests_until_us: u64,
    /// The revision of this leader's last write in etcd, if known.
    pub(crate) fence: Option<u64>,
}

impl DurableState {
    pub(crate) fn durable(&self) -> Durable {
        self.memory.durable()
    }

    pub(crate) fn apply(&mut self, changes: &[Change]) {
        self.memory.apply(changes);
    }

    pub(crate) fn back_up(&mut self) {
        self.backup = self.memory.clone();
    }
}

impl Writer {
    pub(crate) fn new(fence: Option<u64>) -> Self {
        Self { fence, ..Self::default() }
    }

    /// Returns why nothing can be written, while that is known.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.clone()
    }

    pub(crate) fn into_replies(self) -> impl Iterator<Item = Reply> {
        self.writing.into_iter().chain(self.waiting).filter_map(|write| write.reply)
    }

    /// Returns all changes to write now.
    pub(crate) fn batch(&self) -> Vec<Change> {
        let new = self.writing.iter().flat_map(|write| &write.changes);
        self.refused.iter().chain(new).cloned().collect()
    }
}

impl World {
    fn writer(&mut self, at: usize) -> &mut Writer {
        &mut self.coordinators[at].lead.as_mut().expect("it leads").writer
    }

    pub(crate) fn write(&mut self, at: usize, changes: Vec<Change>, reply: Option<Reply>) {
        self.writer(at).waiting.push_back(Write { changes, reply });
        self.write_next(at);
    }

    fn write_next(&mut self, at: usize) {
        let now_us = self.now_us;
        let writer = self.writer(at);
        if !writer.writing.is_empty() || writer.waiting.is_empty() {
            return;
        }
        writer.writing = writer.waiting.drain(..).collect();
        if let Some(problem) = writer.problem.clone().filter(|_| now_us < writer.rests_until_us) {
            return self.refuse_writes(at, &problem);
        }
        if self.etcd.is_some() {
            return self.commit(at);
        }
        let disk = &self.state.disk;
        let (is_slow, is_stuck) = (now_us < disk.slow_until_us, now_us < disk.stuck_until_us);
        let delay_us = match (is_stuck, is_slow) {
            (true, _) => self.dice.within(10_000_000, 60_000_000),
            (_, true) => self.dice.within(50, 2_000_000),
            _ => self.dice.within(50, self.scenario.disk_us),
        };
        if is_stuck {
            self.coverage.count("write_took_tens_of_seconds");
        }
        self.remind(delay_us, Target::Coordinator(at), ProcessInput::Written);
        self.may_die_writing(at, delay_us);
    }

    /// Schedules the kill of a coordinator that is to be killed while it writes several changes at once, if this is
    /// such a write.
    pub(crate) fn may_die_writing(&mut self, at: usize, delay_us: u64) {
        let belong_together = self.writer(at).writing.iter().any(|write| write.changes.len() > 1);
        if belong_together && std::mem::take(&mut self.coordinators[at].dies_writing) {
            let early_us = self.dice.within(1, delay_us);
            self.remind(delay_us - early_us, Target::Coordinator(at), ProcessInput::DieWriting);
        }
    }

    fn is_refusing(&self) -> bool {
        self.now_us < self.state.disk.refuses_until_us
    }

    /// Handles the end of a write to the disk, which may have failed.
    pub(crate) fn on_file_written(&mut self, at: usize) {
        if self.is_refusing() {
            return self.on_refused_write(at, "the disk is full");
        }
        let changes = self.writer(at).batch();
        self.apply(&changes);
        self.on_written(at);
    }

    pub(crate) fn apply(&mut self, changes: &[Change]) {
        self.state.apply(changes);
        if let Err(problem) = self.oracle.applied(changes) {
            self.fail(problem);
        }
        if self.dice.percent(10) {
            self.state.back_up();
        }
    }

    /// Handles a successful write.
    pub(crate) fn on_written(&mut self, at: usize) {
        let writer = self.writer(at);
        writer.refused.clear();
        writer.problem = None;
        self.settle_writes(at, Ok(()));
        self.write_next(at);
    }

    /// Handles a failed write, which is retried together with later changes.
    pub(crate) fn on_refused_write(&mut self, at: usize, cause: &str) {
        let now_us = self.now_us;
        let writer = self.writer(at);
        writer.problem = Some(cause.to_owned());
        writer.rests_until_us = now_us + RETRY_US;
        self.remind(RETRY_US, Target::Coordinator(at), ProcessInput::RetryWrite);
        self.refuse_writes(at, cause);
        self.write_next(at);
    }

    fn refuse_writes(&mut self, at: usize, cause: &str) {
        let writer = self.writer(at);
        writer.refused = writer.batch();
        self.settle_writes(at, Err(cause.to_owned()));
    }

    /// Handles a write that was rejected because another coordinator leads and continues from what was written.
    pub(crate) fn on_old_leader_write(&mut self, at: usize) {
        self.writer(at).refused.clear();
        self.settle_writes(at, Err("another coordinator leads".to_owned()));
        self.write_next(at);
    }

    /// Completes the writes in progress and sends their replies.
    fn settle_writes(&mut self, at: usize, result: Result<(), String>) {
        let writes = std::mem::take(&mut self.writer(at).writing);
        for mut reply in writes.into_iter().filter_map(|write| write.reply) {
            if result.is_err() {
                let what = if reply.terms.must_last { "refused_as_not_written" } else { "answered_though_not_written" };
                self.coverage.count(what);
            }
            let lead = self.coordinators[at].lead.as_mut().expect("it leads");
            reply.body = lead.durability.answer(&reply.terms, result.clone(), reply.body);
            self.give(at, reply);
        }
    }

    pub(crate) fn retry_write(&mut self, at: usize) {
        if self.coordinators[at].lead.is_none() {
            return;
        }
        let writer = self.writer(at);
        if writer.writing.is_empty() && !writer.refused.is_empty() {
            self.write(at, Vec::new(), None);
        }
    }

    /// Answers a worker's heartbeat whose bad samples could not be written in time.
    pub(crate) fn on_heartbeat_timeout(&mut self, at: usize, conn: ConnId, id: u64) {
        if self.coordinators[at].lead.is_none() {
            return;
        }
        let writer = self.writer(at);
        let mut writes = writer.writing.iter_mut().chain(&mut writer.waiting);
        let of_it = |reply: &mut Reply| (reply.conn, reply.id) == (conn, id);
        if let Some(mut reply) = writes.find_map(|write| write.reply.take_if(of_it)) {
            let lead = self.coordinators[at].lead.as_mut().expect("it leads");
            let late = Err("the state takes long".to_owned());
            reply.body = lead.durability.answer(&reply.terms, late, reply.body);
            self.give(at, reply);
        }
    }

    /// Handles the kill of a coordinator: its write to the disk may be complete or absent. Requests already sent to
    /// etcd arrive on their own.
    pub(crate) fn kill_writer(&mut self, writer: Writer) {
        if writer.writing.is_empty() {
            return;
        }
        let is_said = writer.writing.iter().any(|write| write.reply.is_some());
        let is_written = self.etcd.is_none() && !self.is_refusing() && self.dice.percent(50);
        if is_written {
            let changes = writer.batch();
            let kept = if mutated(Mutation::CutWrites) { self.dice.index(changes.len() + 1) } else { changes.len() };
            self.apply(&changes[..kept]);
        }
        match is_written {
            true if is_said => self.coverage.count("coordinator_crashed_after_persisting_before_replying"),
            true => {}
            false => self.coverage.count("coordinator_crashed_before_persisting"),
        }
    }

    /// Writes all changes, if possible, before an orderly stop.
    pub(crate) fn flush_writer(&mut self, at: usize, changes: Vec<Change>) {
        let is_busy = !self.writer(at).writing.is_empty();
        let writer = self.writer(at);
        writer.waiting.push_back(Write { changes, reply: None });
        let waiting: Vec<Write> = writer.waiting.drain(..).collect();
        writer.writing.extend(waiting);
        if self.etcd.is_some() {
            if !is_busy {
                self.commit(at);
            }
        } else if !self.is_refusing() {
            let changes = self.writer(at).batch();
            self.apply(&changes);
            let writer = self.writer(at);
            writer.writing.clear();
            writer.refused.clear();
        }
    }

    /// Loses the disk of the only coordinator; the file of its job remains.
    pub(crate) fn wipe_coordinator(&mut self) {
        self.coverage.count("coordinator_lost_its_state");
        self.state.memory = MemoryState::default();
        self.oracle.coordinator_wiped();
    }

    /// Replaces the disk of the only coordinator by an earlier copy.
    pub(crate) fn roll_back_coordinator(&mut self) {
        if !self.state.backup.durable().sessions.is_empty() {
            self.coverage.count("coordinator_rolled_back");
        }
        self.state.memory = self.state.backup.clone();
        self.oracle.coordinator_wiped();
    }
}
