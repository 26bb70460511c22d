//! The worker process: accepts clients on a Unix socket and over QUIC, serves ranks, and sends heartbeats to the
//! coordinator.
//!
//! Clients are isolated from each other: a client can take nothing from another but its share of the decoding threads.
//! Each rank has its own task and slab, and both end when the client does.

mod heartbeats;
mod rank;
mod ranks;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use heartbeats::Heartbeats;
use quinn::{Connection, Endpoint};
use ranks::Ranks;
use spdl_control::{
    Role,
    coordinators::Addresses,
    messages::{Home, PeerRequest},
};
use spdl_types::{NodeId, WorkerId};
use spdl_wire::{
    certs::Identity,
    health::Health,
    home::HomeListener,
    local::{Allow, LocalChannelError, LocalListener},
    quic::{self, QuicError, QuicSettings},
    rejections::Rejections,
};
use tokio::{
    sync::{mpsc, watch},
    task::{JoinHandle, JoinSet},
};

use crate::{
    feed::Resources,
    fetch::{PeerLinks, answer_block},
    help::{self, HelperLinks},
};

/// Default maximum number of ranks that a worker serves.
pub const DEFAULT_RANKS: usize = 256;
/// Default maximum number of blocks that one other worker is asked for at once.
pub const DEFAULT_PEER_REQUESTS: usize = 8;
/// Maximum number of connections from other workers.
const MAX_PEERS: usize = 4096;
/// How long each of the two notices to the coordinator may take: that the worker drains, and that it has left.
const NOTICE_TIMEOUT: Duration = Duration::from_millis(300);
/// How long clients are still served while they look for other homes.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(900);
/// Grace period before the remaining clients are disconnected.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(300);

/// The phase of a worker's shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Shutdown {
    /// The worker serves and accepts ranks.
    #[default]
    Running,
    /// Ranks are asked to find other homes and are served until they have.
    Draining,
    /// The remaining clients are disconnected.
    Closing,
}

/// The settings of a worker.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// The worker's certificate and the cluster's CA.
    pub identity: Identity,
    /// UDP address for clients; port 0 means any free port.
    pub listen: SocketAddr,
    /// The address that is advertised to clients, if it differs from `listen`.
    pub advertise: Option<SocketAddr>,
    /// Path of the Unix socket for clients on this node; without it they use QUIC.
    pub socket: Option<PathBuf>,
    /// Users that may use the socket, in addition to the worker's own user and root.
    pub allow: Allow,
    /// Addresses of the coordinators.
    pub coordinators: Addresses,
    /// The node that the worker runs on.
    pub node: NodeId,
    /// Maximum number of ranks served. Default: [`DEFAULT_RANKS`].
    pub ranks: usize,
    /// Maximum number of blocks that one other worker is asked for at once. Default: [`DEFAULT_PEER_REQUESTS`]. With 0, blocks
    /// come only from stores, and none are sent to other workers.
    pub peer_requests: usize,
    /// Whether the worker serves ranks, helps other workers, or both. Default: it serves ranks.
    pub role: WorkerRole,
    /// The settings of its connections.
    pub quic: QuicSettings,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum WorkerRole {
    /// It serves ranks.
    #[default]
    Home,
    /// It decodes samples for other workers' ranks, and serves none itself.
    Helper,
    /// It serves ranks, and decodes samples for other workers' ranks with what is left of its cores.
    Both,
}

/// The error of a worker that cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum ServeError {
    /// The certificate is not one for a worker.
    #[error("certificate of `{name}` is for a {role}, not for a worker")]
    Role { name: String, role: Role },
    /// The Unix socket cannot be used.
    #[error(transparent)]
    Local(#[from] LocalChannelError),
    /// The QUIC endpoint cannot be used.
    #[error(transparent)]
    Quic(#[from] QuicError),
    /// The address that clients should use cannot be determined.
    #[error("address of this host towards coordinator `{coordinators}`: {source}")]
    Advertise { coordinators: Addresses, source: io::Error },
}

/// A running worker. Dropping it ends it at once; [`leave`](Self::leave) shuts it down in order.
#[derive(Debug)]
pub struct Worker {
    home: Home,
    endpoint: Endpoint,
    resources: Arc<Resources>,
    ranks: Arc<Ranks>,
    health: Arc<Health>,
    rejections: Arc<Rejections>,
    heartbeats: Arc<Heartbeats>,
    heartbeat_task: JoinHandle<()>,
    serving: JoinHandle<()>,
    serving_peers: Option<JoinHandle<()>>,
    shutdown: watch::Sender<Shutdown>,
    is_accepted: watch::Receiver<bool>,
    /// Whether all ranks have left since the worker started to drain.
    is_served: watch::Receiver<bool>,
}

impl Worker {
    /// Opens the Unix socket and the QUIC endpoint, and starts to send heartbeats. The coordinator need not be up. Must
    /// be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`ServeError`] if the worker cannot start.
    pub async fn start(settings: WorkerSettings, resources: Arc<Resources>) -> Result<Self, ServeError> {
        let WorkerSettings {
            identity,
            listen,
            advertise,
            socket,
            allow,
            coordinators,
            node,
            ranks,
            peer_requests,
            role,
            quic: quic_settings,
        } = settings;
        if identity.role() != Role::Worker {
            return Err(ServeError::Role { name: identity.name().to_owned(), role: identity.role() });
        }
        let endpoint = quic::server_endpoint(listen, &identity, &quic_settings)?;
        let bound = endpoint.local_addr().map_err(|source| QuicError::Bind { address: listen, source })?;
        let quic = match advertise {
            Some(address) => address,
            None => reachable(bound, &coordinators)
                .await
                .map_err(|source| ServeError::Advertise { coordinators: coordinators.clone(), source })?,
        };
        let local = socket.as_deref().map(|path| LocalListener::bind(path, allow)).transpose()?;
        let home = Home {
            worker: WorkerId(rand::random()),
            name: resources.name().to_owned(),
            node,
            quic,
            socket: local.as_ref().map(|local| local.path().to_string_lossy().into_owned()),
        };
        let ranks = Ranks::new(ranks);
        let (accepted, is_accepted) = watch::channel(false);
        let heartbeats = Arc::new(Heartbeats {
            coordinator_client: heartbeats::coordinator_client(
                quic::client_endpoint(&identity, &quic_settings)?,
                coordinators,
            ),
            home: home.clone(),
            resources: resources.clone(),
            ranks: ranks.clone(),
            role,
            is_accepted: accepted,
            draining: watch::Sender::default(),
        });
        let (shutdown, shutdown_stage) = watch::channel(Shutdown::Running);
        let (listener, peers) = if peer_requests == 0 {
            (HomeListener::start(local, Some(endpoint.clone())), None)
        } else {
            let links = PeerLinks::new(endpoint.clone(), peer_requests);
            resources.fetcher.peers.start(home.worker, Box::new(links));
            resources.helpers.start(Box::new(HelperLinks::new(endpoint.clone())));
            let (listener, peers) = HomeListener::start_with_peers(local, Some(endpoint.clone()));
            (listener, Some(peers))
        };
        let serving_peers = peers.map(|peers| tokio::spawn(serve_peers(peers, resources.clone(), role)));
        let (health, rejections) = (Arc::<Health>::default(), Arc::clone(listener.rejections()));
        let (served, is_served) = watch::channel(false);
        let serving = tokio::spawn({
            let (health, serving) = (health.clone(), serve(listener, resources.clone(), ranks.clone(), shutdown_stage));
            async move {
                health.watch(|| "the task that accepts ranks has panicked".to_owned(), serving).await;
                served.send_replace(true);
            }
        });
        let heartbeat_task = tokio::spawn({
            let (health, heartbeats) = (health.clone(), heartbeats.clone());
            async move {
                let problem = || "the task that sends heartbeats has panicked".to_owned();
                health.watch(problem, heartbeats.run()).await;
            }
        });
        Ok(Self {
            home,
            endpoint,
            resources,
            ranks,
            health,
            rejections,
            heartbeats,
            heartbeat_task,
            serving,
            serving_peers,
            shutdown,
            is_accepted,
            is_served,
        })
    }

    /// Returns how clients reach the worker.
    #[must_use]
    pub const fn home(&self) -> &Home {
        &self.home
    }

    /// Returns the resources that the worker uses.
    #[must_use]
    pub const fn resources(&self) -> &Arc<Resources> {
        &self.resources
    }

    pub(crate) const fn health(&self) -> &Arc<Health> {
        &self.health
    }

    pub(crate) const fn rejections(&self) -> &Arc<Rejections> {
        &self.rejections
    }

    pub(crate) const fn ranks(&self) -> &Arc<Ranks> {
        &self.ranks
    }

    /// Returns a channel that holds whether the coordinator has accepted the last heartbeat.
    #[must_use]
    pub fn is_accepted(&self) -> watch::Receiver<bool> {
        self.is_accepted.clone()
    }

    /// Leaves the cluster within two seconds. Asks the coordinator to send no more ranks and the clients to find other
    /// homes. Clients are served until they have found one, or until the time is up.
    pub async fn leave(&self) {
        // Peers that cannot be reached in time notice by themselves.
        let _ = tokio::time::timeout(NOTICE_TIMEOUT, self.heartbeats.drain()).await;
        let mut is_served = self.is_served.clone();
        for (shutdown, limit) in [(Shutdown::Draining, DRAIN_TIMEOUT), (Shutdown::Closing, CLOSE_TIMEOUT)] {
            self.shutdown.send_replace(shutdown);
            let _ = tokio::time::timeout(limit, is_served.wait_for(|is_served| *is_served)).await;
        }
        self.heartbeat_task.abort();
        self.resources.close();
        let _ = tokio::time::timeout(NOTICE_TIMEOUT, self.heartbeats.leave()).await;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.heartbeat_task.abort();
        self.serving.abort();
        if let Some(serving) = &self.serving_peers {
            serving.abort();
        }
        self.endpoint.close(0_u32.into(), b"worker has left");
    }
}

/// Accepts ranks until the worker drains, then waits for the ranks that it still serves.
async fn serve(
    mut listener: HomeListener,
    resources: Arc<Resources>,
    ranks: Arc<Ranks>,
    mut shutdown: watch::Receiver<Shutdown>,
) {
    let mut served = JoinSet::new();
    loop {
        let request = tokio::select! {
            () = comes(&mut shutdown, Shutdown::Draining) => break,
            request = listener.accept() => match request {
                Some(request) => request,
                None => break,
            },
            Some(ended) = served.join_next() => {
                // Only this rank is lost: it attaches again, here or elsewhere. A restart would cost the others, too.
                if let Err(error) = ended
                    && error.is_panic()
                {
                    tracing::error!("the task that serves a rank has panicked");
                }
                continue;
            }
        };
        served.spawn(rank::serve(request, resources.clone(), ranks.clone(), shutdown.clone()));
    }
    drop(listener);
    while served.join_next().await.is_some() {}
}

/// Answers the workers that connect, and returns once no more can connect and all have left.
async fn serve_peers(mut connected: mpsc::Receiver<Connection>, resources: Arc<Resources>, role: WorkerRole) {
    let mut serving = JoinSet::new();
    while let Some(connection) = connected.recv().await {
        while serving.try_join_next().is_some() {}
        if serving.len() < MAX_PEERS {
            serving.spawn(serve_peer(connection, resources.clone(), role));
        }
    }
    while serving.join_next().await.is_some() {}
}

/// Answers the requests of another worker until its connection ends.
async fn serve_peer(connection: Connection, resources: Arc<Resources>, role: WorkerRole) {
    let answer = move |request, stream| {
        let resources = resources.clone();
        async move {
            match request {
                PeerRequest::Block(request) => answer_block(&resources.fetcher, request, stream).await,
                PeerRequest::Job(_) | PeerRequest::Decode(_) if role == WorkerRole::Home => help::refuse(stream).await,
                PeerRequest::Job(job) => {
                    help::prepare(&resources.decoding, &resources.helpers.jobs, *job, stream).await
                }
                PeerRequest::Decode(request) => {
                    let Resources { decoding, memory, helpers, .. } = &*resources;
                    help::decode(decoding, memory, helpers, request, stream).await
                }
            }
        }
    };
    quic::serve_peer(connection, answer).await;
}

/// Waits until the shutdown has reached `stage`, or its sender is gone.
async fn comes(shutdown: &mut watch::Receiver<Shutdown>, stage: Shutdown) {
    let _ = shutdown.wait_for(|shutdown| *shutdown >= stage).await.map(drop);
}

/// Returns the address at which peers reach the socket bound to `bound`. If that is bound to any address of the host,
/// it is the address from which packets to a coordinator are sent.
async fn reachable(bound: SocketAddr, coordinators: &Addresses) -> io::Result<SocketAddr> {
    if !bound.ip().is_unspecified() {
        return Ok(bound);
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    let mut addresses = Vec::new();
    for coordinator in coordinators.iter() {
        match tokio::net::lookup_host(coordinator).await {
            Ok(found) => addresses.extend(found),
            Err(error) => last = error,
        }
    }
    for address in addresses {
        let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        // Sends nothing: connecting a datagram socket only chooses a route.
        let route = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect(address)?;
            socket.local_addr()
        });
        match route {
            Ok(local) => return Ok(SocketAddr::new(local.ip(), bound.port())),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests;
