//! A worker at work: its two doors, the ranks behind them, and its beats to the coordinator.
//!
//! Nothing that one client does, or fails to do, costs another anything but its share of the decoding threads: each
//! rank has a task and a slab of its own, and both go when the client does.

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
use quinn::Endpoint;
use ranks::Ranks;
use spdl_wire::{
    certs::{Identity, Role},
    coordinators::Addresses,
    home::HomeListener,
    local::{Allow, LocalChannelError, LocalListener},
    messages::{Home, NodeId, WorkerId},
    quic::{self, QuicError, QuicSettings},
};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use crate::feed::Resources;

/// Ranks that a worker serves at most, unless told otherwise.
pub const DEFAULT_RANKS: usize = 256;
/// How long the coordinator is waited for, when it is told that the worker drains and when it is told that it is gone.
const NOTICE_TIMEOUT: Duration = Duration::from_millis(300);
/// How long clients are served on until they have found other homes.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(900);
/// How long those that found none have to take their leave.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(300);

/// How far a worker is from leaving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Shutdown {
    /// It stays.
    #[default]
    Running,
    /// Its ranks are to find other homes, and are served until they do.
    Draining,
    /// Who is still there is let go.
    Closing,
}

/// How a worker is set up.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Its certificate and the cluster's CA.
    pub identity: Identity,
    /// UDP address for clients; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address that clients are told, where it differs from `listen`.
    pub advertise: Option<SocketAddr>,
    /// Where the Unix socket for clients on this node is; without it they use QUIC.
    pub socket: Option<PathBuf>,
    /// Users that may use the socket, beside our own and root.
    pub allow: Allow,
    /// Where the coordinators are.
    pub coordinators: Addresses,
    /// This node.
    pub node: NodeId,
    /// Ranks served at most. Default: [`DEFAULT_RANKS`].
    pub ranks: usize,
}

/// A worker that cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Its certificate is not a worker's.
    #[error("certificate of `{name}` is for a {role}, not for a worker")]
    Role {
        /// The certificate's name.
        name: String,
        /// Its role.
        role: Role,
    },
    /// The Unix socket.
    #[error(transparent)]
    Local(#[from] LocalChannelError),
    /// The QUIC endpoint.
    #[error(transparent)]
    Quic(#[from] QuicError),
    /// The address that clients are to use is not known.
    #[error("address of this host towards coordinator `{coordinators}`: {source}")]
    Advertise {
        /// The coordinators.
        coordinators: Addresses,
        /// Why.
        source: io::Error,
    },
}

/// A running worker. Dropped, it ends at once; [`leave`](Self::leave) is the polite way.
#[derive(Debug)]
pub struct Worker {
    home: Home,
    endpoint: Endpoint,
    resources: Arc<Resources>,
    ranks: Arc<Ranks>,
    heartbeats: Arc<Heartbeats>,
    heartbeat_task: JoinHandle<()>,
    serving: JoinHandle<()>,
    shutdown: watch::Sender<Shutdown>,
    is_heard: watch::Receiver<bool>,
    /// Whether all ranks have left after the worker said that it leaves.
    is_served: watch::Receiver<bool>,
}

impl Worker {
    /// Opens both doors and starts to beat. The coordinator need not be there. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn start(settings: WorkerSettings, resources: Arc<Resources>) -> Result<Self, ServeError> {
        let WorkerSettings { identity, listen, advertise, socket, allow, coordinators, node, ranks } = settings;
        if identity.role() != Role::Worker {
            return Err(ServeError::Role { name: identity.name().to_owned(), role: identity.role() });
        }
        let quic_settings = QuicSettings::default();
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
        let (is_heard_out, is_heard) = watch::channel(false);
        let heartbeats = Arc::new(Heartbeats {
            coordinator_client: heartbeats::coordinator_client(
                quic::client_endpoint(&identity, &quic_settings)?,
                coordinators,
            ),
            home: home.clone(),
            resources: resources.clone(),
            ranks: ranks.clone(),
            is_heard: is_heard_out,
            draining: watch::Sender::default(),
        });
        let (shutdown, departs) = watch::channel(Shutdown::Running);
        let listener = HomeListener::start(local, Some(endpoint.clone()));
        let (served, is_served) = watch::channel(false);
        let serving = serve(listener, resources.clone(), ranks.clone(), departs);
        let serving = tokio::spawn(async move {
            serving.await;
            served.send_replace(true);
        });
        let heartbeat_task = tokio::spawn({
            let heartbeats = heartbeats.clone();
            async move { heartbeats.run().await }
        });
        Ok(Self {
            home,
            endpoint,
            resources,
            ranks,
            heartbeats,
            heartbeat_task,
            serving,
            shutdown,
            is_heard,
            is_served,
        })
    }

    /// How it can be reached.
    #[must_use]
    pub const fn home(&self) -> &Home {
        &self.home
    }

    /// What it works with.
    #[must_use]
    pub const fn resources(&self) -> &Arc<Resources> {
        &self.resources
    }

    pub(crate) const fn ranks(&self) -> &Arc<Ranks> {
        &self.ranks
    }

    /// Whether the coordinator has heard the last beat; can be waited for.
    #[must_use]
    pub fn is_heard(&self) -> watch::Receiver<bool> {
        self.is_heard.clone()
    }

    /// Leaves the cluster within two seconds: the coordinator is told not to send anybody, the clients to find other
    /// homes. They are served until they have, or until the time is up.
    pub async fn leave(&self) {
        // Whoever cannot be reached in time finds out by itself.
        let _ = tokio::time::timeout(NOTICE_TIMEOUT, self.heartbeats.drain()).await;
        let mut is_served = self.is_served.clone();
        for (shutdown, patience) in [(Shutdown::Draining, DRAIN_TIMEOUT), (Shutdown::Closing, CLOSE_TIMEOUT)] {
            self.shutdown.send_replace(shutdown);
            let _ = tokio::time::timeout(patience, is_served.wait_for(|is_served| *is_served)).await;
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
        self.endpoint.close(0_u32.into(), b"worker has left");
    }
}

/// Accepts ranks until the worker leaves, and then waits for those that are there.
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
            Some(_) = served.join_next() => continue,
        };
        served.spawn(rank::serve(request, resources.clone(), ranks.clone(), shutdown.clone()));
    }
    drop(listener);
    while served.join_next().await.is_some() {}
}

/// Waits until the departure has come so far, or nobody is left to announce it.
async fn comes(shutdown: &mut watch::Receiver<Shutdown>, stage: Shutdown) {
    let _ = shutdown.wait_for(|shutdown| *shutdown >= stage).await.map(drop);
}

/// The address under which others reach what is bound to `bound`: where that is any address of the host, the one that
/// packets to a coordinator come from.
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
        // Nothing is sent: connecting a datagram socket only chooses a route.
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
