//! The home's side: listens on both transports, attaches ranks, delivers batches.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use quinn::{Connection, Endpoint};
use spdl_control::{
    Role,
    messages::{FromHome, Session, ToHome},
};
use spdl_insight::Transport;
use spdl_types::Position;
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tracing::warn;

use super::{
    ATTACH_TIMEOUT, CLOSE_TIMEOUT, ChannelError, Inbound, Outbound, close_all, ended,
    joining::{Joined, Joins, KeyTaken},
};
use crate::{
    frame::{FrameError, FrameReader, FrameWriter},
    local::{self, LocalListener},
    log_limit::{LOG_PERIOD, LogLimit},
    pending::PendingConnections,
    quic::{self, Close, HANDSHAKE_TIMEOUT},
    rejections::{RejectionCause, Rejections},
    slab::{Slab, SlabError},
};

/// The roles that may attach.
const CLIENTS: [Role; 2] = [Role::Client, Role::Admin];
/// The roles that may attach, and workers, which request blocks.
const CLIENTS_AND_WORKERS: [Role; 3] = [Role::Worker, Role::Client, Role::Admin];
/// The most connections that attach at once, and the most that wait to attach: over QUIC, and over the socket, where
/// each takes a descriptor.
const AT_ONCE: usize = 64;
const MAX_PENDING: usize = 1024;
const MAX_PENDING_LOCAL: usize = 64;
/// How long accepting pauses when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A worker's listeners on both transports. Dropping it ends its tasks; ranks that are attached stay.
#[derive(Debug)]
pub struct HomeListener {
    arrived: mpsc::Receiver<AttachRequest>,
    rejections: Arc<Rejections>,
    _tasks: JoinSet<()>,
}

impl HomeListener {
    /// Starts listening. Call it in a tokio runtime.
    #[must_use]
    pub fn start(local: Option<LocalListener>, quic: Option<Endpoint>) -> Self {
        Self::start_with(local, quic, None)
    }

    /// Starts listening as [`start`](Self::start) does, and also accepts workers; returns the channel of their
    /// connections.
    #[must_use]
    pub fn start_with_peers(
        local: Option<LocalListener>,
        quic: Option<Endpoint>,
    ) -> (Self, mpsc::Receiver<Connection>) {
        let (peers, connected) = mpsc::channel(MAX_PENDING);
        (Self::start_with(local, quic, Some(peers)), connected)
    }

    fn start_with(
        local: Option<LocalListener>,
        quic: Option<Endpoint>,
        peers: Option<mpsc::Sender<Connection>>,
    ) -> Self {
        let (requests, arrived) = mpsc::channel(MAX_PENDING);
        let rejections = Arc::<Rejections>::default();
        let arrivals = FirstMessageRouter { requests, joins: Joins::default(), rejections: Arc::clone(&rejections) };
        let mut tasks = JoinSet::new();
        if let Some(listener) = local {
            tasks.spawn(listen_local(listener, arrivals.clone()));
        }
        if let Some(endpoint) = quic {
            tasks.spawn(listen_quic(endpoint, peers, arrivals));
        }
        Self { arrived, rejections, _tasks: tasks }
    }

    /// Returns the counts of the peers that did not become clients.
    #[must_use]
    pub const fn rejections(&self) -> &Arc<Rejections> {
        &self.rejections
    }

    /// Returns the next rank that asks to be served; `None` when both listeners are closed. A slow or hostile peer
    /// delays no other peer. Nothing is lost when the future is dropped.
    pub async fn accept(&mut self) -> Option<AttachRequest> {
        self.arrived.recv().await
    }
}

/// The destinations of clients' first messages.
#[derive(Clone)]
struct FirstMessageRouter {
    requests: mpsc::Sender<AttachRequest>,
    joins: Joins,
    rejections: Arc<Rejections>,
}

async fn listen_local(listener: LocalListener, arrivals: FirstMessageRouter) {
    let mut pending = PendingConnections::new(AT_ONCE, MAX_PENDING_LOCAL);
    let failures = LogLimit::new(LOG_PERIOD);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = pending.go_on() => continue,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                if let Some(more) = failures.admit_text() {
                    warn!("cannot accept a local connection: {error}{more}");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let admitted = listener.admit(&stream);
        let arrivals = arrivals.clone();
        let process = admitted.as_ref().map_or(0, |peer| peer.pid);
        pending.admit(process, async move {
            let (who, refusal) = match &admitted {
                Ok(peer) => (format!("process {} of user {}", peer.pid, peer.uid), None),
                Err(error) => (String::new(), Some(error.to_string())),
            };
            let (read, write) = stream.into_split();
            let control = Control {
                frames: FrameReader::new(Inbound::Local(read), Vec::new()),
                out: FrameWriter::new(Outbound::Local(write)),
                connection: None,
                who,
            };
            arrivals.arrive(control, refusal).await;
        });
    }
}

async fn listen_quic(endpoint: Endpoint, peers: Option<mpsc::Sender<Connection>>, arrivals: FirstMessageRouter) {
    let mut pending = PendingConnections::new(AT_ONCE, MAX_PENDING);
    loop {
        let incoming = tokio::select! {
            incoming = endpoint.accept() => incoming,
            () = pending.go_on() => continue,
        };
        let Some(incoming) = incoming else { break };
        let (peers, arrivals) = (peers.clone(), arrivals.clone());
        pending.admit(incoming.remote_address().ip(), async move {
            match open_control(incoming, peers).await {
                Ok(Some(control)) => arrivals.arrive(control, None).await,
                Ok(None) => {}
                Err(error) => {
                    let cause = match &error {
                        ChannelError::Quic(error) => RejectionCause::from(error),
                        _ => RejectionCause::Noise,
                    };
                    arrivals.rejections.note(cause, || format!("rejected a peer: {error}"));
                }
            }
        });
    }
}

/// Returns the control channel of a client; `None` if the peer is a worker, whose connection is passed on to `workers`.
async fn open_control(
    incoming: quinn::Incoming,
    workers: Option<mpsc::Sender<Connection>>,
) -> Result<Option<Control>, ChannelError> {
    let allowed = if workers.is_some() { &CLIENTS_AND_WORKERS[..] } else { &CLIENTS };
    let (connection, peer) = quic::handshake(incoming, allowed, HANDSHAKE_TIMEOUT).await?;
    if let Some(workers) = workers.filter(|_| peer.role == Role::Worker) {
        // This fails only when the worker shuts down.
        let _ = workers.send(connection).await;
        return Ok(None);
    }
    let opened = tokio::time::timeout(ATTACH_TIMEOUT, connection.accept_bi()).await;
    let Ok(Ok((write, read))) = opened else { return Err(ChannelError::Closed) };
    // Control messages overtake batches that are queued.
    let _ = write.set_priority(1);
    let who = format!("{} `{}` at {}", peer.role, peer.name, connection.remote_address());
    Ok(Some(Control {
        frames: FrameReader::new(Inbound::Quic(read), Vec::new()),
        out: FrameWriter::new(Outbound::Quic(write)),
        connection: Some(connection),
        who,
    }))
}

impl FirstMessageRouter {
    /// Reads the first message, and passes the request or the connection on; a peer that sends anything else gets an error.
    async fn arrive(&self, mut control: Control, refusal: Option<String>) {
        let (cause, problem) = match refusal {
            Some(refusal) => (RejectionCause::Role, refusal),
            None => match tokio::time::timeout(ATTACH_TIMEOUT, control.frames.next::<ToHome>()).await {
                Ok(Ok(Some(ToHome::Attach { session, rank, from, slots, client, join_key }))) => {
                    match join_key.map(|key| self.joins.open(key)).transpose() {
                        Ok(joined) => {
                            let request = AttachRequest { session, rank, from, slots, client, control, joined };
                            // This fails only when the worker shuts down.
                            let _ = self.requests.send(request).await;
                            return;
                        }
                        Err(KeyTaken) => (RejectionCause::Noise, "attached with the key of another rank".to_owned()),
                    }
                }
                Ok(Ok(Some(ToHome::Join { key }))) => match &control.connection {
                    Some(connection) if self.joins.join(key, connection.clone()) => return,
                    _ => (RejectionCause::Noise, "joined a rank that is not attached here".to_owned()),
                },
                Ok(Ok(Some(other))) => (RejectionCause::Noise, format!("the first message was {other:?}, not Attach")),
                Ok(Err(error)) => (RejectionCause::Noise, error.to_string()),
                Ok(Ok(None)) | Err(_) => return,
            },
        };
        self.rejections.note(cause, || format!("rejected a peer: {} {problem}", control.who));
        control.fault(problem, false).await;
    }
}

/// A control channel that has not attached yet.
#[derive(Debug)]
struct Control {
    frames: FrameReader<Inbound>,
    out: FrameWriter<Outbound>,
    connection: Option<Connection>,
    who: String,
}

impl Control {
    async fn fault(mut self, message: String, is_retryable: bool) {
        let fault = FromHome::Fault { message, is_retryable };
        let sending = async {
            if self.out.send(&fault).await.is_ok() {
                finish(self.out.io_mut()).await;
            }
        };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, sending).await;
    }
}

/// Closes the writing side, and on QUIC waits until the peer has received everything.
async fn finish(out: &mut Outbound) {
    match out {
        Outbound::Local(half) => {
            let _ = tokio::io::AsyncWriteExt::shutdown(half).await;
        }
        Outbound::Quic(stream) => {
            let _ = stream.finish();
            let _ = stream.stopped().await;
        }
    }
}

/// A rank's request to be served. If it is dropped without a reply, its channel closes.
#[derive(Debug)]
pub struct AttachRequest {
    /// The session that the rank takes part in.
    pub session: Box<Session>,
    /// r, the rank.
    pub rank: u32,
    /// The position where the first batch starts.
    pub from: Position,
    /// The number of slots that the client wants.
    pub slots: u32,
    /// The client's process id and host, for the status.
    pub client: String,
    control: Control,
    joined: Option<Joined>,
}

impl AttachRequest {
    /// Returns the transport that the request came over.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        if self.control.connection.is_some() { Transport::Quic } else { Transport::Local }
    }

    /// Returns the peer's identity, from the kernel or its certificate; for logs.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.control.who
    }

    /// Makes a slab for the rank, of the kind that its transport needs.
    pub fn new_slab(&self, slots: u32, slot_bytes: usize) -> Result<Slab, SlabError> {
        match self.transport() {
            Transport::Local => Slab::shared(slots, slot_bytes),
            Transport::Quic | Transport::InProcess => Slab::private(slots, slot_bytes),
        }
    }

    /// Replies with a slab from [`AttachRequest::new_slab`], whose slots are all free.
    ///
    /// Returns [`ChannelError`] if the client is gone.
    pub async fn attached(self, slab: &Slab) -> Result<(HomeSender, HomeReceiver), ChannelError> {
        let Control { frames, mut out, connection, .. } = self.control;
        let message = FromHome::Attached { slots: slab.slots(), slot_stride: slab.slot_stride() as u64 };
        let answer = async {
            match out.io_mut() {
                Outbound::Local(half) => {
                    let stream: &UnixStream = half.as_ref();
                    local::send_with_fd(stream, &message, slab.fd().expect("a local slab is shared")).await
                }
                Outbound::Quic(_) => out.send(&message).await,
            }
        };
        let timeout_ms = ATTACH_TIMEOUT.as_millis() as u64;
        let late = ChannelError::Timeout { rank: self.rank, timeout_ms };
        tokio::time::timeout(ATTACH_TIMEOUT, answer).await.map_err(|_| late)??;
        let loans = Loans::default();
        let sender = HomeSender {
            out,
            connection: connection.clone(),
            joined: self.joined,
            slab: slab.clone(),
            loans: Arc::clone(&loans),
        };
        Ok((sender, HomeReceiver { frames, connection, slab: slab.clone(), loans, returning: None }))
    }

    /// Replies that the rank is not served, and why.
    pub async fn refuse(self, message: String, is_retryable: bool) {
        self.control.fault(message, is_retryable).await;
    }
}

/// Slots that the client was given and has not freed. Each receiver completes when the connection no longer reads from
/// the slot.
type Loans = Arc<Mutex<HashMap<u32, oneshot::Receiver<()>>>>;

/// The home's sending side of the channel to one rank.
#[derive(Debug)]
pub struct HomeSender {
    out: FrameWriter<Outbound>,
    connection: Option<Connection>,
    joined: Option<Joined>,
    slab: Slab,
    loans: Loans,
}

impl HomeSender {
    /// Delivers a published slot. Over QUIC, the rank's connections take batches in turn, and this returns when the
    /// connection has taken the whole batch; a client that does not read delays it. Call it with consecutive sequence
    /// numbers.
    ///
    /// # Errors
    /// [`ChannelError`] when the client is gone.
    ///
    /// Panics over QUIC if the slot is not published.
    pub async fn deliver(&mut self, sequence: u64, slot: u32, used_bytes: u64) -> Result<(), ChannelError> {
        let (returned, is_returned) = oneshot::channel();
        self.loans.lock().insert(slot, is_returned);
        let Some(connection) = &self.connection else {
            drop(returned);
            let filled = FromHome::Filled { sequence, slot, used_bytes };
            return self.out.send(&filled).await.map_err(|error| ended(error, None));
        };
        let batch = self.slab.read(slot).unwrap_or_else(|| panic!("slot {slot} is delivered unpublished"));
        let used_bytes = usize::try_from(used_bytes).expect("a slot lies in memory");
        let others = self.joined.as_mut().map_or(&[][..], Joined::connections);
        let turn = (sequence % (others.len() as u64 + 1)) as usize;
        let in_turn = if turn == 0 { connection } else { &others[turn - 1] };
        let sent = quic::send_batch(in_turn, sequence, batch, used_bytes, returned).await;
        if sent.is_err() {
            // The client cannot know yet that this batch does not come, so the connection is closed.
            Close::Done.close(connection, "a connection of the rank has ended");
        }
        Ok(sent?)
    }

    /// Sends another message: `End`, `Leaving`, `Fault` or `Explained`. It stays queued if the future is dropped.
    ///
    /// # Errors
    /// [`ChannelError`] when the client is gone.
    pub async fn send(&mut self, message: &FromHome) -> Result<(), ChannelError> {
        self.out.send(message).await.map_err(|error| ended(error, self.connection.as_ref()))
    }

    /// Closes the channel cleanly: waits at most 5 s until everything that was sent has arrived.
    pub async fn close(mut self) {
        let arrive = async {
            if self.out.flush().await.is_ok() {
                finish(self.out.io_mut()).await;
            }
            let loans: Vec<_> = self.loans.lock().drain().map(|(_, loan)| loan).collect();
            for loan in loans {
                let _ = loan.await;
            }
        };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, arrive).await;
        if let Some(connection) = &self.connection {
            Close::Done.close(connection, "");
        }
        if let Some(joined) = &mut self.joined {
            close_all(joined.connections(), Close::Done, "");
        }
    }
}

/// The home's receiving side of the channel from one rank.
#[derive(Debug)]
pub struct HomeReceiver {
    frames: FrameReader<Inbound>,
    connection: Option<Connection>,
    slab: Slab,
    loans: Loans,
    /// A slot that the client has freed but the connection still holds, until its last acknowledgement arrives; and whether a
    /// device has locked it.
    returning: Option<(u32, oneshot::Receiver<()>, bool)>,
}

impl HomeReceiver {
    /// Returns the next message; `None` if the client closed the channel cleanly. After `Freed` the slot is free in the
    /// slab. Nothing is lost when the future is dropped.
    ///
    /// Returns [`ChannelError`] if the client is gone, or frees a slot that it was not given.
    pub async fn recv(&mut self) -> Result<Option<ToHome>, ChannelError> {
        if self.returning.is_none() {
            match self.frames.next::<ToHome>().await {
                Ok(Some(ToHome::Freed { slot, is_locked })) => {
                    let loan = self.loans.lock().remove(&slot);
                    match loan {
                        Some(loan) => {
                            // Lock the slot before it is free and its pages can go. Over QUIC, the client has locked a
                            // slot of its own slab.
                            if is_locked && self.connection.is_none() {
                                self.slab.lock(slot);
                            }
                            self.returning = Some((slot, loan, is_locked));
                        }
                        None => return Err(self.broken(format!("it freed slot {slot}, which it was not given"))),
                    }
                }
                Ok(Some(ToHome::Attach { .. } | ToHome::Join { .. })) => {
                    return Err(self.broken("it attached twice".to_owned()));
                }
                Ok(message) => return Ok(message),
                Err(error @ (FrameError::Io(_) | FrameError::Cut { .. })) => {
                    return match ended(error, self.connection.as_ref()) {
                        ChannelError::Closed => Ok(None),
                        error => Err(error),
                    };
                }
                Err(error) => {
                    if let Some(connection) = &self.connection {
                        Close::Protocol.close(connection, &error.to_string());
                    }
                    return Err(error.into());
                }
            }
        }
        if let Some((_, loan, _)) = &mut self.returning {
            let _ = loan.await;
        }
        let (slot, _, is_locked) = self.returning.take().expect("set above");
        assert!(self.slab.release(slot), "slot {slot} was given, and no connection reads from it any more");
        Ok(Some(ToHome::Freed { slot, is_locked }))
    }

    /// Reports a client that broke the protocol: closes its connection with the reason, where there is one. The channel
    /// must not be used any more.
    fn broken(&self, problem: String) -> ChannelError {
        if let Some(connection) = &self.connection {
            Close::Protocol.close(connection, &problem);
        }
        ChannelError::protocol(problem)
    }
}
