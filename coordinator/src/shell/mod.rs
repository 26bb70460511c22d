//! The process around the core: QUIC for workers, clients and admins, HTTP for probes, the jobs directory, the clock.

mod connections;
mod dataset;
mod driver;
mod election;
mod http;
mod job_files;
mod leadership;
mod metrics;
mod submit_slots;
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

use parking_lot::Mutex;
use spdl_control::{Role, coordinator::CoordinatorConfig, coordinators::Addresses};
use spdl_process::http::HttpListener;
use spdl_store::{StoreError, StoreOptions};
use spdl_wire::{
    certs::{CertError, ClusterCa, Identity},
    quic::{QuicError, QuicSettings, server_endpoint},
};
use tokio::{net::TcpListener, sync::Notify, task::JoinSet};

pub use self::{dataset::DatasetLimits, http::AccessError};
use self::{
    driver::Driver,
    election::{Election, LeaseHolder},
    http::StatusAccess,
    leadership::Leadership,
};
use crate::state::{
    EmbeddedState, EtcdError, EtcdKeys, Gateway, LeaseDeadline, StateLocation, StateStore, StateStoreError, Timeouts,
};

/// The interval at which the core gets the time; a fraction of any sensible liveness timeout.
const TICK: Duration = Duration::from_millis(200);
/// Time for an orderly stop, after which open connections are cut.
const STOP_TIMEOUT: Duration = Duration::from_millis(1_400);
/// The part of it that writing the last changes may take.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(800);
/// Lower bound of the time-out for an answer of an etcd member.
const MIN_ETCD_TIMEOUT: Duration = Duration::from_millis(500);
/// The CA's directory inside the state directory.
pub const CA_DIRECTORY: &str = "ca";

/// The settings of a coordinator: its addresses, its state, its certificate and the core's configuration.
#[derive(Clone, Debug)]
pub struct CoordinatorSettings {
    /// UDP address for workers, clients and admins; port 0 picks a free one.
    pub listen: SocketAddr,
    /// TCP address for HTTP; port 0 picks a free one.
    pub http: SocketAddr,
    /// File with the token that requests for the status over HTTP have to send. Required unless `http` is an address that
    /// only this machine has.
    pub http_token: Option<PathBuf>,
    /// Where the durable state is kept.
    pub state: StateLocation,
    /// Where this coordinator's certificate comes from.
    pub authority: Authority,
    /// Directory with `ca.pem`, and optionally `cert.pem` and `key.pem`, for TLS to etcd; without it, plain HTTP.
    pub etcd_certs: Option<PathBuf>,
    /// Silence of the leader, in seconds, after which another coordinator takes the lead. The minimum that etcd grants
    /// is about two. Default: 5. If raised, there is no leader for longer after the leader was killed; if lowered, the
    /// leader loses the lease when etcd is slow for that long.
    pub lease_s: u64,
    /// `HOST:PORT` at which other processes reach this coordinator. Default: `listen`, if that names an address.
    pub advertise: Option<String>,
    /// Directory of job files to load.
    pub jobs: Option<PathBuf>,
    /// The settings of its connections.
    pub quic: QuicSettings,
    /// The name in this coordinator's certificate.
    pub name: String,
    /// Further DNS names and addresses in the certificate.
    pub sans: Vec<String>,
    /// Which datasets jobs may use.
    pub datasets: DatasetLimits,
    /// The settings of the core.
    pub config: CoordinatorConfig,
}

/// The source of a coordinator's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authority {
    /// The CA beside the state, created at first start. Not available for a state in etcd, where each coordinator would
    /// create its own CA.
    OfState,
    /// The CA in this directory. The coordinators of a cluster share it.
    Ca(PathBuf),
    /// A directory with `ca.pem`, `cert.pem` and `key.pem` of a coordinator.
    Issued(PathBuf),
}

/// The reason why a coordinator cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum StartError {
    #[error(transparent)]
    State(#[from] StateStoreError),
    #[error(transparent)]
    Certificate(#[from] CertError),
    #[error(transparent)]
    Quic(#[from] QuicError),
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    #[error(transparent)]
    Store(Box<StoreError>),
    #[error("certificate of `{name}` is for a {role}, not for a coordinator")]
    Role { name: String, role: Role },
    #[error("the CA of this cluster is missing from `{}`, beside a state that is in use; restore the folder from a copy", path.display())]
    CaLost { path: PathBuf },
    #[error("state `{state}` is in etcd, where `create` does not apply; for a new state, give another prefix")]
    NotADirectory { state: String },
    #[error(
        "a coordinator whose state is in etcd shares its cluster's CA with the others; give the CA's folder with `--ca`"
    )]
    NoAuthority,
    #[error("`{address}` is not HOST:PORT, where others could reach this coordinator")]
    Advertise { address: String },
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("cannot listen on `{address}` for HTTP")]
    Http { address: SocketAddr, source: io::Error },
}

impl StartError {
    /// Returns what the user can do about the error, if there is anything to suggest.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::State(error) => return error.hint(),
            Self::Store(error) => return error.hint().map(str::to_owned),
            Self::CaLost { path } => {
                return Some(format!(
                    "put `{path}` back as it was; without a copy, `spdl-ctl cert --ca {path}` makes another CA, and every \
                     worker and trainer needs a new certificate of it",
                    path = path.display()
                ));
            }
            Self::Quic(QuicError::Bind { .. }) => "choose another address or port with --listen",
            Self::Access(error) => error.hint(),
            Self::Http { .. } => "choose another address or port with --http",
            Self::NoAuthority | Self::Certificate(CertError::NoCa { .. }) => {
                "`spdl-ctl cert --ca DIR` makes a CA; give all coordinators a copy with --ca, or each a certificate of the \
                 role coordinator with --certs"
            }
            Self::Role { .. } => "`spdl-ctl cert --role coordinator` issues one",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// A running coordinator. Dropping it stops it at once; [`stop`](Self::stop) also notifies its peers.
pub struct Server {
    quic: SocketAddr,
    http: SocketAddr,
    endpoint: quinn::Endpoint,
    leadership: Arc<Leadership>,
    election: Option<Arc<Election>>,
    stopping: Arc<AtomicBool>,
    stop_http: Arc<Notify>,
    http_task: JoinSet<()>,
    connections: JoinSet<()>,
    /// The tasks of the leader, or the election.
    tasks: JoinSet<()>,
}

impl Server {
    /// Opens the state, the CA and the ports, and serves requests: at once if the state is in a directory; if it is in
    /// etcd, whenever this coordinator holds the lease. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(settings: CoordinatorSettings) -> Result<Self, StartError> {
        StoreOptions::from_env().check().map_err(|error| StartError::Store(Box::new(error)))?;
        let access = StatusAccess::new(settings.http, settings.http_token.as_deref())?;
        // Opened first: its lock prevents two coordinators from using one directory.
        let mut embedded = match &settings.state {
            StateLocation::Directory(directory) => Some(EmbeddedState::open(directory)?),
            StateLocation::Etcd { .. } => None,
        };
        let identity = identity(&settings, embedded.as_mut())?;
        let http_error = |source| StartError::Http { address: settings.http, source };
        let listener = TcpListener::bind(settings.http).await.map_err(http_error)?;
        let http = listener.local_addr().map_err(http_error)?;
        let of_quic = settings.quic.clone().for_requests();
        let endpoint = server_endpoint(settings.listen, &identity, &of_quic)?;
        let bound = |source| StartError::Quic(QuicError::Bind { address: settings.listen, source });
        let quic = endpoint.local_addr().map_err(bound)?;

        let leadership = Leadership::new();
        let mut tasks = JoinSet::new();
        let mut election = None;
        if let Some(state) = embedded {
            let driver = Driver::start(settings.config, settings.datasets.clone(), state.load()?, Box::new(state));
            tasks = spawn_leader_tasks(&driver, &leadership, settings.jobs);
            leadership.lead(driver, LeaseDeadline::unbounded());
        } else {
            let elected = Arc::new(join_election(&settings, quic, Arc::clone(&leadership))?);
            tasks.spawn(Arc::clone(&leadership).watch("takes part in the election", Arc::clone(&elected).run()));
            election = Some(elected);
        }
        let stopping = Arc::new(AtomicBool::new(false));
        let stop_http = Arc::new(Notify::new());
        let mut http_task = JoinSet::new();
        let router = http::router(Arc::clone(&leadership), Arc::clone(&stopping), access);
        let stopped = Arc::clone(&stop_http);
        http_task.spawn(async move {
            let serve = axum::serve(HttpListener::new(listener), router);
            let serve = serve.with_graceful_shutdown(async move { stopped.notified().await });
            if let Err(error) = serve.await {
                tracing::error!("HTTP ended: {error}");
            }
        });
        let mut connections = JoinSet::new();
        let accept = connections::accept(
            endpoint.clone(),
            of_quic.max_handshakes,
            Arc::clone(&leadership),
            Arc::clone(&stopping),
        );
        connections.spawn(Arc::clone(&leadership).watch("accepts connections", accept));
        Ok(Self { quic, http, endpoint, leadership, election, stopping, stop_http, http_task, connections, tasks })
    }

    /// Returns the address that it listens on for QUIC.
    #[must_use]
    pub const fn quic(&self) -> SocketAddr {
        self.quic
    }

    /// Returns the address that it listens on for HTTP.
    #[must_use]
    pub const fn http(&self) -> SocketAddr {
        self.http
    }

    /// Stops within two seconds: rejects new peers, notifies connected ones, writes all changes and gives up the lease,
    /// so that another coordinator can lead.
    pub async fn stop(mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Close the endpoint before dropping connections: a connection that is dropped closes without a reason.
        self.endpoint.close(0_u32.into(), b"the coordinator is stopping");
        self.stop_http.notify_one();
        let tidy = async {
            ended(&mut self.connections).await;
            if let Some(driver) = self.leadership.driver() {
                let _ = tokio::time::timeout(FLUSH_TIMEOUT, driver.flush()).await;
            }
            self.tasks.shutdown().await;
            if let Some(election) = &self.election {
                election.resign().await;
            }
            tokio::join!(self.endpoint.wait_idle(), ended(&mut self.http_task));
        };
        let _ = tokio::time::timeout(STOP_TIMEOUT, tidy).await;
        self.tasks.shutdown().await;
        self.connections.shutdown().await;
        self.http_task.shutdown().await;
    }
}

fn identity(settings: &CoordinatorSettings, state: Option<&mut EmbeddedState>) -> Result<Identity, StartError> {
    let ca = match (&settings.authority, state) {
        (Authority::OfState, Some(state)) => {
            let folder = state.folder().join(CA_DIRECTORY);
            if state.owns_ca() {
                // No certificate of this cluster would be valid under a new CA.
                ClusterCa::open(&folder).map_err(|error| match error {
                    CertError::NoCa { path } => StartError::CaLost { path },
                    other => other.into(),
                })?
            } else {
                let ca = ClusterCa::open_or_create(&folder)?;
                state.own_ca()?;
                ca
            }
        }
        (Authority::OfState, None) => return Err(StartError::NoAuthority),
        (Authority::Ca(folder), _) => ClusterCa::open(folder)?,
        (Authority::Issued(folder), _) => {
            let identity = Identity::load(folder)?;
            if identity.role() != Role::Coordinator {
                return Err(StartError::Role { name: identity.name().to_owned(), role: identity.role() });
            }
            return Ok(identity);
        }
    };
    Ok(ca.identity(Role::Coordinator, &settings.name, &settings.sans)?)
}

/// Creates the election in which a coordinator with its state in etcd takes part.
fn join_election(
    settings: &CoordinatorSettings,
    quic: SocketAddr,
    leadership: Arc<Leadership>,
) -> Result<Election, StartError> {
    let StateLocation::Etcd { members, prefix } = &settings.state else {
        unreachable!("a state in a directory is one coordinator's alone")
    };
    let listening = (!quic.ip().is_unspecified()).then(|| quic.to_string());
    let address = settings.advertise.clone().or(listening);
    let is_anywhere = |address: &str| {
        address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified() || address.port() == 0)
    };
    if let Some(address) =
        address.as_ref().filter(|address| address.parse::<Addresses>().is_err() || is_anywhere(address))
    {
        return Err(StartError::Advertise { address: address.clone() });
    }
    // Allows several members to be tried within the time of one lease.
    let lease = Duration::from_secs(settings.lease_s);
    let timeouts = Timeouts { answer: (lease / 5).max(MIN_ETCD_TIMEOUT), commit: lease };
    Ok(Election {
        gateway: Arc::new(Gateway::new(members, settings.etcd_certs.as_deref(), timeouts)?),
        keys: EtcdKeys::new(prefix.clone()),
        state: settings.state.to_string().into(),
        holder: LeaseHolder { name: settings.name.clone(), address },
        lease_s: settings.lease_s,
        leadership,
        config: settings.config,
        datasets: settings.datasets.clone(),
        jobs: settings.jobs.clone(),
        lease: Mutex::default(),
    })
}

/// Spawns the tasks that run while this coordinator leads.
fn spawn_leader_tasks(driver: &Arc<Driver>, leadership: &Arc<Leadership>, jobs: Option<PathBuf>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(leadership).watch("keeps the time", tick(Arc::clone(driver))));
    if let Some(directory) = jobs {
        let load = job_files::watch(Arc::clone(driver), directory);
        tasks.spawn(Arc::clone(leadership).watch("loads job files", load));
    }
    tasks
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
