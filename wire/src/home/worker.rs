//! The home's side: listening on both transports, attaching ranks, delivering batches.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use quinn::{Connection, Endpoint};
use spdl_shard::Position;
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tracing::{debug, warn};

use super::{ATTACH_TIMEOUT, CLOSE_TIMEOUT, ChannelError, Inbound, Outbound, ended};
use crate::{
    certs::Role,
    doorway::Doorway,
    frame::{FrameError, FrameReader, FrameWriter},
    local::{self, LocalListener},
    log_limit::LogLimit,
    messages::{FromHome, Session, ToHome, Transport},
    quic::{self, Close, HANDSHAKE_TIMEOUT, QuicError},
    slab::{Slab, SlabError},
};

/// Who may attach.
const CLIENTS: [Role; 2] = [Role::Client, Role::Admin];
/// Connections that have not attached yet, at once: over QUIC, and over the socket, each of which takes a descriptor.
const MAX_ARRIVING: usize = 256;
const MAX_ARRIVING_LOCAL: usize = 64;
/// What many peers can provoke is logged once in this time.
const LOG_PERIOD: Duration = Duration::from_secs(30);
/// How long accepting rests when the process is out of descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Both doors of a worker. Its tasks end when it is dropped; ranks that are attached stay.
#[derive(Debug)]
pub struct HomeListener {
    arrived: mpsc::Receiver<AttachRequest>,
    _tasks: JoinSet<()>,
}

impl HomeListener {
    /// Starts listening. Call it in a tokio runtime.
    #[must_use]
    pub fn start(local: Option<LocalListener>, quic: Option<Endpoint>) -> Self {
        let (door, arrived) = mpsc::channel(MAX_ARRIVING);
        let mut tasks = JoinSet::new();
        if let Some(listener) = local {
            tasks.spawn(listen_local(listener, door.clone()));
        }
        if let Some(endpoint) = quic {
            tasks.spawn(listen_quic(endpoint, door));
        }
        Self { arrived, _tasks: tasks }
    }

    /// The next rank that wants to be served; `None` when both doors are closed. A slow or hostile peer delays nobody.
    /// Nothing is lost when the future is dropped.
    pub async fn accept(&mut self) -> Option<AttachRequest> {
        self.arrived.recv().await
    }
}

async fn listen_local(listener: LocalListener, door: mpsc::Sender<AttachRequest>) {
    let mut arriving = Doorway::new(MAX_ARRIVING_LOCAL);
    let failures = LogLimit::new(LOG_PERIOD);
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                if let Some(more) = failures.admit_text() {
                    warn!("cannot accept a local connection: {error}{more}");
                }
                tokio::time::sleep(ACCEPT_REST).await;
                continue;
            }
        };
        let admitted = listener.admit(&stream);
        let door = door.clone();
        let process = admitted.as_ref().map_or(0, |peer| peer.pid);
        arriving.enter(process, async move {
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
            arrive(control, refusal, door).await;
        });
    }
}

async fn listen_quic(endpoint: Endpoint, door: mpsc::Sender<AttachRequest>) {
    let mut arriving = Doorway::new(MAX_ARRIVING);
    let strangers = Arc::new(LogLimit::new(LOG_PERIOD));
    while let Some(incoming) = endpoint.accept().await {
        let (door, strangers) = (door.clone(), Arc::clone(&strangers));
        arriving.enter(incoming.remote_address().ip(), async move {
            match open_control(incoming).await {
                Ok(control) => arrive(control, None, door).await,
                Err(ChannelError::Quic(error @ QuicError::RoleNotAllowed { .. })) => {
                    if let Some(more) = strangers.admit_text() {
                        warn!("refused a peer: {error}{more}");
                    }
                }
                Err(error) => debug!(%error, "a connection did not become a client"),
            }
        });
    }
}

async fn open_control(incoming: quinn::Incoming) -> Result<Control, ChannelError> {
    let (connection, peer) = quic::handshake(incoming, &CLIENTS, HANDSHAKE_TIMEOUT).await?;
    let opened = tokio::time::timeout(ATTACH_TIMEOUT, connection.accept_bi()).await;
    let Ok(Ok((write, read))) = opened else { return Err(ChannelError::Closed) };
    // Control messages go before the batches that are on their way.
    let _ = write.set_priority(1);
    let who = format!("{} `{}` at {}", peer.role, peer.name, connection.remote_address());
    Ok(Control {
        frames: FrameReader::new(Inbound::Quic(read), Vec::new()),
        out: FrameWriter::new(Outbound::Quic(write)),
        connection: Some(connection),
        who,
    })
}

/// Reads the first message and hands the request over; a peer that says something else is told what was wrong.
async fn arrive(mut control: Control, refusal: Option<String>, door: mpsc::Sender<AttachRequest>) {
    let problem = match refusal {
        Some(refusal) => refusal,
        None => match tokio::time::timeout(ATTACH_TIMEOUT, control.frames.next::<ToHome>()).await {
            Ok(Ok(Some(ToHome::Attach { session, rank, from, slots, client }))) => {
                // The door is gone when the worker is.
                let _ = door.send(AttachRequest { session, rank, from, slots, client, control }).await;
                return;
            }
            Ok(Ok(Some(other))) => format!("the first message was {other:?}, not Attach"),
            Ok(Err(error)) => error.to_string(),
            Ok(Ok(None)) | Err(_) => return,
        },
    };
    debug!(who = control.who, problem, "refused a client");
    control.fault(problem, false).await;
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
        let last_words = async {
            if self.out.send(&fault).await.is_ok() {
                finish(self.out.io_mut()).await;
            }
        };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, last_words).await;
    }
}

/// Ends the writing side, and on QUIC waits until the peer has all of it.
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

/// A rank that wants to be served. Dropped unanswered, its channel closes.
#[derive(Debug)]
pub struct AttachRequest {
    /// The session it takes part in.
    pub session: Box<Session>,
    /// r.
    pub rank: u32,
    /// First batch wanted starts here.
    pub from: Position,
    /// Slots wanted.
    pub slots: u32,
    /// Process id and host, for the status.
    pub client: String,
    control: Control,
}

impl AttachRequest {
    /// How it came.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        if self.control.connection.is_some() { Transport::Quic } else { Transport::Local }
    }

    /// Who it is, as the kernel or its certificate says; for logs.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.control.who
    }

    /// A slab for it, of the kind that its transport needs.
    ///
    /// # Errors
    /// [`SlabError`].
    pub fn new_slab(&self, slots: u32, slot_bytes: usize) -> Result<Slab, SlabError> {
        match self.transport() {
            Transport::Local => Slab::shared(slots, slot_bytes),
            Transport::Quic | Transport::InProcess => Slab::private(slots, slot_bytes),
        }
    }

    /// Answers with a slab from [`AttachRequest::new_slab`], all of whose slots are free.
    ///
    /// # Errors
    /// [`ChannelError`] when the client is gone.
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
        let sender = HomeSender { out, connection: connection.clone(), slab: slab.clone(), loans: Arc::clone(&loans) };
        Ok((sender, HomeReceiver { frames, connection, slab: slab.clone(), loans, returning: None }))
    }

    /// Answers that it is not served, and why.
    pub async fn refuse(self, message: String, is_retryable: bool) {
        self.control.fault(message, is_retryable).await;
    }
}

/// Slots that the client was given and has not freed, and how its connection says that it no longer reads from one.
type Loans = Arc<Mutex<HashMap<u32, oneshot::Receiver<()>>>>;

/// What a home says to one rank.
#[derive(Debug)]
pub struct HomeSender {
    out: FrameWriter<Outbound>,
    connection: Option<Connection>,
    slab: Slab,
    loans: Loans,
}

impl HomeSender {
    /// Hands a published slot over. Over QUIC, returns when the connection has taken the batch; a client that does not
    /// read makes it wait. Call it with each sequence in turn.
    ///
    /// # Errors
    /// [`ChannelError`] when the client is gone.
    ///
    /// # Panics
    /// When the slot is not published.
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
        Ok(quic::send_batch(connection, sequence, batch, used_bytes, returned).await?)
    }

    /// Says something else: `End`, `Leaving`, `Fault`, `Explained`. Stays queued when the future is dropped.
    ///
    /// # Errors
    /// [`ChannelError`] when the client is gone.
    pub async fn send(&mut self, message: &FromHome) -> Result<(), ChannelError> {
        self.out.send(message).await.map_err(|error| ended(error, self.connection.as_ref()))
    }

    /// Closes in good order: waits, for some seconds at most, until what was sent has arrived.
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
    }
}

/// What one rank says to its home.
#[derive(Debug)]
pub struct HomeReceiver {
    frames: FrameReader<Inbound>,
    connection: Option<Connection>,
    slab: Slab,
    loans: Loans,
    /// A slot that the client has freed and the connection has not: its last acknowledgement is on the way.
    returning: Option<(u32, oneshot::Receiver<()>)>,
}

impl HomeReceiver {
    /// The next message; `None` when the client went away in good order. After `Freed` the slot is free in the slab.
    /// Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// [`ChannelError`]: the client is gone, or frees what it was not given.
    pub async fn recv(&mut self) -> Result<Option<ToHome>, ChannelError> {
        if self.returning.is_none() {
            match self.frames.next::<ToHome>().await {
                Ok(Some(ToHome::Freed { slot })) => {
                    let loan = self.loans.lock().remove(&slot);
                    match loan {
                        Some(loan) => self.returning = Some((slot, loan)),
                        None => return Err(self.broken(format!("it freed slot {slot}, which it was not given"))),
                    }
                }
                Ok(Some(ToHome::Attach { .. })) => return Err(self.broken("it attached twice".to_owned())),
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
        if let Some((_, loan)) = &mut self.returning {
            let _ = loan.await;
        }
        let (slot, _) = self.returning.take().expect("set above");
        assert!(self.slab.release(slot), "slot {slot} was given, and nobody reads from it any more");
        Ok(Some(ToHome::Freed { slot }))
    }

    /// The client broke the protocol: it is told, where it can be, and the channel is of no more use.
    fn broken(&self, problem: String) -> ChannelError {
        if let Some(connection) = &self.connection {
            Close::Protocol.close(connection, &problem);
        }
        ChannelError::protocol(problem)
    }
}
