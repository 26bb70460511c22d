//! The task of one link to a home: attaches, receives batches, and sends freed slots back.

use std::{sync::Arc, time::Duration};

use futures::future::try_join_all;
use quinn::Endpoint;
use spdl_control::{
    Role,
    client::{HomeTransport, LinkId, SessionEvent},
    messages::{FromHome, Home},
};
use spdl_insight::Stall;
use spdl_job::layout::Layout;
use spdl_wire::{
    home::{Attach, ChannelError, ClientReceiver, ClientSender, attach_local, attach_quic},
    quic::connect,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::DriverInput;
use crate::{Batch, FreeSlot};

/// A message to the task of a link.
pub(super) enum LinkCommand {
    /// The home may fill the slot again.
    Free(u32),
    /// Ask the home why there is no batch.
    Explain,
}

/// The state of a link's task.
pub(super) struct LinkTask {
    pub(super) link: LinkId,
    pub(super) home: Home,
    pub(super) way: HomeTransport,
    pub(super) attach: Attach,
    pub(super) layout: Arc<Layout>,
    /// One for each connection.
    pub(super) endpoints: Arc<[Endpoint]>,
    pub(super) timeout: Duration,
    pub(super) inputs: UnboundedSender<DriverInput>,
}

/// Limits the messages that a home can send at any time; otherwise they would queue up as fast as they arrive.
#[derive(Default)]
struct MessageLimits {
    /// Number of explanations that were requested and have not arrived.
    asked: u32,
    is_leaving: bool,
}

impl MessageLimits {
    /// Checks whether the home may send this message now; the error names what it did wrong.
    fn allow(&mut self, message: &FromHome) -> Result<(), &'static str> {
        match message {
            FromHome::Explained(_) => {
                self.asked = self.asked.checked_sub(1).ok_or("it sent an explanation that was not requested")?;
            }
            FromHome::Leaving if std::mem::replace(&mut self.is_leaving, true) => {
                return Err("it announced twice that it leaves");
            }
            _ => {}
        }
        Ok(())
    }
}

/// Reports to the core that the task has ended, even by a panic. The core ignores a report of what it already knows.
struct EndReport {
    link: LinkId,
    inputs: UnboundedSender<DriverInput>,
}

impl Drop for EndReport {
    fn drop(&mut self) {
        let lost = SessionEvent::LinkLost { link: self.link, cause: "its task ended".to_owned() };
        let _ = self.inputs.send(DriverInput::Event(lost));
    }
}

/// Sends the freed slots of a link back.
pub(super) struct LinkSlots {
    pub(super) link: LinkId,
    pub(super) inputs: UnboundedSender<DriverInput>,
}

impl FreeSlot for LinkSlots {
    fn free(&self, slot: u32) {
        // After the end of the session no task receives this, and the slot is no longer needed.
        let _ = self.inputs.send(DriverInput::Event(SessionEvent::Freed { link: self.link, slot }));
    }
}

impl LinkTask {
    /// Runs until the link is lost, or until the core leaves the link and so closes `commands`.
    pub(super) async fn run(self, mut commands: UnboundedReceiver<LinkCommand>) {
        let ended = EndReport { link: self.link, inputs: self.inputs.clone() };
        if let Some(event) = self.serve(&mut commands).await {
            let _ = ended.inputs.send(DriverInput::Event(event));
        }
    }

    /// Serves the link and returns the event that ended it, or `None` when the core left the link.
    async fn serve(self, commands: &mut UnboundedReceiver<LinkCommand>) -> Option<SessionEvent> {
        let link = self.link;
        let attached = tokio::select! {
            attached = self.attach() => attached,
            () = until_left(commands) => return None,
        };
        let (mut sender, mut receiver) = match attached {
            Ok(channel) => channel,
            Err(error) => return Some(self.lost(error)),
        };
        let slots = receiver.slab().slots();
        self.send_event(SessionEvent::Attached { link, slots });
        let free: Arc<dyn FreeSlot> = Arc::new(LinkSlots { link, inputs: self.inputs.clone() });
        let mut limits = MessageLimits::default();
        loop {
            let received = tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => {
                        limits.asked += u32::from(matches!(command, LinkCommand::Explain));
                        match send_command(&mut sender, command).await {
                            Ok(()) => continue,
                            Err(error) => return Some(self.lost(error)),
                        }
                    }
                    None => {
                        sender.close();
                        return None;
                    }
                },
                received = receiver.recv() => received,
            };
            let event = match received {
                Ok(message) => match limits.allow(&message) {
                    Ok(()) => self.event_of(&receiver, message, &free),
                    Err(problem) => Some(SessionEvent::LinkLost { link, cause: problem.to_owned() }),
                },
                Err(error) => Some(self.lost(error)),
            };
            match event {
                None => {}
                Some(end @ (SessionEvent::LinkLost { .. } | SessionEvent::Fault { .. })) => return Some(end),
                Some(event) => self.send_event(event),
            }
        }
    }

    async fn attach(&self) -> Result<(ClientSender, ClientReceiver), ChannelError> {
        let (attach, slot_bytes) = (self.attach.clone(), self.layout.slot_bytes());
        match &self.way {
            HomeTransport::Local { path } => attach_local(path.as_ref(), attach, slot_bytes, self.timeout).await,
            HomeTransport::Quic => {
                let connecting = |endpoint| connect(endpoint, self.home.quic, Role::Worker, self.timeout);
                let connections = try_join_all(self.endpoints.iter().map(connecting)).await?;
                attach_quic(connections, attach, slot_bytes, self.timeout).await
            }
        }
    }

    /// Converts a message into an event for the core, or returns `None` when the message was already passed on.
    fn event_of(&self, receiver: &ClientReceiver, message: FromHome, free: &Arc<dyn FreeSlot>) -> Option<SessionEvent> {
        let link = self.link;
        match message {
            FromHome::Filled { sequence, slot, used_bytes } => match self.batch(receiver, slot, used_bytes, free) {
                Ok(batch) => {
                    let _ = self.inputs.send(DriverInput::Filled { link, sequence, batch });
                    None
                }
                Err(cause) => Some(SessionEvent::LinkLost { link, cause: format!("batch number {sequence}: {cause}") }),
            },
            FromHome::End { sequence, position } => Some(SessionEvent::End { link, sequence, position }),
            FromHome::Leaving => Some(SessionEvent::Leaving { link }),
            FromHome::Fault { message, is_retryable } => Some(SessionEvent::Fault { link, message, is_retryable }),
            FromHome::Explained(stall) => {
                self.explained(stall);
                None
            }
            FromHome::Attached { .. } => {
                Some(SessionEvent::LinkLost { link, cause: "it attached the rank twice".to_owned() })
            }
        }
    }

    fn batch(
        &self,
        receiver: &ClientReceiver,
        slot: u32,
        used_bytes: u64,
        free: &Arc<dyn FreeSlot>,
    ) -> Result<Batch, String> {
        let slot = receiver.slab().read(slot).ok_or_else(|| format!("slot {slot} is not filled"))?;
        let batch =
            Batch::new(slot, used_bytes, self.layout.clone(), free.clone()).map_err(|error| error.to_string())?;
        let (header, rank, world) = (batch.header(), self.attach.rank, self.attach.session.world);
        if (header.rank, header.world) != (rank, world) {
            return Err(format!("it is for rank {} of {}, not {rank} of {world}", header.rank, header.world));
        }
        Ok(batch)
    }

    fn explained(&self, stall: Option<Stall>) {
        let _ = self.inputs.send(DriverInput::Explained { link: self.link, stall });
    }

    fn lost(&self, error: ChannelError) -> SessionEvent {
        let link = self.link;
        match error {
            ChannelError::Refused { message, is_retryable } => SessionEvent::Fault { link, message, is_retryable },
            error => SessionEvent::LinkLost { link, cause: error.to_string() },
        }
    }

    fn send_event(&self, event: SessionEvent) {
        let _ = self.inputs.send(DriverInput::Event(event));
    }
}

async fn send_command(sender: &mut ClientSender, command: LinkCommand) -> Result<(), ChannelError> {
    match command {
        LinkCommand::Free(slot) => sender.free(slot).await,
        LinkCommand::Explain => sender.explain().await,
    }
}

/// Waits until the core leaves the link. Before the link is attached, no other command can arrive.
async fn until_left(commands: &mut UnboundedReceiver<LinkCommand>) {
    while commands.recv().await.is_some() {}
}
