//! The task that drives the core: passes inputs and timeouts to it, and carries out its effects.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;
use quinn::Endpoint;
use spdl_accounting::StageCounters;
use spdl_control::{
    client::{LinkId, SessionCore, SessionEffect, SessionEvent},
    coordinators::Addresses,
    messages::{Session, StartReason, ToCoordinator},
};
use spdl_insight::Stall;
use spdl_job::layout::Layout;
use spdl_wire::{home::Attach, spans};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::Instant,
};
use tracing::{Instrument, Span};

use super::{
    CLOSE_TIMEOUT, CurrentSession, DriverInput, Explanation, Joining, Remote, TrainerMessage, coordinator, link,
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
    end: LinkEnded,
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
        (job, rank): (String, u32),
        slots: u32,
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
            end: LinkEnded::No,
        };
        tokio::spawn(driver.run());
        (Remote { inputs: to_inputs, ready, restarts: 0, serving, session, receive, clock, slots }, joined)
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

    fn take_in(&mut self, input: DriverInput) {
        let now_ms = self.now_ms();
        self.core.waited(self.clock.total_ms());
        match input {
            DriverInput::Event(event) => self.core.handle(now_ms, event),
            DriverInput::Filled { link, sequence, batch } => {
                let (slot, from, next) = (batch.slot(), batch.from(), batch.next());
                self.pending.insert((link, slot), batch);
                self.core.handle(now_ms, SessionEvent::Filled { link, sequence, slot, from, next });
            }
            DriverInput::Restart(from) => {
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
                self.core.handle(now_ms, SessionEvent::Close);
                self.end = LinkEnded::Leaving(done);
            }
        }
    }

    fn explain(&mut self, now_ms: u64) -> Explanation {
        let wait_reason = self.core.wait_reason(now_ms);
        let text = wait_reason.to_string();
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
        while let Some(effect) = self.core.poll_effect() {
            self.carry_out_one(effect);
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
                *self.session.lock() = Some(Arc::from(session));
            }
            SessionEffect::Attach { link, home, way, from, slots } => {
                let session = Box::new(self.core.session().expect("a rank attaches after it joined").clone());
                let (client, receive) = (super::client_name(), self.receive.clone());
                let attach = Attach { session, rank: self.rank, from, slots, client, receive };
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
                // If the trainer is gone, this drops the batch, which frees its slot.
                let _ = self.ready.send(TrainerMessage::Batch(batch));
            }
            SessionEffect::Discard { link, slot } => drop(self.pending.remove(&(link, slot))),
            SessionEffect::End { position } => drop(self.ready.send(TrainerMessage::End(position))),
            SessionEffect::Fail(error) => {
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
        if let Some(joined) = self.joined.take() {
            let _ = joined.send(Ok((session, reason)));
        }
    }

    /// Sends the last message to the coordinator, within a time limit, and closes the endpoints.
    async fn finish(self) {
        let Self { core, endpoints, inputs, questions, mut coordinator, links, end, .. } = self;
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
