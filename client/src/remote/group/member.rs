//! A member of a group that does not lead: gets from the leader what that has got from the home, in the same memory.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use spdl_accounting::StageCounters;
use spdl_control::{
    client::{
        LinkId, SessionEvent,
        group::{GroupMember, TICKS_PER_TIMEOUT},
    },
    messages::{FromLeader, MemberAttach, Session, StartReason, ToLeader},
};
use spdl_insight::Transport;
use spdl_job::layout::Layout;
use spdl_types::Position;
use spdl_wire::{
    group::{self, LeaderLink},
    home::{Attach, ChannelError},
    slab::Slab,
};
use tokio::sync::{
    mpsc::{self, UnboundedReceiver, UnboundedSender},
    oneshot,
};

use super::{problem_of, ticks};
use crate::{
    Batch, ClientError, FreeSlot, Serving, WaitClock,
    remote::{CurrentSession, DriverInput, Explanation, Remote, TrainerMessage, link::LinkSlots},
};

/// How long a member waits before it tries again to attach.
const ATTACH_PAUSE: Duration = Duration::from_millis(50);

/// A member's request to join the group of its rank.
pub(in crate::remote) struct MemberJoin {
    pub(in crate::remote) rank: u32,
    pub(in crate::remote) place: GroupMember,
    pub(in crate::remote) socket: PathBuf,
    pub(in crate::remote) attach: MemberAttach,
    /// How long the leader may take to be there.
    pub(in crate::remote) join_timeout: Duration,
    /// How long the leader may be silent.
    pub(in crate::remote) timeout: Duration,
    pub(in crate::remote) slots: u32,
}

/// What ends a member.
struct MemberFailure(String);

/// Attaches to the leader of the group, and starts the task that receives from it. Tries again until the time is up, since the leader
/// may join its session later.
pub(in crate::remote) async fn join(join: MemberJoin) -> Result<(Remote, Box<Session>, StartReason), ClientError> {
    let MemberJoin { rank, place, socket, attach, join_timeout, timeout, slots } = join;
    let started = Instant::now();
    let mut is_told = false;
    let (session, reason, leader, link) = loop {
        match group::attach(&socket, attach.clone()).await {
            Ok(attached) => break attached,
            Err(error) => {
                let (is_retryable, problem) = (error.is_retryable(), not_attached(&socket, error));
                let waited = started.elapsed();
                if !is_retryable || waited >= join_timeout {
                    let problem = format!("{problem} (after {} ms)", waited.as_millis());
                    return Err(ClientError::Group { rank, member: place.member(), members: place.members(), problem });
                }
                if !std::mem::replace(&mut is_told, true) {
                    tracing::info!("member {place} of rank {rank} waits for its group: {problem}");
                }
                tokio::time::sleep(ATTACH_PAUSE.min(join_timeout - waited)).await;
            }
        }
    };
    let (to_inputs, inputs) = mpsc::unbounded_channel();
    let (to_ready, ready) = mpsc::unbounded_channel();
    let receive = Attach::counters();
    let current = CurrentSession::default();
    let driver = MemberDriver {
        place,
        rank,
        leader,
        link,
        layout: Arc::new(session.layout()),
        world: session.world,
        session: current.clone(),
        timeout,
        inputs,
        to_inputs: to_inputs.clone(),
        ready: to_ready,
        receive: receive.clone(),
        slabs: HashMap::new(),
        held: BTreeSet::new(),
        arrived: VecDeque::new(),
        restarts: 0,
        awaited: VecDeque::new(),
        explaining: Vec::new(),
        is_closing: false,
    };
    tokio::spawn(driver.run());
    let serving = Arc::new(Mutex::new(Serving { transport: Some(Transport::Local), home: None }));
    let remote =
        Remote { inputs: to_inputs, ready, serving, session: current, receive, clock: WaitClock::default(), slots };
    Ok((remote, session, reason))
}

fn not_attached(socket: &Path, error: ChannelError) -> String {
    match error {
        ChannelError::Local(error) => {
            format!("member 0, which leads the group, is not at `{}`: {error}", socket.display())
        }
        error => format!("member 0, which leads the group, at `{}`: {}", socket.display(), problem_of(error)),
    }
}

/// What the leader has sent and the trainer has not got.
enum Arrived {
    Batch(Batch),
    End(Position),
    Restarted(Position),
}

/// Receives from the leader, and gives slots back.
struct MemberDriver {
    place: GroupMember,
    rank: u32,
    world: u32,
    /// The leader's process.
    leader: String,
    link: LeaderLink,
    layout: Arc<Layout>,
    session: CurrentSession,
    timeout: Duration,
    inputs: UnboundedReceiver<DriverInput>,
    to_inputs: UnboundedSender<DriverInput>,
    ready: UnboundedSender<TrainerMessage>,
    receive: Arc<StageCounters>,
    /// The slabs whose slots are held, and the slab that came last.
    slabs: HashMap<u64, Slab>,
    held: BTreeSet<(u64, u32)>,
    arrived: VecDeque<Arrived>,
    /// The number of restarts of this process.
    restarts: u32,
    /// Those of them that the leader has not made yet.
    awaited: VecDeque<Position>,
    explaining: Vec<oneshot::Sender<Explanation>>,
    is_closing: bool,
}

impl MemberDriver {
    async fn run(mut self) {
        if let Err(MemberFailure(problem)) = self.serve().await {
            let (member, members) = (self.place.member(), self.place.members());
            let error = ClientError::Group { rank: self.rank, member, members, problem };
            let _ = self.ready.send(TrainerMessage::Failed(error));
        }
    }

    /// Runs until the loader is closed and nothing is held; fails when the leader is lost.
    async fn serve(&mut self) -> Result<(), MemberFailure> {
        let mut ticks = ticks(self.timeout);
        let mut silent = 0;
        while !(self.is_closing && self.held.is_empty()) {
            tokio::select! {
                biased;
                message = self.link.recv() => {
                    silent = 0;
                    let message = message.map_err(|error| MemberFailure(problem_of(error)))?;
                    self.on_message(message)?;
                }
                input = self.inputs.recv() => self.take_in(input.expect("this task holds a sender")).await?,
                _ = ticks.tick() => {
                    silent += 1;
                    if silent > TICKS_PER_TIMEOUT {
                        let waited_ms = self.timeout.as_millis();
                        let problem = format!("member 0, {}, is silent for {waited_ms} ms", self.leader);
                        return Err(MemberFailure(problem));
                    }
                    self.send(&ToLeader::Alive).await?;
                }
            }
        }
        Ok(())
    }

    fn on_message(&mut self, message: Option<FromLeader>) -> Result<(), MemberFailure> {
        let broken = |problem: String| Err(MemberFailure(format!("member 0 broke the protocol: {problem}")));
        match message {
            None => return Err(MemberFailure(format!("member 0, {}, has ended", self.leader))),
            Some(FromLeader::Over { message }) => return Err(MemberFailure(message)),
            Some(FromLeader::Slab { link, slots, slot_stride }) => {
                let slab = self.link.take_slab(slots, slot_stride);
                let slab = slab.map_err(|error| MemberFailure(problem_of(error)))?;
                if slab.slot_stride() < self.layout.slot_bytes() {
                    return broken(format!("slots are {slot_stride} bytes apart"));
                }
                self.slabs.retain(|of, _| self.held.iter().any(|(held, _)| held == of));
                self.slabs.insert(link, slab);
            }
            Some(FromLeader::Filled { link, slot, used_bytes }) => match self.batch(link, slot, used_bytes) {
                Ok(batch) => self.arrived.push_back(Arrived::Batch(batch)),
                Err(problem) => return broken(problem),
            },
            Some(FromLeader::JobChanged { session }) => *self.session.lock() = Some(Arc::from(session)),
            Some(FromLeader::Restarted { from }) => self.arrived.push_back(Arrived::Restarted(from)),
            Some(FromLeader::End { position }) => self.arrived.push_back(Arrived::End(position)),
            Some(FromLeader::Alive) => {}
            Some(FromLeader::Explained(text)) => {
                let text = format!("member 0, {}: {text}", self.leader);
                for reply in self.explaining.drain(..) {
                    let _ = reply.send(Explanation { text: text.clone(), home: None });
                }
            }
            Some(other @ (FromLeader::Attached { .. } | FromLeader::Refused { .. })) => {
                return broken(format!("it sent {other:?}"));
            }
        }
        self.deliver()
    }

    /// Reads a batch that the leader has announced.
    fn batch(&mut self, link: u64, slot: u32, used_bytes: u64) -> Result<Batch, String> {
        let slab = self.slabs.get(&link).ok_or_else(|| format!("slab {link} was not announced"))?;
        if !slab.publish_filled(slot) {
            return Err(format!("it filled slot {slot}, which it may not"));
        }
        let read = slab.read(slot).ok_or_else(|| format!("slot {slot} is not filled"))?;
        self.held.insert((link, slot));
        let free: Arc<dyn FreeSlot> = Arc::new(LinkSlots { link: LinkId(link), inputs: self.to_inputs.clone() });
        let batch = Batch::new(read, used_bytes, self.layout.clone(), free).map_err(|error| error.to_string())?;
        let header = batch.header();
        if (header.rank, header.world) != (self.rank, self.world) {
            return Err(format!("a batch is for rank {} of {}", header.rank, header.world));
        }
        self.receive.item(Duration::ZERO, used_bytes);
        Ok(batch)
    }

    /// Gives the trainer what has arrived, up to a restart that only the leader has made.
    fn deliver(&mut self) -> Result<(), MemberFailure> {
        if self.is_closing {
            self.arrived.clear();
        }
        while let Some(front) = self.arrived.front() {
            if let Arrived::Restarted(from) = front {
                let Some(wanted) = self.awaited.pop_front() else { return Ok(()) };
                if wanted != *from {
                    let problem =
                        format!("it goes to {wanted} where member 0 goes to {from}: all members go to one position");
                    return Err(MemberFailure(problem));
                }
            }
            let message = match self.arrived.pop_front().expect("it is there") {
                // What comes before a restart of this process is dropped, which gives the slots back.
                Arrived::Batch(_) | Arrived::End(_) if !self.awaited.is_empty() => continue,
                Arrived::Batch(batch) => TrainerMessage::Batch(batch),
                Arrived::End(position) => TrainerMessage::End(position),
                Arrived::Restarted(_) => continue,
            };
            // If the trainer is gone, this drops a batch, which gives its slot back.
            let _ = self.ready.send(message);
        }
        Ok(())
    }

    async fn take_in(&mut self, input: DriverInput) -> Result<(), MemberFailure> {
        match input {
            DriverInput::Event(SessionEvent::Freed { link, slot }) => {
                let Some(slab) = self.slabs.get(&link.0).filter(|_| self.held.remove(&(link.0, slot))) else {
                    return Ok(());
                };
                let is_locked = slab.is_locked(slot);
                assert!(slab.release(slot), "slot {slot} is freed once, after its last reader");
                self.send(&ToLeader::Freed { link: link.0, slot, is_locked }).await?;
            }
            DriverInput::Event(SessionEvent::Delivered(progress)) => {
                let (restarts, position) = (self.restarts, progress.position);
                self.send(&ToLeader::Taken { restarts, position }).await?;
            }
            DriverInput::Restart(from) => {
                self.restarts += 1;
                self.awaited.push_back(from);
                let _ = self.ready.send(TrainerMessage::Restarted);
                self.deliver()?;
            }
            DriverInput::Explain(reply) => self.explain(reply).await?,
            DriverInput::Measure(reply) => drop(reply.send(Ok(None))),
            DriverInput::Close(done) => {
                self.is_closing = true;
                self.deliver()?;
                let sent = self.send(&ToLeader::Close).await;
                if let Some(done) = done {
                    let _ = done.send(());
                }
                sent?;
            }
            DriverInput::Event(_)
            | DriverInput::Filled { .. }
            | DriverInput::Explained { .. }
            | DriverInput::Group(_) => {
                unreachable!("only the driver of a session gets this")
            }
        }
        Ok(())
    }

    async fn explain(&mut self, reply: oneshot::Sender<Explanation>) -> Result<(), MemberFailure> {
        let own = match (self.awaited.front(), self.arrived.front()) {
            (Some(from), _) => format!("member 0, {}, has not gone to {from}, as this member has", self.leader),
            (None, Some(Arrived::Restarted(from))) => {
                format!("member 0, {}, has gone to {from}, and this member has not", self.leader)
            }
            _ => {
                self.explaining.push(reply);
                return self.send(&ToLeader::Explain).await;
            }
        };
        let _ = reply.send(Explanation { text: own, home: None });
        Ok(())
    }

    /// Sends a message. If the leader is gone, the reason is still to be read.
    async fn send(&mut self, message: &ToLeader) -> Result<(), MemberFailure> {
        match self.link.send(message).await {
            Ok(()) | Err(ChannelError::Closed) => Ok(()),
            Err(error) => Err(MemberFailure(problem_of(error))),
        }
    }
}
