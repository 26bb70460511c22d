//! The task that drives the core: passes inputs and timeouts to it, and carries out its effects.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;
use quinn::Endpoint;
use spdl_accounting::StageCounters;
use spdl_control::{
    client::{
        LinkId, SessionCore, SessionEffect, SessionEvent,
        group::{GroupEffect, MemberLoss},
    },
    coordinators::Addresses,
    messages::{FromLeader, Session, StartReason, ToCoordinator},
};
use spdl_insight::{ReceiveStats, Stall};
use spdl_job::layout::Layout;
use spdl_wire::{home::Attach, spans};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::Instant,
};
use tracing::{Instrument, Span};

use super::{
    CLOSE_TIMEOUT, CurrentSession, DriverInput, Explanation, GroupInput, GroupLeader, Joining, Remote, TrainerMessage,
    coordinator, link,
};
use crate::{Batch, Serving, WaitClock};

/// How long the endpoints may take to send the session's last packets.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// Owns the core of one session and everything that its effects act on.
pub(super) struct SessionDriver {
    core: SessionCore,
    job: String,
    rank: u32,
    /// Carries the ids of the session and the rank into log lines.
    span: Span,
    epoch: Instant,
    endpoints: Arc<[Endpoint]>,
    inputs: mpsc::UnboundedReceiver<DriverInput>,
    /// The sender for the link tasks. It also keeps `inputs` open.
    to_inputs: mpsc::UnboundedSender<DriverInput>,
    questions: mpsc::UnboundedSender<coordinator::Question>,
    coordinator: JoinHandle<()>,
    links: HashMap<LinkId, mpsc::UnboundedSender<link::LinkCommand>>,
    /// Batches that arrived and are not delivered yet.
    pending: HashMap<(LinkId, u32), Batch>,
    ready: mpsc::UnboundedSender<TrainerMessage>,
    serving: Arc<Mutex<Serving>>,
    session: CurrentSession,
    receive: Arc<StageCounters>,
    /// Read before each call of the core, so that heartbeats report the wait in progress.
    clock: WaitClock,
    joined: Option<oneshot::Sender<Joining>>,
    layout: Option<Arc<Layout>>,
    explaining: Vec<(LinkId, oneshot::Sender<Option<Stall>>)>,
    /// The group that this process leads, if others share its rank.
    group: Option<GroupLeader>,
    /// Why the session starts where it does.
    reason: StartReason,
    /// What the other members of the group are told at the end.
    close_reason: String,
    end: LinkEnded,
}

/// What a driver has to know of its rank.
pub(super) struct DrivenRank {
    pub(super) job: String,
    pub(super) rank: u32,
    pub(super) slots: u32,
    pub(super) leader: Option<GroupLeader>,
}

/// How far the session is from its end.
enum LinkEnded {
    No,
    /// The last message to the coordinator is on its way. Holds the sender with which to answer `close`.
    Leaving(Option<oneshot::Sender<()>>),
    Over,
}

impl SessionDriver {
    /// Starts the tasks of a session.
    pub(super) fn start(
        core: SessionCore,
        DrivenRank { job, rank, slots, leader }: DrivenRank,
        endpoints: Arc<[Endpoint]>,
        addresses: Addresses,
    ) -> (Remote, oneshot::Receiver<Joining>) {
        let (to_inputs, inputs) = mpsc::unbounded_channel();
        let (questions, asked) = mpsc::unbounded_channel();
        let (to_ready, ready) = mpsc::unbounded_channel();
        let (to_joined, joined) = oneshot::channel();
        let serving = Arc::new(Mutex::new(Serving::default()));
        let session = CurrentSession::default();
        let (clock, receive) = (WaitClock::default(), Attach::counters());
        let span = spans::rank(None, &job, rank);
        let stages = coordinator::RankStages { receive: receive.clone(), clock: clock.clone() };
        let asking = coordinator::ask_all(endpoints[0].clone(), addresses, asked, to_inputs.clone(), stages);
        let driver = Self {
            core,
            job,
            rank,
            span: span.clone(),
            epoch: Instant::now(),
            endpoints,
            inputs,
            to_inputs: to_inputs.clone(),
            questions,
            coordinator: tokio::spawn(asking.instrument(span)),
            links: HashMap::new(),
            pending: HashMap::new(),
            ready: to_ready,
            serving: serving.clone(),
            session: session.clone(),
            receive: receive.clone(),
            clock: clock.clone(),
            joined: Some(to_joined),
            layout: None,
            explaining: Vec::new(),
            group: leader,
            reason: StartReason::default(),
            close_reason: "member 0, which leads the group, has closed its loader".to_owned(),
            end: LinkEnded::No,
        };
        tokio::spawn(driver.run());
        (Remote { inputs: to_inputs, ready, serving, session, receive, clock, slots }, joined)
    }

    async fn run(mut self) {
        self.carry_out();
        while matches!(self.end, LinkEnded::No) {
            let wake = self.core.wake_ms().map(|at_ms| self.epoch + Duration::from_millis(at_ms));
            let far = self.epoch + Duration::from_secs(u32::MAX.into());
            tokio::select! {
                input = self.inputs.recv() => self.take_in(input.expect("this task holds a sender")),
                () = tokio::time::sleep_until(wake.unwrap_or(far)) => {
                    self.core.waited(self.clock.total_ms());
                    self.core.note_received(self.received());
                    self.core.handle_timeout(self.now_ms());
                }
            }
            self.carry_out();
        }
        self.finish().await;
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn received(&self) -> ReceiveStats {
        ReceiveStats {
            connections: u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX),
            bytes: self.receive.stats(std::time::Instant::now()).bytes,
            thread_ns: self.receive.read_busiest_thread(),
        }
    }

    fn take_in(&mut self, input: DriverInput) {
        let now_ms = self.now_ms();
        self.core.waited(self.clock.total_ms());
        let input = match &mut self.group {
            Some(group) => match of_group(group, input) {
                Some(input) => input,
                None => return,
            },
            None => input,
        };
        match input {
            DriverInput::Event(event) => self.core.handle(now_ms, event),
            DriverInput::Group(input) => self.take_in_of_group(now_ms, input),
            DriverInput::Filled { link, sequence, batch } => {
                let (slot, from, next) = (batch.slot(), batch.from(), batch.next());
                self.pending.insert((link, slot), batch);
                self.core.handle(now_ms, SessionEvent::Filled { link, sequence, slot, from, next });
            }
            DriverInput::Restart(from) => {
                if let Some(group) = &mut self.group {
                    group.on_restart(from);
                }
                self.core.handle(now_ms, SessionEvent::Restart { from });
                let _ = self.ready.send(TrainerMessage::Restarted);
            }
            DriverInput::Explain(reply) => {
                let explanation = self.explain(now_ms);
                let _ = reply.send(explanation);
            }
            DriverInput::Explained { link, stall } => {
                for (_, reply) in self.explaining.extract_if(.., |(of, _)| *of == link) {
                    let _ = reply.send(stall.clone());
                }
            }
            DriverInput::Measure(reply) => match self.core.session() {
                Some(session) => {
                    let request = ToCoordinator::Measurements { session: session.id, rank: self.rank };
                    let _ = self.questions.send(coordinator::Question::OfTrainer(request, reply));
                }
                None => drop(reply.send(Ok(None))),
            },
            DriverInput::Close(done) => {
                if let Some(progress) = self.group.as_mut().and_then(|group| group.core.take_progress()) {
                    self.core.handle(now_ms, SessionEvent::Delivered(progress));
                }
                self.core.handle(now_ms, SessionEvent::Close);
                self.end = LinkEnded::Leaving(done);
            }
        }
    }

    fn explain(&mut self, now_ms: u64) -> Explanation {
        let wait_reason = self.core.wait_reason(now_ms);
        let mut text = wait_reason.to_string();
        if let Some(wait) = self.group.as_ref().and_then(|group| group.wait(self.core.slots_held())) {
            if wait.is_all {
                return Explanation { text: wait.text, home: None };
            }
            text = format!("{text}; {}", wait.text);
        }
        let link = self.core.attached_link().filter(|_| wait_reason.is_up_to_the_home());
        let home = link.and_then(|link| {
            self.links.get(&link)?.send(link::LinkCommand::Explain).ok()?;
            let (reply, home) = oneshot::channel();
            self.explaining.push((link, reply));
            Some(home)
        });
        Explanation { text, home }
    }

    fn carry_out(&mut self) {
        loop {
            if let Some(effect) = self.core.poll_effect() {
                self.carry_out_one(effect);
            } else if let Some(effect) = self.group.as_mut().and_then(|group| group.core.poll_effect()) {
                self.carry_out_of_group(effect);
            } else {
                break;
            }
        }
        let Some((home, transport)) = self.core.attached() else { return };
        let mut serving = self.serving.lock();
        if serving.transport != Some(transport) || serving.home.as_ref() != Some(&home.name) {
            *serving = Serving { transport: Some(transport), home: Some(home.name.clone()) };
        }
    }

    fn carry_out_one(&mut self, effect: SessionEffect) {
        match effect {
            SessionEffect::Ask(request) => {
                drop(self.questions.send(coordinator::Question::OfSession(request)));
            }
            SessionEffect::Joined(session, reason) => self.on_joined(session, reason),
            SessionEffect::JobChanged(session) => {
                let fingerprint = session.job.fingerprint();
                self.span.in_scope(|| {
                    tracing::info!("the job has changed ahead of the trainer; its fingerprint is {fingerprint}")
                });
                if let Some(group) = &self.group {
                    group.send(&FromLeader::JobChanged { session: session.clone() });
                }
                *self.session.lock() = Some(Arc::from(session));
            }
            SessionEffect::Attach { link, home, way, from, slots } => {
                let session = Box::new(self.core.session().expect("a rank attaches after it joined").clone());
                let (client, receive) = (super::client_name(), self.receive.clone());
                let is_shared = self.group.is_some();
                let attach = Attach { session, rank: self.rank, from, slots, client, is_shared, receive };
                let layout = self.layout.clone().expect("a rank attaches after it joined");
                let (commands, obeyed) = mpsc::unbounded_channel();
                let (endpoints, inputs) = (self.endpoints.clone(), self.to_inputs.clone());
                let timeout = Duration::from_millis(self.core.timing().attach_timeout_ms);
                let task = link::LinkTask { link, home, way, attach, layout, endpoints, timeout, inputs };
                self.links.insert(link, commands);
                tokio::spawn(task.run(obeyed).instrument(self.span.clone()));
            }
            SessionEffect::Detach { link } => {
                self.links.remove(&link);
                self.explaining.retain(|(of, _)| *of != link);
                self.pending.retain(|(of, _), _| *of != link);
            }
            SessionEffect::Free { link, slot } => {
                if let Some(commands) = self.links.get(&link) {
                    let _ = commands.send(link::LinkCommand::Free(slot));
                }
            }
            SessionEffect::HandOver { link, slot } => {
                let batch = self.pending.remove(&(link, slot)).expect("a batch that has arrived is pending");
                if let Some(group) = &mut self.group {
                    return group.on_batch(link, slot, batch);
                }
                // If the trainer is gone, this drops the batch, which frees its slot.
                let _ = self.ready.send(TrainerMessage::Batch(batch));
            }
            SessionEffect::Discard { link, slot } => drop(self.pending.remove(&(link, slot))),
            SessionEffect::End { position } => match &mut self.group {
                Some(group) => group.core.handle_end(position),
                None => drop(self.ready.send(TrainerMessage::End(position))),
            },
            SessionEffect::Fail(error) => {
                self.close_reason = format!("member 0 has failed: {error}");
                match self.joined.take() {
                    Some(joined) => drop(joined.send(Err(error.into()))),
                    None => drop(self.ready.send(TrainerMessage::Failed(error.into()))),
                }
                self.end = LinkEnded::Over;
            }
            SessionEffect::Log(note) => self.span.in_scope(|| tracing::warn!("{note}")),
        }
    }

    fn on_joined(&mut self, session: Box<Session>, reason: StartReason) {
        self.span = spans::rank(Some(session.id), &self.job, self.rank);
        self.layout = Some(Arc::new(session.layout()));
        self.reason = reason;
        let listening = self.group.as_mut().map_or(Ok(()), |group| group.listen(&self.to_inputs));
        if listening.is_err() {
            // The rank takes no part, so that another process can.
            self.core.handle(self.now_ms(), SessionEvent::Close);
            self.end = LinkEnded::Leaving(None);
        }
        if let Some(joined) = self.joined.take() {
            let _ = joined.send(listening.map(|()| (session, reason)));
        }
    }

    /// Takes what a task of the group reports.
    fn take_in_of_group(&mut self, now_ms: u64, input: GroupInput) {
        let Some(group) = &mut self.group else { return };
        match input {
            GroupInput::Arrived(request) => {
                let session = self.core.session().expect("members attach after the leader has joined");
                group.on_arrived(*request, session, self.reason, &self.to_inputs);
            }
            GroupInput::Heard { member, message } => {
                if group.on_message(member, message) {
                    let explanation = self.explain(now_ms);
                    if let Some(group) = &self.group {
                        group.answer(member, explanation);
                    }
                }
            }
            GroupInput::Ended { member, loss } => group.core.handle_lost(member, loss),
            GroupInput::Tick => group.on_tick(),
        }
    }

    fn carry_out_of_group(&mut self, effect: GroupEffect) {
        let now_ms = self.now_ms();
        let Some(group) = &mut self.group else { return };
        match effect {
            GroupEffect::Share { link, slot } => {
                // If the trainer is gone, this drops the batch, which frees its slot for this process.
                let _ = self.ready.send(TrainerMessage::Batch(group.share(link, slot)));
            }
            GroupEffect::End { position } => {
                group.send(&FromLeader::End { position });
                let _ = self.ready.send(TrainerMessage::End(position));
            }
            GroupEffect::Restarted { from } => group.send(&FromLeader::Restarted { from }),
            GroupEffect::Freed { link, slot } => self.core.handle(now_ms, SessionEvent::Freed { link, slot }),
            GroupEffect::Renew { link } => self.core.handle(now_ms, SessionEvent::Renew { link }),
            GroupEffect::Delivered(progress) => self.core.handle(now_ms, SessionEvent::Delivered(progress)),
            GroupEffect::Lost { member, loss } => {
                let rank = self.rank;
                self.span.in_scope(|| match loss {
                    MemberLoss::Closed => tracing::info!("member {member} of rank {rank} has left: {loss}"),
                    _ => tracing::warn!("member {member} of rank {rank} is lost: {loss}; the other members go on"),
                });
                group.dismiss(member, format!("{loss}, and the other members went on without it"));
            }
        }
    }

    /// Sends the last message to the coordinator, within a time limit, and closes the endpoints.
    async fn finish(self) {
        let Self { core, endpoints, inputs, questions, mut coordinator, links, end, group, close_reason, .. } = self;
        if let Some(group) = group {
            group.close(&close_reason).await;
        }
        // The tasks of the links and of the coordinator end when their channels are dropped.
        drop((links, questions));
        if core.session().is_none() || tokio::time::timeout(CLOSE_TIMEOUT, &mut coordinator).await.is_err() {
            coordinator.abort();
        }
        drop(inputs);
        endpoints.iter().for_each(|endpoint| endpoint.close(0u32.into(), b"the client is done"));
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, join_all(endpoints.iter().map(Endpoint::wait_idle))).await;
        if let LinkEnded::Leaving(Some(done)) = end {
            let _ = done.send(());
        }
    }
}

/// Tells the group what it counts, in place of the session; returns what concerns the session.
fn of_group(group: &mut GroupLeader, input: DriverInput) -> Option<DriverInput> {
    match input {
        DriverInput::Event(SessionEvent::Freed { link, slot }) => group.core.handle_released(0, link, slot),
        DriverInput::Event(SessionEvent::Delivered(progress)) => group.core.handle_progress(progress),
        input => return Some(input),
    }
    None
}
