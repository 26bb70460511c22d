//! A coordinator's shell: handles requests, writes changes to a slow state, and sends replies once they are durable.

use spdl_control::{
    coordinator::{
        Answer, Change, ClusterNote, ConnectionId, CoordinatorCore, Durability, Durable, Effect,
        NearestThenLeastLoaded, RequestPeer, Role, WorkerGone,
    },
    messages::{FromCoordinator, JobReplacement, Refusal, ToCoordinator},
};
use spdl_types::mutations::{Mutation, mutated};

use crate::{
    election::Candidacy,
    net::{ConnId, SimMessage},
    process::{Running, SimProcess, Target},
    world::{Action, Event, ProcessInput, World},
    writer::{Asked, Reply, Writer},
};

/// As in the shell: the tick interval, and how long the answer to a worker's heartbeat waits for a write.
const TICK_US: u64 = 200_000;
const HEARTBEAT_ANSWER_TIMEOUT_US: u64 = 1_000_000;

pub(crate) struct SimCoordinator {
    pub(crate) process: SimProcess,
    /// Present while it leads.
    pub(crate) lead: Option<Lead>,
    /// Its part in the election, if the state is in etcd.
    pub(crate) candidacy: Candidacy,
    /// Whether it is killed the next time that it writes several changes at once.
    pub(crate) dies_writing: bool,
}

/// The state of a leading coordinator.
pub(crate) struct Lead {
    /// The term; later leaders have a greater one.
    pub(crate) term: u64,
    core: CoordinatorCore,
    pub(crate) durability: Durability,
    /// The latest time passed to the core, which is the core's time should the clock step back.
    newest_ms: u64,
    pub(crate) writer: Writer,
}

impl SimCoordinator {
    pub(crate) fn new(host: usize) -> Self {
        Self { process: SimProcess::new(host), lead: None, candidacy: Candidacy::default(), dies_writing: false }
    }

    pub(crate) fn status(&self) -> Option<spdl_control::coordinator::Status> {
        self.lead.as_ref().map(|lead| lead.core.status())
    }
}

/// Returns the address at which others reach a coordinator.
pub(crate) fn address_of(coordinator: usize) -> String {
    format!("c{coordinator}:7000")
}

/// Returns the coordinator at an address.
pub(crate) fn coordinator_at(address: &str) -> usize {
    let number = address.strip_prefix('c').and_then(|rest| rest.strip_suffix(":7000"));
    number.and_then(|number| number.parse().ok()).expect("every address in the simulation ends in a number")
}

impl World {
    pub(crate) fn start_coordinator(&mut self, at: usize) {
        let (now_us, drift) = (self.now_us, self.scenario.drift);
        self.coordinators[at].process.start(now_us, drift, &mut self.dice);
        self.coordinators[at].candidacy = Candidacy::default();
        if self.etcd.is_some() {
            self.join_election(at);
        } else {
            let durable = self.state.durable();
            self.begin_lead(at, 0, durable, None);
        }
        self.remind(TICK_US, Target::Coordinator(at), ProcessInput::Tick);
    }

    /// Makes a coordinator the leader, starting from the durable state.
    pub(crate) fn begin_lead(&mut self, at: usize, term: u64, durable: Durable, fence: Option<u64>) {
        let now_ms = self.coordinators[at].process.clock.read_ms(self.now_us);
        if self.latest_leader.replace(at).is_some_and(|before| before != at) {
            self.coverage.count("coordinator_went_on_from_anothers_state");
        }
        self.latest_term = term;
        self.led_since_us = self.now_us;
        // A coordinator that was paused while it read the state begins from an old one. Its lease has expired meanwhile, so
        // it answers nothing, unless its clock hides that.
        let is_harmless = self.coordinators[at].process.clock.is_off || !self.lease_is_valid(at);
        let is_old = fence.is_some_and(|fence| self.etcd.as_ref().is_some_and(|etcd| etcd.fence != fence));
        if let Err(problem) = self.oracle.coordinator_started(at, &durable) {
            if is_harmless && is_old {
                self.coverage.count("coordinator_began_from_an_old_state");
            } else {
                self.fail(problem);
            }
        }
        self.note(format_args!("coordinator {at} leads in term {term}"));
        let core = CoordinatorCore::new(self.scenario.config, Box::new(NearestThenLeastLoaded), durable, now_ms);
        let durability = Durability::new(self.etcd.is_some());
        let lead = Lead { term, core, durability, newest_ms: now_ms, writer: Writer::new(fence) };
        self.coordinators[at].lead = Some(lead);
        let job = self.scenario.jobs[0].job.clone();
        let (_, changes) = self.run_core(at, |core, now_ms| core.handle_job(now_ms, Ok(job)));
        self.hand_over_changes(at, changes, None);
    }

    /// Ends the lead: replies that were not sent yet are replaced by refusals.
    pub(crate) fn end_lead(&mut self, at: usize) {
        let Some(lead) = self.coordinators[at].lead.take() else { return };
        for Reply { conn, id, .. } in lead.writer.into_replies() {
            self.coverage.count("answer_dropped_as_its_coordinator_lost_the_lease");
            self.answer_not_leader(at, conn, id);
        }
    }

    /// Returns whether a coordinator leads, as far as it knows.
    pub(crate) fn leads(&self, at: usize) -> bool {
        let coordinator = &self.coordinators[at];
        coordinator.lead.is_some() && (self.etcd.is_none() || self.lease_is_valid(at))
    }

    /// Kills a coordinator. The writes in progress are either all durable or all lost, and replies that wait for them
    /// are not sent.
    pub(crate) fn kill_coordinator(&mut self, at: usize) {
        if let Some(lead) = self.coordinators[at].lead.take() {
            self.kill_writer(lead.writer);
        }
        self.coordinators[at].process.running = Running::Dead;
        self.close_all(Target::Coordinator(at));
    }

    /// Stops a coordinator gracefully: it writes all changes if it can, and gives up its lease.
    pub(crate) fn stop_coordinator(&mut self, at: usize) {
        if self.coordinators[at].lead.is_some() {
            self.lead(at).core.flush();
            let changes = self.poll_core(at);
            self.flush_writer(at, changes);
        }
        self.resign(at);
        self.kill_coordinator(at);
    }

    fn lead(&mut self, at: usize) -> &mut Lead {
        self.coordinators[at].lead.as_mut().expect("it leads")
    }

    /// Runs the core with an event that passes the time to it. Returns its result and the changes to persist.
    pub(crate) fn run_core<R>(
        &mut self,
        at: usize,
        event: impl FnOnce(&mut CoordinatorCore, u64) -> R,
    ) -> (R, Vec<Change>) {
        let now_ms = self.coordinators[at].process.clock.read_ms(self.now_us);
        let lead = self.lead(at);
        lead.newest_ms = lead.newest_ms.max(now_ms);
        let result = event(&mut lead.core, now_ms);
        (result, self.poll_core(at))
    }

    /// Returns the changes to persist.
    fn poll_core(&mut self, at: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut notes = Vec::new();
        let core = &mut self.lead(at).core;
        while let Some(effect) = core.poll_effect() {
            match effect {
                Effect::Persist(change) => changes.push(change),
                Effect::Log(note) => notes.push(note),
            }
        }
        for note in notes {
            self.on_log(at, &note);
        }
        self.oracle.persisting(at, &changes);
        changes
    }

    /// Hands changes to the writer, with the reply to send once they are durable.
    fn hand_over_changes(&mut self, at: usize, changes: Vec<Change>, reply: Option<Reply>) {
        let waits = reply.as_ref().is_some_and(|reply| reply.terms.waits);
        match reply {
            Some(reply) if changes.is_empty() && !waits => self.give(at, reply),
            None if changes.is_empty() => {}
            reply => self.write(at, changes, reply),
        }
    }

    fn on_log(&mut self, at: usize, note: &ClusterNote) {
        self.note(format_args!("coordinator {at} reports: {note}"));
        match note {
            ClusterNote::WorkerGone { cause: WorkerGone::Silent { .. }, .. } => {
                self.coverage.count("worker_was_silent_for_longer_than_liveness");
            }
            ClusterNote::JobChangeProposed { .. } => self.coverage.count("change_proposed"),
            ClusterNote::JobChangeFound { job, .. } => {
                self.coverage.count("change_found_at_a_rank");
                // A leader that was stopped may begin from an old state, which etcd has not any more.
                if !self.oracle.may_lack_changes(job) && self.etcd.is_none() {
                    self.fail(format!("coordinator {at} has not made a change durable: {note}"));
                }
            }
            ClusterNote::JobChangeDropped { .. } => self.coverage.count("change_dropped"),
            ClusterNote::WorkerGone { cause: WorkerGone::Disconnected, .. } => {
                self.coverage.count("worker_lost_its_connection");
            }
            _ => {}
        }
    }

    pub(crate) fn coordinator_input(&mut self, at: usize, input: ProcessInput) {
        match input {
            ProcessInput::Tick => {
                self.remind(TICK_US, Target::Coordinator(at), ProcessInput::Tick);
                if self.coordinators[at].lead.is_none() {
                    return;
                }
                let ((), changes) = self.run_core(at, |core, now_ms| core.handle_tick(now_ms));
                let newest_ms = self.newest_ms(at);
                if let Err(problem) = self.oracle.ticked(at, newest_ms, self.scenario.config.persist_ms) {
                    self.fail(problem);
                }
                self.hand_over_changes(at, changes, None);
            }
            // In the calm phase no more faults happen, not even a kill that was scheduled before.
            ProcessInput::DieWriting if self.is_calm => {}
            ProcessInput::DieWriting => {
                self.coverage.count("coordinator_killed_while_it_wrote_changes_that_belong_together");
                self.kill_coordinator(at);
                let away_us = self.dice.within(1_000, 2_000_000);
                self.schedule(away_us, Event::World(Action::Start(Target::Coordinator(at))));
            }
            ProcessInput::Written => self.on_file_written(at),
            ProcessInput::RetryWrite => self.retry_write(at),
            ProcessInput::HeartbeatTimeout { conn, id } => self.on_heartbeat_timeout(at, conn, id),
            ProcessInput::Election { timer } => self.on_election(at, timer),
            ProcessInput::EtcdAnswer { call, answer } => self.on_etcd_answer(at, call, *answer),
            ProcessInput::EtcdTimeout { call } => self.on_etcd_timeout(at, call),
            other => unreachable!("{other:?} is not for a coordinator"),
        }
    }

    fn newest_ms(&self, at: usize) -> u64 {
        self.coordinators[at].lead.as_ref().map_or(0, |lead| lead.newest_ms)
    }

    pub(crate) fn coordinator_receives(&mut self, at: usize, conn: ConnId, message: SimMessage) {
        let SimMessage::Ask { id, body } = message else { unreachable!("{message:?} is not for a coordinator") };
        if !self.is_open(conn, 0) {
            self.coverage.count("late_question_answered");
        }
        if !self.leads(at) {
            return self.answer_not_leader(at, conn, id);
        }
        let role = match *body {
            ToCoordinator::WorkerHeartbeat(_) | ToCoordinator::WorkerLeave { .. } => Role::Worker,
            ToCoordinator::SubmitJob { .. }
            | ToCoordinator::RemoveJob { .. }
            | ToCoordinator::ReplaceJob { .. }
            | ToCoordinator::SetWeights { .. }
            | ToCoordinator::Redact { .. } => Role::Admin,
            _ => Role::Client,
        };
        let peer = RequestPeer { connection: ConnectionId(conn), role, name: String::new() };
        let coordinator = &mut self.coordinators[at];
        let now_ms = coordinator.process.clock.read_ms(self.now_us);
        let lead = coordinator.lead.as_mut().expect("it leads");
        let terms = lead.durability.terms(&mut lead.core, now_ms, &body, lead.writer.problem());
        let terms = match terms {
            Ok(terms) => terms,
            Err(refusal) => {
                self.coverage.count("refused_while_nothing_can_be_written");
                // The core has got the time if this is a join, and otherwise not.
                let is_join = matches!(*body, ToCoordinator::Join(_));
                let changes = if is_join { self.run_core(at, |_, _| ()).1 } else { self.poll_core(at) };
                self.hand_over_changes(at, changes, None);
                return self.answer(at, conn, id, FromCoordinator::Refused(refusal));
            }
        };
        let question = (*body).clone();
        let (answer, mut changes) = self.run_core(at, |core, now_ms| core.handle_request(now_ms, &peer, question));
        let reply = match answer {
            Answer::Reply(reply) => reply,
            Answer::Clock => FromCoordinator::Clock(self.newest_ms(at) * 1_000),
            Answer::ReplaceJob { origin: version, .. } => {
                let version = version.parse::<usize>().expect("the admin writes a number");
                let job = self.scenario.versions[version].job.clone();
                let (reply, more) = self.run_core(at, |core, now_ms| core.handle_replacement(now_ms, Ok(job)));
                changes.extend(more);
                reply
            }
            Answer::Classes { .. } => FromCoordinator::Classes { names: Vec::new(), is_last: true },
            Answer::CreateJob { toml: name, .. } => {
                let job = self.scenario.dataset(&name).job.clone();
                let (reply, more) = self.run_core(at, |core, now_ms| core.handle_job(now_ms, Ok(job)));
                changes.extend(more);
                reply
            }
        };
        let newest_ms = self.newest_ms(at);
        if let Err(problem) = self.oracle.answered(at, newest_ms, &body, &reply, &mut self.coverage) {
            self.fail(problem);
        }
        self.check_news(at, newest_ms, &body, &reply);
        if matches!(*body, ToCoordinator::WorkerHeartbeat(_)) && (terms.waits || !changes.is_empty()) {
            self.remind(
                HEARTBEAT_ANSWER_TIMEOUT_US,
                Target::Coordinator(at),
                ProcessInput::HeartbeatTimeout { conn, id },
            );
        }
        let mut asked = match *body {
            ToCoordinator::Join(join) => Asked::Join(join.job, join.run, join.session.is_some()),
            ToCoordinator::SubmitJob { toml, .. } => Asked::Submit(toml),
            ToCoordinator::RemoveJob { name } => Asked::Remove(name),
            ToCoordinator::ReplaceJob { origin: version, .. } => {
                let version = version.parse::<usize>().expect("the admin writes a number");
                Asked::Replace(Box::new(self.scenario.versions[version].job.clone()))
            }
            ToCoordinator::SetWeights { job, .. } | ToCoordinator::Redact { job, .. } => Asked::Change(job),
            _ => Asked::Other,
        };
        if let (Asked::Submit(job) | Asked::Remove(job), FromCoordinator::Done) = (&asked, &reply) {
            let is_removal = matches!(asked, Asked::Remove(_));
            let decision = self.oracle.decided_about_job(at, job, is_removal);
            asked = Asked::Decided { job: job.clone(), is_removal, decision };
        }
        if let (Asked::Replace(job), FromCoordinator::Replaced(JobReplacement::Created)) = (&asked, &reply) {
            let (job, is_removal) = (job.name.clone(), false);
            let decision = self.oracle.decided_about_job(at, &job, is_removal);
            asked = Asked::Decided { job, is_removal, decision };
        }
        self.hand_over_changes(at, changes, Some(Reply { conn, id, body: reply, terms, asked }));
    }

    /// Checks what workers learn about each other.
    fn check_news(&mut self, at: usize, now_ms: u64, question: &ToCoordinator, answer: &FromCoordinator) {
        self.oracle.sent_home(at, now_ms, question, answer);
        let ToCoordinator::WorkerHeartbeat(heartbeat) = question else { return };
        let lead = self.coordinators[at].lead.as_ref().expect("it leads");
        let lent = self.oracle.lent(at, now_ms, heartbeat, answer, lead.core.lending());
        if let Err(problem) = lent.and_then(|()| self.oracle.mapped(at, now_ms, heartbeat, answer)) {
            self.fail(problem);
        }
    }

    pub(crate) fn coordinator_lost(&mut self, at: usize, conn: ConnId) {
        if self.leads(at) {
            let ((), changes) = self.run_core(at, |core, now_ms| core.handle_closed(now_ms, ConnectionId(conn)));
            self.hand_over_changes(at, changes, None);
        }
    }

    /// Sends a reply, if this coordinator still leads.
    pub(crate) fn give(&mut self, at: usize, Reply { conn, id, body, asked, .. }: Reply) {
        if !self.leads(at) && !mutated(Mutation::AnswerDeposed) {
            self.coverage.count("answer_dropped_as_its_coordinator_lost_the_lease");
            return self.answer_not_leader(at, conn, id);
        }
        let coordinator = &self.coordinators[at];
        let term = coordinator.lead.as_ref().map_or(0, |lead| lead.term);
        if term < self.latest_term {
            if !coordinator.process.clock.is_off {
                return self
                    .fail(format!("coordinator {at} answers in term {term}; {} is the latest", self.latest_term));
            }
            self.coverage.count("old_leader_answered_as_its_clock_stood_still");
        }
        if term == self.latest_term
            && let Err(problem) = self.on_reply(asked, &body)
        {
            self.fail(problem);
        }
        self.answer(at, conn, id, body);
    }

    /// Informs the oracle of a reply from the latest leader.
    fn on_reply(&mut self, asked: Asked, body: &FromCoordinator) -> Result<(), String> {
        match (asked, body) {
            (Asked::Join(job, run, is_again), FromCoordinator::Joined { session, .. }) => {
                self.oracle.answered_join(&(job, run), session, is_again)
            }
            (Asked::Replace(job), FromCoordinator::Replaced(_)) => {
                self.oracle.confirmed_changes(&job.name);
                Ok(())
            }
            (Asked::Change(job), FromCoordinator::Replaced(_)) => {
                self.oracle.confirmed_changes(&job);
                Ok(())
            }
            (Asked::Join(job, ..), FromCoordinator::Refused(Refusal::UnknownJob { .. })) => {
                self.oracle.on_unknown(&job)
            }
            (Asked::Decided { job, is_removal, decision }, FromCoordinator::Done | FromCoordinator::Replaced(_)) => {
                self.oracle.answered_admin(&job, is_removal, decision, self.now_us);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn answer_not_leader(&mut self, at: usize, conn: ConnId, id: u64) {
        self.coverage.count("asked_a_coordinator_that_does_not_lead");
        let leader = self.coordinators[at].candidacy.leader().filter(|_| self.scenario.advertises).map(address_of);
        let refusal = Refusal::NotLeader { leader, cause: "another does, or none".to_owned() };
        self.answer(at, conn, id, FromCoordinator::Refused(refusal));
    }

    fn answer(&mut self, _at: usize, conn: ConnId, id: u64, reply: FromCoordinator) {
        self.send(conn, 1, SimMessage::Answer { era: self.oracle.era(), id, body: Box::new(reply) });
    }
}

impl World {
    /// Schedules an event from a process to itself.
    pub(crate) fn remind(&mut self, delay_us: u64, target: Target, input: ProcessInput) {
        let life = self.process(target).life;
        self.schedule(delay_us, Event::Input { target, life, input });
    }
}
