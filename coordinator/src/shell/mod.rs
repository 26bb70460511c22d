//! The process around the core: QUIC for workers, clients and admins, HTTP for probes, the jobs directory, the clock.

mod connections;
mod dataset;
mod driver;
mod http;
mod job_files;
mod metrics;
mod writer;

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use spdl_wire::{
    certs::{CertError, ClusterCa, LEAF_VALIDITY, Role},
    quic::{QuicError, QuicSettings, server_endpoint},
};
use tokio::{net::TcpListener, sync::Notify, task::JoinSet};

use self::driver::Driver;
use crate::{
    core::Config,
    state::{EmbeddedState, StateError},
};

/// How often the core is told that time has passed; a fraction of any sensible liveness timeout.
const TICK: Duration = Duration::from_millis(200);
/// What a stop may take before connections are cut.
const STOP_TIMEOUT: Duration = Duration::from_millis(1_500);
/// The CA's directory in the state directory.
pub const CA_DIRECTORY: &str = "ca";

/// Where a coordinator listens and what it keeps where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// UDP address for workers, clients and admins; port 0 takes a free one.
    pub listen: SocketAddr,
    /// TCP address for HTTP; port 0 takes a free one.
    pub http: SocketAddr,
    /// Directory of the durable state and the cluster's CA.
    pub state: PathBuf,
    /// Directory of job files to load.
    pub jobs: Option<PathBuf>,
    /// Name in its certificate.
    pub name: String,
    /// Further DNS names and addresses in its certificate.
    pub sans: Vec<String>,
    /// The core's knobs.
    pub config: Config,
}

/// A coordinator that cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum StartError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Certificate(#[from] CertError),
    #[error(transparent)]
    Quic(#[from] QuicError),
    #[error("cannot listen on `{address}` for HTTP")]
    Http { address: SocketAddr, source: io::Error },
}

impl StartError {
    /// What to do about it, where something can be said.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::State(StateError::Locked { .. }) => Some("is a coordinator running already? see --state"),
            Self::Quic(QuicError::Bind { .. }) => Some("choose another address or port with --listen"),
            Self::Http { .. } => Some("choose another address or port with --http"),
            _ => None,
        }
    }
}

/// A running coordinator. Dropped, it stops at once; [`stop`](Self::stop) tells its peers.
pub struct Server {
    quic: SocketAddr,
    http: SocketAddr,
    endpoint: quinn::Endpoint,
    driver: Arc<Driver>,
    stopping: Arc<AtomicBool>,
    stop_http: Arc<Notify>,
    http_task: JoinSet<()>,
    connections: JoinSet<()>,
    tasks: JoinSet<()>,
}

impl Server {
    /// Opens the state, the CA and the ports, and serves. Call it in a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        // First, as its lock keeps two coordinators off one directory.
        let state = EmbeddedState::open(&settings.state)?;
        let ca = ClusterCa::open_or_create(&settings.state.join(CA_DIRECTORY))?;
        let identity = ca.issue(Role::Coordinator, &settings.name, &settings.sans, LEAF_VALIDITY)?.identity()?;
        let http_error = |source| StartError::Http { address: settings.http, source };
        let listener = TcpListener::bind(settings.http).await.map_err(http_error)?;
        let http = listener.local_addr().map_err(http_error)?;
        let endpoint = server_endpoint(settings.listen, &identity, &QuicSettings::default())?;
        let bound = |source| StartError::Quic(QuicError::Bind { address: settings.listen, source });
        let quic = endpoint.local_addr().map_err(bound)?;
        let driver = Driver::start(settings.config, Box::new(state))?;

        let stopping = Arc::new(AtomicBool::new(false));
        let stop_http = Arc::new(Notify::new());
        let mut http_task = JoinSet::new();
        let router = http::router(Arc::clone(&driver), Arc::clone(&stopping));
        let stopped = Arc::clone(&stop_http);
        http_task.spawn(async move {
            let serve = axum::serve(listener, router).with_graceful_shutdown(async move { stopped.notified().await });
            if let Err(error) = serve.await {
                tracing::error!("HTTP ended: {error}");
            }
        });
        let mut tasks = JoinSet::new();
        let mut connections = JoinSet::new();
        connections.spawn(connections::accept(endpoint.clone(), Arc::clone(&driver), Arc::clone(&stopping)));
        tasks.spawn(tick(Arc::clone(&driver)));
        if let Some(directory) = settings.jobs {
            tasks.spawn(job_files::watch(Arc::clone(&driver), directory));
        }
        Ok(Self { quic, http, endpoint, driver, stopping, stop_http, http_task, connections, tasks })
    }

    /// Where it listens for QUIC.
    #[must_use]
    pub const fn quic(&self) -> SocketAddr {
        self.quic
    }

    /// Where it listens for HTTP.
    #[must_use]
    pub const fn http(&self) -> SocketAddr {
        self.http
    }

    /// Stops within two seconds: nobody new is let in, peers are told, everything is durable.
    pub async fn stop(mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Closed first and dropped when the word has gone out: a connection that is dropped closes without a reason.
        self.endpoint.close(0_u32.into(), b"the coordinator is stopping");
        self.tasks.shutdown().await;
        self.stop_http.notify_one();
        let tidy = async {
            ended(&mut self.connections).await;
            self.driver.flush().await;
            tokio::join!(self.endpoint.wait_idle(), ended(&mut self.http_task));
        };
        let _ = tokio::time::timeout(STOP_TIMEOUT, tidy).await;
        self.connections.shutdown().await;
        self.http_task.shutdown().await;
    }
}

async fn ended(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

async fn tick(driver: Arc<Driver>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        driver.tick();
    }
}
