//! The remote session: gets batches from a home that the coordinator assigns.
//!
//! One task drives the [core](spdl_control::client), one sends requests to the coordinator, and one per link talks to a home.
//! They communicate only by messages.

mod builder;
mod classes;
mod coordinator;
mod driver;
mod group;
mod link;

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use spdl_accounting::StageCounters;
use spdl_control::{
    client::{JoinRequest, LinkId, Progress, SessionCore, SessionEvent, Timing, group::GroupCore},
    messages::{MemberAttach, Session, StartReason},
};
use spdl_insight::{Measured, Stall};
use spdl_types::{Position, StageStats};
use spdl_wire::{certs::Identity, node::this_node, quic::client_endpoint};
use tokio::sync::{mpsc, oneshot};

pub use builder::Builder;

use crate::{Batch, Blocking, ClientError, Diagnoser, Loader, Serving, Settings, Source, SourceEvent, WaitClock};
use driver::{DrivenRank, SessionDriver};
use group::{GroupInput, GroupLeader, MemberJoin};

/// The loader of a rank whose batches come from a cluster.
pub type Client = Loader<Remote>;

/// How long a home may take to explain why there is no batch.
const EXPLAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long sending the coordinator the end of the session may take.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(1500);

impl Loader<Remote> {
    /// Joins as `rank` of `world`, with the settings of the `SPDL_*` variables; see [`Settings`].
    ///
    /// # Errors
    /// As [`Builder::connect`].
    pub async fn connect(rank: u32, world: u32) -> Result<Client, ClientError> {
        Self::builder().settings(Settings::from_env()?).connect(rank, world).await
    }

    /// Joins as [`Loader::connect`] does, for a thread without an async runtime.
    ///
    /// # Errors
    /// As [`Builder::connect_blocking`].
    pub fn connect_blocking(rank: u32, world: u32) -> Result<Blocking<Remote>, ClientError> {
        Self::builder().settings(Settings::from_env()?).connect_blocking(rank, world)
    }

    /// Returns a builder of a client, which does not read the environment.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// A message to the task that drives the core.
enum DriverInput {
    /// An event for the core.
    Event(SessionEvent),
    /// A batch arrived on a link.
    Filled { link: LinkId, sequence: u64, batch: Batch },
    /// The home's answer to the question why there is no batch.
    Explained { link: LinkId, stall: Option<Stall> },
    /// Something of the group that this process leads.
    Group(GroupInput),
    /// The trainer restarts the stream at this position.
    Restart(Position),
    /// The trainer asks why there is no batch.
    Explain(oneshot::Sender<Explanation>),
    /// The trainer requests the measurements of the rank.
    Measure(oneshot::Sender<MeasuredResult>),
    /// The trainer closes the session. The answer comes when the coordinator has been notified.
    Close(Option<oneshot::Sender<()>>),
}

/// The core's explanation, and the answer that the home may add.
struct Explanation {
    text: String,
    home: Option<oneshot::Receiver<Option<Stall>>>,
}

impl Explanation {
    /// Returns the whole explanation, once the home has answered or has had time to.
    async fn into_text(self) -> String {
        let Self { text, home } = self;
        let Some(home) = home else { return text };
        match tokio::time::timeout(EXPLAIN_TIMEOUT, home).await {
            Ok(Ok(Some(stall))) => format!("{text}: {stall}"),
            Ok(Ok(None)) => format!("{text}, which reports that the batch is about to arrive"),
            Ok(Err(_)) => format!("{text}, whose connection was lost before it explained the wait"),
            Err(_) => format!("{text}, and does not answer"),
        }
    }
}

/// The session that the rank joined and the reason for its start position, or why the rank could not join.
type Joining = Result<(Box<Session>, StartReason), ClientError>;

/// The measurements of the rank, or why they are not known.
type MeasuredResult = Result<Option<Measured>, ClientError>;

/// A message to the trainer.
enum TrainerMessage {
    Batch(Batch),
    End(Position),
    /// All following messages belong to the restarted stream.
    Restarted,
    Failed(ClientError),
}

/// The session with its job as it is now, shared by the driver and the loader.
type CurrentSession = Arc<Mutex<Option<Arc<Session>>>>;

/// A rank's session with a cluster, created by [`Builder::connect`].
pub struct Remote {
    inputs: mpsc::UnboundedSender<DriverInput>,
    ready: mpsc::UnboundedReceiver<TrainerMessage>,
    serving: Arc<Mutex<Serving>>,
    /// The session with its job as it is now, once the rank has joined.
    session: CurrentSession,
    receive: Arc<StageCounters>,
    clock: WaitClock,
    /// The number of slots.
    slots: u32,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("serving", &*self.serving.lock()).finish_non_exhaustive()
    }
}

impl Source for Remote {
    type Batch = Batch;
    type Error = ClientError;

    async fn next(&mut self) -> Result<SourceEvent, ClientError> {
        loop {
            match self.ready.recv().await {
                // Of a restart whose future was dropped.
                Some(TrainerMessage::Restarted) => {}
                Some(TrainerMessage::Batch(batch)) => return Ok(SourceEvent::Batch(batch)),
                Some(TrainerMessage::End(position)) => return Ok(SourceEvent::End(position)),
                Some(TrainerMessage::Failed(error)) => return Err(error),
                None => return Err(ClientError::Closed),
            }
        }
    }

    async fn restart(&mut self, from: Position) -> Result<(), ClientError> {
        self.inputs.send(DriverInput::Restart(from)).map_err(|_| ClientError::Closed)?;
        // Batches of the earlier stream give their slots back here, since other processes may wait for that.
        loop {
            match self.ready.recv().await {
                Some(TrainerMessage::Restarted) => return Ok(()),
                Some(TrainerMessage::Batch(_) | TrainerMessage::End(_)) => {}
                Some(TrainerMessage::Failed(error)) => return Err(error),
                None => return Err(ClientError::Closed),
            }
        }
    }

    async fn explain(&mut self) -> String {
        let (reply, explanation) = oneshot::channel();
        let _ = self.inputs.send(DriverInput::Explain(reply));
        match explanation.await {
            Ok(explanation) => explanation.into_text().await,
            Err(_) => "the session is over".to_owned(),
        }
    }

    fn record_progress(&mut self, progress: Progress) {
        let _ = self.inputs.send(DriverInput::Event(SessionEvent::Delivered(progress)));
    }

    fn serving(&self) -> Serving {
        self.serving.lock().clone()
    }

    fn session(&self) -> Option<Arc<Session>> {
        self.session.lock().clone()
    }

    fn most_held(&self) -> u32 {
        self.slots
    }

    fn stages(&self) -> Vec<StageStats> {
        vec![self.receive.stats(Instant::now())]
    }

    fn wait_clock(&self) -> WaitClock {
        self.clock.clone()
    }

    fn diagnoser(&self) -> Diagnoser {
        let inputs = self.inputs.clone();
        Diagnoser::new(move || {
            let (reply, measured) = oneshot::channel();
            let _ = inputs.send(DriverInput::Measure(reply));
            async { measured.await.unwrap_or(Err(ClientError::Closed)) }
        })
    }

    async fn close(&mut self) {
        let (done, closed) = oneshot::channel();
        if self.inputs.send(DriverInput::Close(Some(done))).is_ok() {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT * 2, closed).await;
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.inputs.send(DriverInput::Close(None));
    }
}

/// Joins the session, or the group of the rank, and starts the tasks that keep the rank alive.
async fn join(builder: Builder, rank: u32, world: u32) -> Result<Client, ClientError> {
    let started = Instant::now();
    let Builder { settings, global_batch } = builder;
    settings.check()?;
    if rank >= world {
        return Err(spdl_control::messages::Refusal::RankOutOfRange { rank, world }.into());
    }
    let addresses = settings.addresses()?;
    let run = settings.run.clone().unwrap_or_else(|| settings.job.clone());
    let place = settings.member;
    let socket = place.is_shared().then(|| group::socket(&addresses.to_string(), &settings.job, &run, rank, world));
    let socket = socket.transpose()?;
    if let Some(socket) = socket.clone().filter(|_| place.member() > 0) {
        let attach = MemberAttach {
            member: place.member(),
            members: place.members(),
            launch: settings.launch.clone(),
            start: settings.start.wanted(),
            fingerprint: settings.start.fingerprint(),
            global_batch,
            epochs: settings.epochs,
            client: client_name(),
        };
        let (join_timeout, timeout, slots) = (settings.timeout, settings.member_timeout, settings.slots);
        let join = MemberJoin { rank, place, socket, attach, join_timeout, timeout, slots };
        let (remote, session, reason) = group::join(join).await?;
        return Ok(Loader::new(remote, Arc::from(session), rank, settings.timeout, started).with_reason(reason));
    }
    let endpoints = endpoints(&settings)?;
    let system = |action| move |error: std::io::Error| ClientError::System { action, cause: error.to_string() };
    let member =
        if place.is_shared() { format!(", which leads a group of {}", place.members()) } else { String::new() };
    let join_request = JoinRequest {
        job: settings.job.clone(),
        run,
        rank,
        world,
        global_batch,
        epochs: settings.epochs,
        start: settings.start.wanted(),
        fingerprint: settings.start.fingerprint(),
        launch: settings.launch.clone(),
        takeover: settings.takeover,
        node: this_node(settings.node.as_deref()).map_err(system("read the name of this node"))?,
        client: client_name() + &member,
        since_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        nonce: RandomState::new().hash_one(std::process::id()),
        slots: settings.slots,
        transports: settings.transports,
        socket: settings.socket.clone(),
        coordinators: addresses.to_string(),
    };
    let leader = socket.map(|socket| {
        let timeout_ms = u64::try_from(settings.member_timeout.as_millis()).unwrap_or(u64::MAX);
        let core = GroupCore::new(rank, place.members(), settings.launch.clone(), timeout_ms);
        GroupLeader::new(core, socket, settings.member_timeout)
    });
    let join_timeout_ms = u64::try_from(settings.timeout.as_millis()).unwrap_or(u64::MAX);
    let driven = DrivenRank { job: join_request.job.clone(), rank, slots: settings.slots, leader };
    let core = SessionCore::new(join_request, Timing { join_timeout_ms, ..Timing::default() }, 0);
    let (remote, joined) = SessionDriver::start(core, driven, endpoints, addresses);
    let (session, reason) = joined.await.unwrap_or(Err(ClientError::Closed))?;
    Ok(Loader::new(remote, Arc::from(session), rank, settings.timeout, started).with_reason(reason))
}

/// Makes an endpoint for each connection to the home, because only one thread at a time processes the packets of an
/// endpoint.
fn endpoints(settings: &Settings) -> Result<Arc<[quinn::Endpoint]>, ClientError> {
    let folder = settings.certs.display().to_string();
    let identity = Identity::load(&settings.certs)
        .map_err(|error| ClientError::Certificates { folder, cause: error.to_string() })?;
    let endpoint = |_| client_endpoint(&identity, &settings.quic);
    (0..settings.quic.connections_of_rank())
        .map(endpoint)
        .collect::<Result<_, _>>()
        .map_err(|error| ClientError::System { action: "open a QUIC endpoint", cause: error.to_string() })
}

/// Returns the process id and the host, with which the reader of an error finds this process.
fn client_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    format!("process {} on {}", std::process::id(), if host.is_empty() { "an unnamed host" } else { host })
}
