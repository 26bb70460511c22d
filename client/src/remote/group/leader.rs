//! Member 0 of a group: shares the batches of its session with the other members.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use spdl_control::{
    client::{
        LinkId,
        group::{GroupCore, MemberLoss},
    },
    messages::{FromLeader, Session, StartReason, ToLeader},
};
use spdl_types::Position;
use spdl_wire::{
    group::{GroupListener, MemberLink, MemberRequest},
    slab::Slab,
};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinSet,
};

use super::{problem_of, socket_error, ticks};
use crate::{
    Batch, ClientError,
    remote::{DriverInput, Explanation, client_name},
};

/// How long the last messages to members may take.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// What the tasks of a leader report to the driver.
pub(in crate::remote) enum GroupInput {
    /// A process asks to be a member.
    Arrived(Box<MemberRequest>),
    /// A member sent a message.
    Heard { member: u32, message: ToLeader },
    /// A member's channel has ended.
    Ended { member: u32, loss: MemberLoss },
    /// A part of the members' timeout has passed.
    Tick,
}

/// Why a rank waits for members of its group.
pub(in crate::remote) struct GroupWait {
    pub(in crate::remote) text: String,
    /// Whether it waits for nothing else.
    pub(in crate::remote) is_all: bool,
}

/// A message to the task of a member.
enum MemberCommand {
    Send(FromLeader),
    Slab(LinkId, Slab),
    /// Sends this reason, and ends the task.
    Over(String),
}

/// The group of a rank, in the process that leads it.
pub(in crate::remote) struct GroupLeader {
    pub(in crate::remote) core: GroupCore,
    socket: PathBuf,
    timeout: Duration,
    members: HashMap<u32, UnboundedSender<MemberCommand>>,
    /// Batches that the session has handed over, and that are not shared yet.
    unshared: HashMap<(LinkId, u32), Batch>,
    /// The slab that was announced last.
    announced: Option<(LinkId, Slab)>,
    /// The restarts before all members were attached, for those that attach after them.
    restarts: Vec<Position>,
    /// Accepts members and counts ticks.
    tasks: JoinSet<()>,
    serving: JoinSet<()>,
}

impl GroupLeader {
    /// Makes the leader of a group that meets at `socket`.
    pub(in crate::remote) fn new(core: GroupCore, socket: PathBuf, timeout: Duration) -> Self {
        Self {
            core,
            socket,
            timeout,
            members: HashMap::new(),
            unshared: HashMap::new(),
            announced: None,
            restarts: Vec::new(),
            tasks: JoinSet::new(),
            serving: JoinSet::new(),
        }
    }

    /// Lets members attach from now on.
    pub(in crate::remote) fn listen(&mut self, inputs: &UnboundedSender<DriverInput>) -> Result<(), ClientError> {
        let mut listener = GroupListener::start(&self.socket).map_err(|error| socket_error(&error))?;
        let to_driver = inputs.clone();
        self.tasks.spawn(async move {
            while let Some(request) = listener.accept().await {
                let _ = to_driver.send(DriverInput::Group(GroupInput::Arrived(Box::new(request))));
            }
        });
        let (to_driver, mut ticks) = (inputs.clone(), ticks(self.timeout));
        self.tasks.spawn(async move {
            loop {
                ticks.tick().await;
                let _ = to_driver.send(DriverInput::Group(GroupInput::Tick));
            }
        });
        Ok(())
    }

    /// Returns which members this process waits for, while it holds `slots_held` slots for the trainer and for them.
    pub(in crate::remote) fn wait(&self, slots_held: usize) -> Option<GroupWait> {
        let list = |members: &[u32]| members.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let awaited: Vec<u32> = self.core.awaited().collect();
        if !awaited.is_empty() {
            let (awaited, socket) = (list(&awaited), self.socket.display());
            let text =
                format!("members {awaited} of the group have not joined it at `{socket}`: start them on this node");
            return Some(GroupWait { text, is_all: true });
        }
        let behind = self.core.behind();
        (!behind.is_empty() && slots_held > 0).then(|| {
            let text = format!("members {} of the group hold batches that member 0 has given back", list(&behind));
            GroupWait { text, is_all: false }
        })
    }

    /// Accepts or refuses a process.
    pub(in crate::remote) fn on_arrived(
        &mut self,
        request: MemberRequest,
        session: &Session,
        reason: StartReason,
        inputs: &UnboundedSender<DriverInput>,
    ) {
        let (commands, obeyed) = mpsc::unbounded_channel();
        let member = request.attach.member;
        if let Err(refusal) = self.core.handle_attach(&request.attach, session) {
            tracing::debug!(client = request.attach.client, %refusal, "refused a member of the group");
            self.serving.spawn(async move { request.refuse(refusal.message, refusal.is_retryable).await });
            return;
        }
        for from in &self.restarts {
            let _ = commands.send(MemberCommand::Send(FromLeader::Restarted { from: *from }));
        }
        if self.core.awaited().next().is_none() {
            self.restarts.clear();
        }
        self.members.insert(member, commands);
        while self.serving.try_join_next().is_some() {}
        let (session, inputs, timeout) = (Box::new(session.clone()), inputs.clone(), self.timeout);
        self.serving.spawn(async move {
            let loss = match request.accept(session, reason, client_name()).await {
                Ok(link) => serve(member, link, obeyed, &inputs, timeout).await,
                Err(_) => Some(MemberLoss::Ended),
            };
            if let Some(loss) = loss {
                let _ = inputs.send(DriverInput::Group(GroupInput::Ended { member, loss }));
            }
        });
    }

    /// Takes a message of a member. Returns whether it asks why there is no batch.
    pub(in crate::remote) fn on_message(&mut self, member: u32, message: ToLeader) -> bool {
        match message {
            ToLeader::Freed { link, slot, is_locked } => {
                let link = LinkId(link);
                // Slots of earlier slabs are not filled again.
                if let Some((_, slab)) = self.announced.as_ref().filter(|(announced, _)| *announced == link)
                    && is_locked
                    && slot < slab.slots()
                {
                    slab.lock(slot);
                }
                self.core.handle_released(member, link, slot);
            }
            ToLeader::Taken { restarts, position } => self.core.handle_taken(member, restarts, position),
            ToLeader::Alive => self.core.hear(member),
            ToLeader::Close => self.core.handle_closing(member),
            ToLeader::Explain => {
                self.core.hear(member);
                return true;
            }
            ToLeader::Attach(_) => {
                let problem = "it attached twice".to_owned();
                self.core.handle_lost(member, MemberLoss::Violation(problem));
            }
        }
        false
    }

    /// Answers a member that asked why there is no batch.
    pub(in crate::remote) fn answer(&self, member: u32, explanation: Explanation) {
        if let Some(commands) = self.members.get(&member).cloned() {
            tokio::spawn(async move {
                let text = explanation.into_text().await;
                let _ = commands.send(MemberCommand::Send(FromLeader::Explained(text)));
            });
        }
    }

    /// Takes a batch that the session hands over, until it is shared.
    pub(in crate::remote) fn on_batch(&mut self, link: LinkId, slot: u32, batch: Batch) {
        self.unshared.insert((link, slot), batch);
        self.core.handle_batch(link, slot);
    }

    /// Restarts the stream of all members.
    pub(in crate::remote) fn on_restart(&mut self, from: Position) {
        self.unshared.clear();
        if self.core.awaited().next().is_some() {
            self.restarts.push(from);
        }
        self.core.handle_restart(from);
    }

    /// Gives a batch to the other members, and returns it.
    pub(in crate::remote) fn share(&mut self, link: LinkId, slot: u32) -> Batch {
        let batch = self.unshared.remove(&(link, slot)).expect("a batch that is shared was handed over");
        if self.announced.as_ref().is_none_or(|(announced, _)| *announced != link) {
            self.announced = Some((link, batch.slab().clone()));
            self.tell(|| MemberCommand::Slab(link, batch.slab().clone()));
        }
        let used_bytes = batch.header().used_bytes;
        self.tell(|| MemberCommand::Send(FromLeader::Filled { link: link.0, slot, used_bytes }));
        batch
    }

    /// Sends a message to all members that get batches.
    pub(in crate::remote) fn send(&self, message: &FromLeader) {
        self.tell(|| MemberCommand::Send(message.clone()));
    }

    fn tell(&self, command: impl Fn() -> MemberCommand) {
        for member in self.core.attached() {
            if let Some(commands) = self.members.get(&member) {
                let _ = commands.send(command());
            }
        }
    }

    /// Tells a member that it gets nothing more, and why.
    pub(in crate::remote) fn dismiss(&mut self, member: u32, message: String) {
        if let Some(commands) = self.members.remove(&member) {
            let _ = commands.send(MemberCommand::Over(message));
        }
    }

    /// Sends a sign of life to all members.
    pub(in crate::remote) fn on_tick(&mut self) {
        self.core.handle_tick();
        for commands in self.members.values() {
            let _ = commands.send(MemberCommand::Send(FromLeader::Alive));
        }
    }

    /// Tells all members that they get nothing more, and waits until they have been sent everything.
    pub(in crate::remote) async fn close(mut self, message: &str) {
        self.tasks.abort_all();
        for (_, commands) in self.members.drain() {
            let _ = commands.send(MemberCommand::Over(message.to_owned()));
        }
        let sent = async { while self.serving.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, sent).await;
    }
}

/// Exchanges messages with a member until the driver ends that, or until the member is lost; returns why it is.
async fn serve(
    member: u32,
    mut link: MemberLink,
    mut commands: UnboundedReceiver<MemberCommand>,
    inputs: &UnboundedSender<DriverInput>,
    timeout: Duration,
) -> Option<MemberLoss> {
    loop {
        let sending = tokio::select! {
            biased;
            command = commands.recv() => command?,
            message = link.recv() => match message {
                Ok(Some(message)) => {
                    let _ = inputs.send(DriverInput::Group(GroupInput::Heard { member, message }));
                    continue;
                }
                Ok(None) => return Some(MemberLoss::Ended),
                Err(error) => return Some(MemberLoss::Violation(problem_of(error))),
            },
        };
        let is_last = matches!(sending, MemberCommand::Over(_));
        let sent = tokio::time::timeout(timeout, async {
            match sending {
                MemberCommand::Send(message) => link.send(&message).await,
                MemberCommand::Slab(id, slab) => link.send_slab(id.0, &slab).await,
                MemberCommand::Over(message) => link.send(&FromLeader::Over { message }).await,
            }
        });
        let is_sent = sent.await.is_ok_and(|sent| sent.is_ok());
        if is_last {
            return None;
        }
        if !is_sent {
            return Some(MemberLoss::Ended);
        }
    }
}
