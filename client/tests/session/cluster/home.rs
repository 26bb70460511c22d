//! A home that fills slots with bytes computed from the position, and fails as the test orders.

use std::{collections::VecDeque, net::SocketAddr};

use spdl_control::{
    Role,
    messages::{FromHome, Home, ToHome},
};
use spdl_insight::{Stall, Transport};
use spdl_job::layout::{Entry, Header, Layout, Place};
use spdl_order::BatchParams;
use spdl_types::{DType, NodeId, Position, WorkerId};
use spdl_wire::{
    home::{AttachRequest, ChannelError, HomeListener, HomeReceiver, HomeSender},
    local::{Allow, LocalListener},
    slab::{Slab, SlotMut},
};
use tokio::task::JoinHandle;

use super::{TestCluster, Watched};

/// What a home does after a number of batches.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// Closes the channel without a message.
    Die,
    /// Announces that it leaves, and sends no more batches.
    Leave,
    /// Reports that it cannot serve the rank.
    Fault { is_retryable: bool },
    /// Sends no more batches. When asked why, reports that it cannot serve the rank, but another home might.
    FaultWhenAsked,
    /// Sends no more batches. When asked why, gives this answer.
    Stall(Option<Stall>),
}

/// What the home does, and what it has seen.
#[derive(Default)]
pub(crate) struct HomeScript {
    /// The failure of each attach, in order. After those, the home delivers to the end.
    pub(crate) thens: VecDeque<(u64, Then)>,
    /// Number of steps before the requested position at which the home begins.
    pub(crate) early_steps: u64,
    /// The position and the transport of each attach.
    pub(crate) attached: Vec<(Position, Transport)>,
    /// Number of batches delivered, over all attaches.
    pub(crate) delivered: u64,
    /// Number of slots that came back.
    pub(crate) freed: u64,
    /// Number of channels that ended.
    pub(crate) gone: u64,
}

pub(crate) struct ScriptedHome {
    pub(crate) home: Home,
    pub(crate) script: Watched<HomeScript>,
    task: JoinHandle<()>,
    endpoint: quinn::Endpoint,
}

impl ScriptedHome {
    pub(crate) fn start(cluster: &TestCluster, worker: u64, script: HomeScript) -> Self {
        let (endpoint, quic) = cluster.server(Role::Worker);
        let path = cluster.path(&format!("w{worker}.sock"));
        let local = LocalListener::bind(&path, Allow::default()).unwrap();
        let listener = HomeListener::start(Some(local), Some(endpoint.clone()));
        let script = Watched::new(script);
        let task = tokio::spawn(serve(listener, script.clone()));
        let home = home(worker, quic, path.to_str().unwrap());
        Self { home, script, task, endpoint }
    }

    /// Returns the home's description without its socket, as for a client on another node.
    pub(crate) fn elsewhere(&self) -> Home {
        Home { node: NodeId("elsewhere".into()), socket: None, ..self.home.clone() }
    }

    /// Stops at once, as after a kill.
    pub(crate) fn die(&self) {
        self.task.abort();
        self.endpoint.close(9u32.into(), b"killed");
    }
}

fn home(worker: u64, quic: SocketAddr, socket: &str) -> Home {
    Home {
        worker: WorkerId(worker),
        name: format!("w{worker}"),
        node: NodeId("here".into()),
        quic,
        socket: Some(socket.to_owned()),
    }
}

async fn serve(mut listener: HomeListener, script: Watched<HomeScript>) {
    let mut ranks = tokio::task::JoinSet::new();
    while let Some(request) = listener.accept().await {
        let script = script.clone();
        ranks.spawn(async move {
            // When the client disconnects, only this channel ends.
            let _ = serve_rank(request, &script).await;
            script.change(|script| script.gone += 1);
        });
    }
}

/// The state of one rank on one channel.
struct AttachedRank {
    params: BatchParams,
    samples: u64,
    rank: u32,
    world: u32,
    layout: Layout,
    slab: Slab,
    at: Position,
    sequence: u64,
    then: Option<(u64, Then)>,
    ended: bool,
}

async fn serve_rank(request: AttachRequest, script: &Watched<HomeScript>) -> Result<(), ChannelError> {
    let session = request.session.clone();
    let (transport, from) = (request.transport(), request.from);
    let (early_steps, then) = script.change(|script| {
        script.attached.push((from, transport));
        (script.early_steps, script.thens.pop_front())
    });
    let layout = session.layout();
    let slab = request.new_slab(request.slots, layout.slot_bytes()).unwrap();
    let offset = from.offset - early_steps * u64::from(session.global_batch);
    let mut rank = AttachedRank {
        params: session.batches(),
        samples: session.job.samples,
        rank: request.rank,
        world: session.world,
        layout,
        slab: slab.clone(),
        at: Position::new(from.epoch, offset),
        sequence: 0,
        then,
        ended: false,
    };
    let (mut sender, mut receiver) = request.attached(&slab).await?;
    while rank.deliver_all(&mut sender, script).await? {
        if !rank.process_message(&mut sender, &mut receiver, script).await? {
            break;
        }
    }
    Ok(())
}

impl AttachedRank {
    /// Fills all free slots. Returns false when this channel must end.
    async fn deliver_all(
        &mut self,
        sender: &mut HomeSender,
        script: &Watched<HomeScript>,
    ) -> Result<bool, ChannelError> {
        while !self.ended {
            if let Some((_, then)) = self.then.clone().filter(|(batches, _)| *batches == self.sequence) {
                self.ended = true;
                return self.carry_out(then, sender).await;
            }
            let Some(step) = self.params.step(self.samples, self.at) else {
                sender.send(&FromHome::End { sequence: self.sequence, position: self.at }).await?;
                self.ended = true;
                break;
            };
            let Some(slot) = self.slab.take_any() else { break };
            let (slot, used_bytes) = self.fill(slot, step.from, step.next);
            sender.deliver(self.sequence, slot, used_bytes).await?;
            self.sequence += 1;
            self.at = step.next;
            script.change(|script| script.delivered += 1);
        }
        Ok(true)
    }

    async fn carry_out(&mut self, then: Then, sender: &mut HomeSender) -> Result<bool, ChannelError> {
        match then {
            Then::Die => return Ok(false),
            Then::Leave => sender.send(&FromHome::Leaving).await?,
            Then::Fault { is_retryable } => {
                let message = "shard `train-0.tar` is gone".to_owned();
                sender.send(&FromHome::Fault { message, is_retryable }).await?;
            }
            Then::Stall(_) | Then::FaultWhenAsked => {}
        }
        Ok(true)
    }

    /// Processes one message. Returns false when the client has disconnected.
    async fn process_message(
        &mut self,
        sender: &mut HomeSender,
        receiver: &mut HomeReceiver,
        script: &Watched<HomeScript>,
    ) -> Result<bool, ChannelError> {
        match receiver.recv().await? {
            Some(ToHome::Freed { .. }) => script.change(|script| script.freed += 1),
            Some(ToHome::Explain) => {
                let answer = match &self.then {
                    Some((_, Then::FaultWhenAsked)) => {
                        FromHome::Fault { message: "the disk is full".to_owned(), is_retryable: true }
                    }
                    Some((_, Then::Stall(stall))) => FromHome::Explained(stall.clone()),
                    _ => FromHome::Explained(None),
                };
                sender.send(&answer).await?;
            }
            Some(other) => panic!("a client sends {other:?}"),
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Fills a slot with bytes that are computed from the positions of its samples.
    fn fill(&self, mut slot: SlotMut, from: Position, next: Position) -> (u32, u64) {
        let size = u64::from(self.params.global_batch);
        let bound = |rank: u32| u64::from(rank) * size / u64::from(self.world);
        let offsets: Vec<u64> = (bound(self.rank)..bound(self.rank + 1)).map(|at| from.offset + at).collect();
        let parts = self.layout.split(&mut slot, offsets.len());
        for (entry, offset) in parts.entries.iter_mut().zip(&offsets) {
            *entry = Entry { id: offset * 3 + from.epoch, offset: *offset, epoch: from.epoch, flags: 0, reserved: 0 };
        }
        for (column, place) in parts.columns.into_iter().zip(self.layout.columns()) {
            let Some(column) = column else { continue };
            for (bytes, offset) in column.bytes.chunks_exact_mut(column.sample_bytes).zip(&offsets) {
                match place.dtype {
                    DType::I64 => bytes.copy_from_slice(&(*offset as i64).to_le_bytes()),
                    _ => bytes.chunks_exact_mut(4).for_each(|x| x.copy_from_slice(&(*offset as f32).to_le_bytes())),
                }
            }
        }
        let texts: Vec<String> = offsets.iter().map(|offset| format!("sample {from} {offset}")).collect();
        let ragged: Vec<Vec<&[u8]>> = self
            .layout
            .columns()
            .iter()
            .map(|column| match column.place {
                Place::Ragged { .. } => texts.iter().map(String::as_bytes).collect(),
                Place::Fixed { .. } => vec![],
            })
            .collect();
        let header = Header {
            entries: offsets.len() as u32,
            epoch: from.epoch,
            offset: from.offset,
            next_epoch: next.epoch,
            next_offset: next.offset,
            rank: self.rank,
            world: self.world,
            ..bytemuck::Zeroable::zeroed()
        };
        let used_bytes = self.layout.finish(&mut slot, header, &ragged) as u64;
        (slot.publish(), used_bytes)
    }
}
