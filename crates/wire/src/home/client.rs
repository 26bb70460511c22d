//! The client's side: attaches to a home, receives batches in order, frees slots.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use quinn::{Connection, ConnectionError, Endpoint};
use spdl_accounting::StageCounters;
use spdl_control::{
    Role,
    messages::{FromHome, Home, Session, ToHome},
};
use spdl_insight::Transport;
use spdl_types::{NodeId, Position, Stage};
use tokio::{sync::mpsc, task::JoinSet};

use super::{ChannelError, Inbound, Outbound, close_all, ended, received::ReceivedSlots};
use crate::{
    frame::{FrameError, FrameReader, FrameWriter},
    local::{self, Allow, LocalChannelError},
    quic::{self, Close, QuicError},
    slab::{self, Slab},
};

/// A client's request to a home.
#[derive(Clone, Debug)]
pub struct Attach {
    /// The session.
    pub session: Box<Session>,
    /// r, the rank.
    pub rank: u32,
    /// The position where the first batch starts.
    pub from: Position,
    /// The number of slots that the client wants.
    pub slots: u32,
    /// The client's process id and host, for the status.
    pub client: String,
    /// Whether other processes of this node map the slab, also where batches come over QUIC.
    pub is_shared: bool,
    /// Counts the batches that arrive.
    pub receive: Arc<StageCounters>,
}

impl Attach {
    /// Returns new counters for [`receive`](Self::receive).
    #[must_use]
    pub fn counters() -> Arc<StageCounters> {
        Arc::new(StageCounters::new(Stage::Receive))
    }

    fn into_message(self, join_key: Option<u128>) -> ToHome {
        let Self { session, rank, from, slots, client, is_shared: _, receive: _ } = self;
        ToHome::Attach { session, rank, from, slots, client, join_key }
    }
}

/// Attaches to a home: over its socket if it is on this node and the socket answers, over QUIC otherwise.
pub async fn attach(
    home: &Home,
    this_node: &NodeId,
    endpoint: Option<&Endpoint>,
    request: Attach,
    slot_bytes: usize,
    timeout: Duration,
) -> Result<(ClientSender, ClientReceiver), ChannelError> {
    if let (Some(socket), true) = (&home.socket, home.node == *this_node) {
        match attach_local(Path::new(socket), request.clone(), slot_bytes, timeout).await {
            Err(ChannelError::Local(error)) if endpoint.is_some() => {
                tracing::warn!(%error, home = home.name, "the home's socket cannot be used; taking QUIC");
            }
            attached => return attached,
        }
    }
    let endpoint = endpoint.ok_or_else(|| ChannelError::NoEndpoint { name: home.name.clone() })?;
    let connection = quic::connect(endpoint, home.quic, Role::Worker, timeout).await?;
    attach_quic(vec![connection], request, slot_bytes, timeout).await
}

/// Attaches over a home's Unix socket.
pub async fn attach_local(
    path: &Path,
    request: Attach,
    slot_bytes: usize,
    timeout: Duration,
) -> Result<(ClientSender, ClientReceiver), ChannelError> {
    let (rank, wanted, stage) = (request.rank, request.slots, request.receive.clone());
    let opening = async {
        let stream = local::connect(path, &Allow::default()).await?;
        let (read, write) = stream.into_split();
        let mut out = FrameWriter::new(Outbound::Local(write));
        // If the home has refused this client and closed its side, this fails, and the reason can still be read below.
        let _ = out.send(&request.into_message(None)).await;
        let mut bytes = Vec::new();
        let (message, fd) = local::receive_with_fd(read.as_ref(), &mut bytes).await.map_err(|error| match error {
            LocalChannelError::Frame(FrameError::Cut { .. } | FrameError::Io(_)) => ChannelError::Closed,
            LocalChannelError::Frame(error) => error.into(),
            error => error.into(),
        })?;
        let (slots, slot_stride) = granted(message, wanted)?;
        if slot_stride < slot_bytes as u64 {
            let problem = format!("slots are {slot_stride} bytes apart, a batch takes {slot_bytes}");
            return Err(ChannelError::protocol(problem));
        }
        let fd = fd.ok_or_else(|| ChannelError::protocol("the slab arrived without a descriptor"))?;
        let slab = Slab::attach(fd, slots, slot_stride)?;
        let frames = FrameReader::new(Inbound::Local(read), bytes);
        let received = ReceivedSlots::new(&stage, slots);
        let sender = ClientSender { out, connection: None, slab: slab.clone(), received: received.clone() };
        Ok((sender, ClientReceiver::new(frames, slab, None, received)))
    };
    within(timeout, rank, opening).await
}

/// Attaches to a home over QUIC connections: the first carries messages, and all of them carry batches. If one is lost,
/// all are closed, and the channel ends.
///
/// # Errors
/// [`ChannelError`].
///
/// # Panics
/// If there is no connection.
pub async fn attach_quic(
    connections: Vec<Connection>,
    request: Attach,
    slot_bytes: usize,
    timeout: Duration,
) -> Result<(ClientSender, ClientReceiver), ChannelError> {
    let (rank, wanted, stage) = (request.rank, request.slots, request.receive.clone());
    let make_slab = if request.is_shared { Slab::shared } else { Slab::private };
    let (connection, others) = connections.split_first().expect("a channel has a connection");
    let key = (!others.is_empty()).then(join_key).transpose()?;
    let opening = async {
        let opened = connection.open_bi().await;
        let (write, read) = opened.map_err(|error| QuicError::of(error, connection.remote_address()))?;
        let mut out = FrameWriter::new(Outbound::Quic(write));
        let mut frames = FrameReader::new(Inbound::Quic(read), Vec::new());
        let lost = |error| ended(error, Some(connection));
        out.send(&request.into_message(key)).await.map_err(lost)?;
        let message = frames.next().await.map_err(lost)?.ok_or(ChannelError::Closed)?;
        let (slots, _) = granted(message, wanted)?;
        if let Some(key) = key {
            try_join_all(others.iter().map(|connection| join(connection, key))).await?;
        }
        let slab = make_slab(slots, slot_bytes)?;
        let received = ReceivedSlots::new(&stage, slots);
        let sender =
            ClientSender { out, connection: Some(connection.clone()), slab: slab.clone(), received: received.clone() };
        let arrivals = Arrivals::start(&connections, &slab, &received);
        Ok((sender, ClientReceiver::new(frames, slab, Some(arrivals), received)))
    };
    within(timeout, rank, opening).await
}

/// Returns a number that cannot be guessed.
fn join_key() -> Result<u128, ChannelError> {
    let mut key = [0; 16];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| ChannelError::protocol("the system gives no random numbers"))?;
    Ok(u128::from_le_bytes(key))
}

/// Adds a connection to the rank that attached with this key.
async fn join(connection: &Connection, key: u128) -> Result<(), ChannelError> {
    let opened = connection.open_bi().await;
    let (write, _) = opened.map_err(|error| QuicError::of(error, connection.remote_address()))?;
    FrameWriter::new(Outbound::Quic(write))
        .send(&ToHome::Join { key })
        .await
        .map_err(|error| ended(error, Some(connection)))
}

async fn within<T>(
    timeout: Duration,
    rank: u32,
    opening: impl Future<Output = Result<T, ChannelError>>,
) -> Result<T, ChannelError> {
    let late = ChannelError::Timeout { rank, timeout_ms: timeout.as_millis() as u64 };
    tokio::time::timeout(timeout, opening).await.unwrap_or(Err(late))
}

/// Returns the number of slots that the home gave, and the distance between them.
fn granted(message: FromHome, wanted: u32) -> Result<(u32, u64), ChannelError> {
    match message {
        FromHome::Attached { slots, .. } if slots == 0 || slots > wanted || slots > slab::MAX_SLOTS => {
            Err(ChannelError::protocol(format!("{slots} slots were given where {wanted} were wanted")))
        }
        FromHome::Attached { slots, slot_stride } => Ok((slots, slot_stride)),
        FromHome::Fault { message, is_retryable } => Err(ChannelError::Refused { message, is_retryable }),
        FromHome::Leaving => {
            Err(ChannelError::Refused { message: "the worker is shutting down".to_owned(), is_retryable: true })
        }
        other => Err(ChannelError::protocol(format!("{other:?} arrived before Attached"))),
    }
}

/// The client's sending side of the channel.
#[derive(Debug)]
pub struct ClientSender {
    out: FrameWriter<Outbound>,
    connection: Option<Connection>,
    slab: Slab,
    received: Arc<ReceivedSlots>,
}

impl ClientSender {
    /// Frees a slot. The message stays queued if the future is dropped.
    ///
    /// Returns [`ChannelError`] if the home is gone.
    ///
    /// Panics if the slot was not received, or a [`SlotRef`](crate::slab::SlotRef) of it still exists.
    pub async fn free(&mut self, slot: u32) -> Result<(), ChannelError> {
        let is_locked = self.slab.is_locked(slot);
        assert!(self.slab.release(slot), "slot {slot} is freed once, after its last reader");
        self.received.free();
        self.send(&ToHome::Freed { slot, is_locked }).await
    }

    /// Asks why there is no batch.
    ///
    /// # Errors
    /// [`ChannelError`] when the home is gone.
    pub async fn explain(&mut self) -> Result<(), ChannelError> {
        self.send(&ToHome::Explain).await
    }

    async fn send(&mut self, message: &ToHome) -> Result<(), ChannelError> {
        self.out.send(message).await.map_err(|error| ended(error, self.connection.as_ref()))
    }

    /// Closes the channel cleanly: the home reclaims the slots at once. Other connections end with the first.
    pub fn close(self) {
        if let Some(connection) = &self.connection {
            Close::Done.close(connection, "");
        }
    }
}

/// Receives batches over QUIC in the background.
#[derive(Debug)]
struct Arrivals {
    /// The first carries messages, too.
    connections: Vec<Connection>,
    /// Ends when the connections end, after the last batch that arrived completely.
    arrived: mpsc::Receiver<Result<FromHome, QuicError>>,
    is_over: bool,
    _tasks: JoinSet<()>,
}

impl Arrivals {
    fn start(connections: &[Connection], slab: &Slab, received: &Arc<ReceivedSlots>) -> Self {
        // Each arrival holds a slot, so the queue is never full for long.
        let (arrive, arrived) = mpsc::channel(slab.slots() as usize + 1);
        let mut tasks = JoinSet::new();
        for connection in connections {
            let (ending, all) = (connection.clone(), connections.to_vec());
            tasks.spawn(async move {
                quic::until_closed(&ending).await;
                close_all(&all, Close::Done, "another connection of the rank has ended");
            });
            tasks.spawn(receive_all(connection.clone(), slab.clone(), received.clone(), arrive.clone()));
        }
        Self { connections: connections.to_vec(), arrived, is_over: false, _tasks: tasks }
    }

    /// Returns how the connections ended. If several have, prefers a reason that did not come from this side.
    fn end(&self) -> ChannelError {
        let ends = || self.connections.iter().filter_map(|one| Some((one.close_reason()?, one.remote_address())));
        let first =
            ends().find(|(reason, _)| !matches!(reason, ConnectionError::LocallyClosed)).or_else(|| ends().next());
        match first.map(|(reason, address)| QuicError::of(reason, address)) {
            Some(QuicError::Closed { .. }) | None => ChannelError::Closed,
            Some(error) => error.into(),
        }
    }
}

/// Receives every batch into its slot, several at once, until the connection ends.
async fn receive_all(
    connection: Connection,
    slab: Slab,
    received: Arc<ReceivedSlots>,
    arrive: mpsc::Sender<Result<FromHome, QuicError>>,
) {
    let mut receiving = JoinSet::new();
    while let Ok(mut stream) = connection.accept_uni().await {
        while receiving.try_join_next().is_some() {}
        let (connection, slab, arrive) = (connection.clone(), slab.clone(), arrive.clone());
        let received = received.clone();
        receiving.spawn(async move {
            let started = Instant::now();
            let batch = received.count_reading(quic::receive_batch(&mut stream, &slab, &connection)).await;
            match &batch {
                Ok((_, slot, used_bytes)) => received.hold_received(*slot, started, *used_bytes),
                Err(_) => received.fail(),
            }
            // If the connection ended, its own error explains a batch that was cut.
            if batch.is_ok() || connection.close_reason().is_none() {
                let filled = |(sequence, slot, used_bytes)| FromHome::Filled { sequence, slot, used_bytes };
                let _ = arrive.send(batch.map(filled)).await;
            }
        });
    }
    receiving.join_all().await;
}

/// The client's receiving side of the channel: messages and batches, the batches in order.
#[derive(Debug)]
pub struct ClientReceiver {
    frames: FrameReader<Inbound>,
    slab: Slab,
    arrivals: Option<Arrivals>,
    received: Arc<ReceivedSlots>,
    /// Whether the control channel has ended; batches that were on their way may still arrive.
    is_control_over: bool,
    /// The sequence number of the next batch to return.
    next: u64,
    /// Batches and the end that arrived out of order, by sequence number.
    early: BTreeMap<u64, FromHome>,
}

impl ClientReceiver {
    const fn new(
        frames: FrameReader<Inbound>,
        slab: Slab,
        arrivals: Option<Arrivals>,
        received: Arc<ReceivedSlots>,
    ) -> Self {
        Self { frames, slab, arrivals, received, is_control_over: false, next: 0, early: BTreeMap::new() }
    }

    /// Returns the slab whose slots are filled.
    #[must_use]
    pub const fn slab(&self) -> &Slab {
        &self.slab
    }

    /// Returns how batches arrive.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        if self.arrivals.is_some() { Transport::Quic } else { Transport::Local }
    }

    /// Returns the next message. `Filled` messages come in order of `sequence`, and their slots can be read then; `End`
    /// comes after the last. Nothing is lost when the future is dropped.
    ///
    /// Returns [`ChannelError`] if the home is gone or breaks the protocol.
    pub async fn recv(&mut self) -> Result<FromHome, ChannelError> {
        loop {
            if let Some(event) = self.early.remove(&self.next) {
                self.next += u64::from(matches!(event, FromHome::Filled { .. }));
                return Ok(event);
            }
            match self.next_of_any_order().await? {
                event @ (FromHome::Filled { sequence, .. } | FromHome::End { sequence, .. }) => {
                    self.keep(sequence, event)?;
                }
                FromHome::Attached { .. } => return Err(ChannelError::protocol("it attached twice")),
                other => return Ok(other),
            }
        }
    }

    async fn next_of_any_order(&mut self) -> Result<FromHome, ChannelError> {
        let Some(arrivals) = &mut self.arrivals else {
            let event = self.frames.next().await?.ok_or(ChannelError::Closed)?;
            if let FromHome::Filled { slot, used_bytes, .. } = event {
                if used_bytes > self.slab.slot_stride() as u64 || !self.slab.publish_filled(slot) {
                    let problem = format!("it filled slot {slot} with {used_bytes} bytes, which it may not");
                    return Err(ChannelError::protocol(problem));
                }
                self.received.hold(used_bytes);
            }
            return Ok(event);
        };
        loop {
            tokio::select! {
                received = self.frames.next(), if !self.is_control_over => match received {
                    Ok(Some(FromHome::Filled { .. })) => {
                        return Err(ChannelError::protocol("it announced a batch without its bytes"));
                    }
                    Ok(Some(event)) => return Ok(event),
                    Ok(None) | Err(FrameError::Io(_) | FrameError::Cut { .. }) => self.is_control_over = true,
                    Err(error) => {
                        close_all(&arrivals.connections, Close::Protocol, &error.to_string());
                        return Err(error.into());
                    }
                },
                arrived = arrivals.arrived.recv(), if !arrivals.is_over => match arrived {
                    Some(Ok(filled)) => return Ok(filled),
                    Some(Err(error)) => {
                        close_all(&arrivals.connections, Close::Protocol, &error.to_string());
                        return Err(error.into());
                    }
                    None => arrivals.is_over = true,
                },
                else => return Err(arrivals.end()),
            }
        }
    }

    fn keep(&mut self, sequence: u64, event: FromHome) -> Result<(), ChannelError> {
        // Every batch that was sent and not freed occupies a slot, and the end may be one further.
        if sequence.saturating_sub(self.next) > u64::from(self.slab.slots()) {
            let problem = format!("it sent number {sequence} where {} is next", self.next);
            return Err(ChannelError::protocol(problem));
        }
        if sequence < self.next || self.early.insert(sequence, event).is_some() {
            return Err(ChannelError::protocol(format!("it sent number {sequence} twice")));
        }
        Ok(())
    }
}
