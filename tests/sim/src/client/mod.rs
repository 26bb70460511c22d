//! A rank: the client's shell around its core, and the trainer that takes the batches.

mod links;
mod trainer;

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use spdl_control::{
    client::{
        JoinRequest, LinkFailure, LinkId, RankError, SessionCore, SessionEffect, SessionEvent, SessionNote, Timing,
    },
    messages::{FromCoordinator, Refusal, Session},
};
use spdl_insight::Transport;
use spdl_order::Receipt;
use spdl_types::Position;

use crate::{
    asking::Asking,
    net::{ConnId, SimMessage},
    process::{Running, SimProcess, Target},
    slab::{Content, SharedSlab},
    world::{ProcessInput, World},
};

/// The time limit for the leave request.
const NOTICE_US: u64 = 1_500_000;
/// The cause of a lost link whose task has ended.
const TASK_ENDED: &str = "its task ended";

pub(crate) struct SimClient {
    pub(crate) process: SimProcess,
    pub(crate) asking: Asking,
    core: SessionCore,
    pub(crate) launcher: usize,
    pub(crate) launch: u64,
    pub(crate) rank: u32,
    pub(crate) session: Option<Session>,
    /// The era of the coordinator's state in which the core's session was given.
    era: u32,
    /// The era of the last answer that gave a session; the core may not have read the answer yet.
    answered_era: u32,
    links: BTreeMap<LinkId, LinkEnd>,
    /// Batches that arrived and are not delivered yet.
    pending: BTreeMap<(LinkId, u32), SlotBatch>,
    ready: VecDeque<ReadyItem>,
    /// Batches that the trainer holds.
    held: VecDeque<SlotBatch>,
    is_busy: bool,
    /// Since when the trainer has waited for a batch, and for how long it did before.
    waits_since_us: Option<u64>,
    waited_us: u64,
    pub(crate) position: Position,
    pub(crate) receipt: Receipt,
    pub(crate) is_ended: bool,
    is_closing: bool,
    /// The time of the last event sent to the core, whose events arrive in order.
    inbox_us: u64,
    armed_us: Option<u64>,
}

/// The client's end of a link.
struct LinkEnd {
    conn: ConnId,
    transport: Transport,
    /// The slab, once the link is attached.
    slab: Option<SharedSlab>,
    next: u64,
    early: BTreeMap<u64, SimMessage>,
}

/// A batch in a slot.
#[derive(Clone, Debug)]
pub(crate) struct SlotBatch {
    link: LinkId,
    slot: u32,
    slab: SharedSlab,
    content: Rc<Content>,
}

enum ReadyItem {
    Batch(SlotBatch),
    End(Position),
}

impl SlotBatch {
    /// Returns whether the slot still holds what it held when the batch arrived.
    fn is_whole(&self) -> bool {
        self.slab.borrow()[self.slot as usize].as_ref() == Some(&self.content)
    }
}

impl SimClient {
    pub(crate) fn new(
        join_request: JoinRequest,
        timing: Timing,
        (launcher, launch): (usize, u64),
        mut process: SimProcess,
        now_us: u64,
    ) -> Self {
        let rank = join_request.rank;
        process.running = Running::Yes;
        let core = SessionCore::new(join_request, timing, process.clock.read_ms(now_us));
        Self {
            process,
            asking: Asking::default(),
            core,
            launcher,
            launch,
            rank,
            session: None,
            era: 0,
            answered_era: 0,
            links: BTreeMap::new(),
            pending: BTreeMap::new(),
            ready: VecDeque::new(),
            held: VecDeque::new(),
            is_busy: false,
            waits_since_us: None,
            waited_us: 0,
            position: Position::START,
            receipt: Receipt::default(),
            is_ended: false,
            is_closing: false,
            inbox_us: 0,
            armed_us: None,
        }
    }

    fn batches(&self) -> usize {
        let ready = self.ready.iter().filter(|ready| matches!(ready, ReadyItem::Batch(_))).count();
        self.pending.len() + ready + self.held.len()
    }
}

impl World {
    pub(crate) fn client_input(&mut self, client: usize, input: ProcessInput) {
        let now_ms = self.clients[client].process.clock.read_ms(self.now_us);
        let state = &mut self.clients[client];
        match input {
            ProcessInput::Wake => {
                state.armed_us = None;
                state.core.handle_timeout(now_ms);
            }
            ProcessInput::Core(event) => {
                if matches!(&*event, SessionEvent::Answered(answer) if matches!(**answer, FromCoordinator::Joined { .. }))
                {
                    state.era = state.answered_era;
                }
                state.core.handle(now_ms, *event);
            }
            ProcessInput::Filled { link, sequence, batch } => {
                let (slot, from, next) = (batch.slot, batch.content.from, batch.content.next);
                state.pending.insert((link, slot), batch);
                state.core.handle(now_ms, SessionEvent::Filled { link, sequence, slot, from, next });
            }
            ProcessInput::AnswerTimeout { id } => self.answer_timed_out(Target::Client(client), id),
            ProcessInput::Trained => self.on_trained(client),
            ProcessInput::Close => {
                state.is_closing = true;
                state.core.handle(now_ms, SessionEvent::Close);
                self.remind(NOTICE_US, Target::Client(client), ProcessInput::Exit);
            }
            ProcessInput::Exit => return self.kill_client(client),
            other => unreachable!("{other:?} is not for a client"),
        }
        self.after_client(client);
    }

    /// Carries out the core's effects, and the steps that follow from them.
    pub(crate) fn after_client(&mut self, client: usize) {
        while let Some(effect) = self.clients[client].core.poll_effect() {
            self.carry_out(client, effect);
        }
        if !self.clients[client].process.is_alive() {
            return;
        }
        let state = &self.clients[client];
        if state.is_closing && state.asking.is_idle() {
            return self.kill_client(client);
        }
        self.check_limits(client);
        self.arm(client);
        self.train(client);
    }

    fn check_limits(&mut self, client: usize) {
        let state = &self.clients[client];
        let most = 2 * self.scenario.slots as usize - 1;
        let (held, alive) = (state.core.slots_held(), state.batches());
        if held > most || alive > most {
            self.fail(format!("client {client} holds {held} slots and has {alive} batches; {most} are allowed"));
        }
    }

    fn arm(&mut self, client: usize) {
        let state = &mut self.clients[client];
        let Some(wake_ms) = state.core.wake_ms() else { return };
        let at_us = state.process.clock.true_us(wake_ms).max(self.now_us + 1);
        if state.armed_us.is_none_or(|armed_us| at_us < armed_us) {
            state.armed_us = Some(at_us);
            self.remind(at_us - self.now_us, Target::Client(client), ProcessInput::Wake);
        }
    }

    /// Sends an event through the channel that the core's task reads.
    fn tell(&mut self, client: usize, input: ProcessInput) {
        // Sometimes the task is delayed by the scheduler of the host.
        let most_us = if self.dice.percent(15) { 50_000 } else { 500 };
        let delay_us = self.dice.within(1, most_us);
        let state = &mut self.clients[client];
        state.inbox_us = (self.now_us + delay_us).max(state.inbox_us + 1);
        let delay_us = state.inbox_us - self.now_us;
        self.remind(delay_us, Target::Client(client), input);
    }

    fn tell_core(&mut self, client: usize, event: SessionEvent) {
        self.tell(client, ProcessInput::Core(Box::new(event)));
    }

    pub(crate) fn client_answered(&mut self, client: usize, answer: FromCoordinator) {
        self.tell_core(client, SessionEvent::Answered(Box::new(answer)));
    }

    pub(crate) fn client_unanswered(&mut self, client: usize) {
        self.tell_core(client, SessionEvent::Unanswered { cause: "no coordinator answers".into() });
    }

    fn carry_out(&mut self, client: usize, effect: SessionEffect) {
        match effect {
            SessionEffect::Ask(question) => self.ask(Target::Client(client), question),
            SessionEffect::Joined(session, _) => self.on_joined(client, *session),
            SessionEffect::JobChanged(session) => {
                self.coverage.count("rank_took_over_a_changed_job");
                let end_of = |session: &Session| session.batches().end_position(session.job.samples);
                let before = self.clients[client].session.as_ref().map(end_of);
                if before.is_some_and(|before| before != end_of(&session)) {
                    self.coverage.count("end_of_the_stream_moved");
                }
                self.scenario.note(&session.job);
                self.oracle.changed(client, &session);
                self.clients[client].session = Some(*session);
            }
            SessionEffect::Attach { link, home, way, from, slots } => {
                self.attach(client, link, &home, &way, from, slots)
            }
            SessionEffect::Detach { link } => self.detach(client, link),
            SessionEffect::Free { link, slot } => self.free(client, link, slot),
            SessionEffect::HandOver { link, slot } => {
                let batch =
                    self.clients[client].pending.remove(&(link, slot)).expect("a batch that has arrived is pending");
                let now_us = self.now_us;
                let state = &mut self.clients[client];
                state.ready.push_back(ReadyItem::Batch(batch));
                if let Some(since_us) = state.waits_since_us.take() {
                    state.waited_us += now_us - since_us;
                }
            }
            SessionEffect::Discard { link, slot } => {
                self.coverage.count("batch_of_a_left_link_discarded");
                self.clients[client].pending.remove(&(link, slot));
                self.tell_core(client, SessionEvent::Freed { link, slot });
            }
            SessionEffect::End { position } => self.clients[client].ready.push_back(ReadyItem::End(position)),
            SessionEffect::Fail(error) => self.on_failed(client, &error),
            SessionEffect::Log(note) => self.on_log_of_client(client, &note),
        }
    }

    fn on_log_of_client(&mut self, client: usize, note: &SessionNote) {
        self.note(format_args!("client {client} reports: {note}"));
        match note {
            SessionNote::HomeLost { cause, .. } => {
                self.coverage.count("home_lost");
                // No process in the simulation breaks the protocol, so leaving a home for that reason is a bug. The end
                // of a link's task is only reported to the core after the core has left the link.
                let is_wrong = match cause {
                    LinkFailure::Violation(_) => true,
                    LinkFailure::Broken(cause) => cause == TASK_ENDED,
                    LinkFailure::NoTransport(_) | LinkFailure::Silent { .. } | LinkFailure::Fault(_) => false,
                };
                if is_wrong {
                    self.fail(format!("client {client}: {note}"));
                }
            }
            SessionNote::SocketUnusable { cause, .. } => {
                self.coverage.count("socket_failed_and_quic_taken");
                if cause == TASK_ENDED {
                    self.fail(format!("client {client}: {note}"));
                }
            }
            SessionNote::HomeChanged { .. } => self.coverage.count("home_moved_by_the_coordinator"),
            SessionNote::HomeLeaving { .. } => self.coverage.count("home_left_politely"),
            SessionNote::SessionForgotten { .. } => self.coverage.count("joined_again_after_a_forgotten_session"),
            SessionNote::Started { .. } | SessionNote::RefusedForNow { .. } | SessionNote::CoordinatorAway { .. } => {}
        }
    }

    fn on_failed(&mut self, client: usize, error: &RankError) {
        self.note(format_args!("client {client} fails: {error}"));
        match error {
            RankError::Refused(Refusal::SessionSuperseded { .. }) => self.coverage.count("client_failed_superseded"),
            RankError::Refused(refusal @ (Refusal::SessionDisagrees { .. } | Refusal::RunInUse { .. })) => {
                self.coverage.count("launch_refused_while_another_lives");
                self.refused(client, refusal);
            }
            RankError::Refused(refusal @ Refusal::RunFinished { .. }) => {
                self.coverage.count("finished_run_not_resumed");
                self.refused(client, refusal);
            }
            RankError::Refused(Refusal::FingerprintDiffers { .. } | Refusal::SessionOutdated { .. })
                if self.scenario.asks_for_changes =>
            {
                self.coverage.count("rank_ended_as_stages_changed");
                self.forget_states(client);
            }
            // The coordinator's disk was lost, or is an earlier one, and with it a change of the job that this rank has gone past.
            RankError::SessionDiffers { field: "fingerprint", .. }
                if self.scenario.asks_for_changes && self.oracle.era() > 0 =>
            {
                self.coverage.count("rank_ended_as_a_change_was_lost");
                self.forget_states(client);
            }
            RankError::Refused(Refusal::UnknownJob { .. }) => {
                self.coverage.count("rank_ended_as_its_job_is_gone");
                self.job_removed(client);
            }
            RankError::Refused(Refusal::JobFailed { .. }) | RankError::Fault { .. } => {
                let job = self.scenario.runs[self.clients[client].launcher].0;
                if !self.scenario.jobs[job].fails() {
                    self.fail(format!("client {client} fails though its job bears with all bad samples: {error}"));
                }
                self.coverage.count("rank_ended_as_its_job_has_failed");
                self.give_up(client);
            }
            error => self.fail(format!("client {client} fails: {error}")),
        }
        self.kill_client(client);
    }

    fn on_joined(&mut self, client: usize, session: Session) {
        self.scenario.note(&session.job);
        let state = &mut self.clients[client];
        state.position = session.start;
        state.waits_since_us = Some(self.now_us).filter(|_| state.ready.is_empty());
        self.oracle.joined(client, (state.era, state.rank), &session);
        state.session = Some(session);
    }

    /// Ends the process, for any reason.
    pub(crate) fn kill_client(&mut self, client: usize) {
        let state = &mut self.clients[client];
        if !state.process.is_alive() {
            return;
        }
        state.process.running = Running::Dead;
        state.links.clear();
        state.pending.clear();
        state.ready.clear();
        state.held.clear();
        self.note(format_args!("client {client} has ended"));
        self.oracle.client_ended(client);
        self.close_all(Target::Client(client));
        self.rank_removed(client);
    }
}
