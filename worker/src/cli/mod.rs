//! The command line of `spdl-worker`, which `spdl-ctl worker` shares. Only this file reads the environment.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::Parser;
use spdl_control::{Stores, coordinators::Addresses};
use spdl_functions::FunctionRegistry;
use spdl_insight::tuning::{Setting, Tunable, TuningSettings};
use spdl_process::{StopSignals, announce, http::HttpListener};
use spdl_store::{StoreError, StoreOptions};
use spdl_types::size::parse_bytes;
use spdl_wire::{
    certs::{CertError, Identity},
    local::{Allow, private_folder},
    node::this_node,
    quic::QuicSettings,
};
use tokio::net::TcpListener;

use crate::{
    budget::{Budget, BudgetError, DiskBudget, MIN_MEMORY_BYTES},
    feed::{Access, FeedError, Resources, SampleSharing, StoreAccess},
    fetch::RetrySettings,
    frame_child, http,
    serve::{DEFAULT_PEER_REQUESTS, DEFAULT_RANKS, ServeError, Worker, WorkerRole, WorkerSettings},
    size::parse_cores,
    transform::TransformSettings,
};

/// Maximum bytes of a worker's name.
const MAX_NAME_BYTES: usize = 128;

/// Downloads, decodes and batches samples for the ranks that the coordinator sends to it.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkerArgs {
    /// Coordinator to register with; with several, separate them by commas. They need not be up yet.
    #[arg(long, env = "SPDL_COORD", value_name = "HOST:PORT,...")]
    pub coord: Addresses,
    /// Directory with the worker's certificate: ca.pem, cert.pem, key.pem (or ca.crt, tls.crt, tls.key).
    #[arg(long, env = "SPDL_CERTS", value_name = "DIR")]
    pub certs: PathBuf,
    /// UDP address for clients on other nodes; port 0 means any free port.
    #[arg(long, env = "SPDL_WORKER_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:0")]
    pub listen: SocketAddr,
    /// Address that clients connect to; default: the one from which packets to the coordinator are sent.
    #[arg(long, env = "SPDL_WORKER_ADVERTISE", value_name = "ADDRESS")]
    pub advertise: Option<SocketAddr>,
    /// Unix socket for clients on this node; default: NAME.sock in a private directory of this user: `spdl` in
    /// XDG_RUNTIME_DIR, or `spdl-UID` in the directory for temporary files.
    #[arg(long, env = "SPDL_WORKER_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Open no Unix socket: clients on this node use QUIC too.
    #[arg(long, conflicts_with = "socket")]
    pub no_socket: bool,
    /// User id that may use the socket, in addition to this user and root; may be repeated.
    #[arg(long = "allow-uid", env = "SPDL_WORKER_ALLOW_UID", value_name = "UID", value_delimiter = ',')]
    pub allow_uids: Vec<u32>,
    /// Name of the worker in errors and in the status; default: the host's.
    #[arg(long, env = "SPDL_WORKER_NAME")]
    pub name: Option<String>,
    /// Maximum number of cores, or a share of the node's. When raised, the trainer's own CPU work gets slower.
    #[arg(long, env = "SPDL_WORKER_CORES", value_name = "N|N%", default_value = "40%")]
    pub cores: String,
    /// Memory for slots, cached blocks and the decoding of pictures. A picture that needs more than about a third of it
    /// to decode is a bad sample. When raised, less is left for the trainer and the page cache.
    #[arg(long, env = "SPDL_WORKER_MEMORY", value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Directory that caches blocks of a remote store; default: none, blocks are not cached on disk. Workers and local
    /// loaders of a node can share one.
    #[arg(long, env = "SPDL_WORKER_CACHE_DIR", value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Maximum size of that directory, with what others cache there. When raised, the disk fills up.
    #[arg(long, env = "SPDL_WORKER_CACHE_BYTES", value_name = "SIZE", default_value = "64GiB", value_parser = parse_bytes)]
    pub cache_bytes: u64,
    /// Folders and URLs that datasets have to be in or below; default: anywhere that this worker can reach.
    #[arg(long, env = "SPDL_STORES", value_name = "URL,...", value_delimiter = ',', value_parser = Stores::parse_place)]
    pub stores: Vec<String>,
    /// Maximum number of requests to stores in flight: 1 to 512, or `auto` to tune it by what is measured. When raised, a
    /// store with a limit on requests answers with errors. When lowered, a store that takes long to answer delivers less.
    #[arg(long, env = "SPDL_WORKER_REQUESTS", value_name = "N|auto", default_value_t = Setting::Auto)]
    pub requests: Setting,
    /// Number of steps of a rank whose blocks are fetched ahead: 1 to 512, or `auto` to tune it by what is measured. When
    /// raised, blocks that are needed late take the memory of those needed soon. When lowered, there is less to request
    /// at once.
    #[arg(long, env = "SPDL_WORKER_READ_AHEAD", value_name = "N|auto", default_value_t = Setting::Auto)]
    pub read_ahead: Setting,
    /// Percentage of requests that may be made a second time because the first is slow; 0 for none. When raised, the
    /// store gets more load exactly when it is slow.
    #[arg(long, env = "SPDL_WORKER_HEDGE_PERCENT", value_name = "PERCENT", default_value_t = 3.0)]
    pub hedge_percent: f64,
    /// Seconds for which a store may send nothing, before or within an answer, until the request is made again; twice
    /// as long with each time after the first. When raised, a connection that hangs is given up later. When lowered, slow answers of a busy
    /// store are thrown away.
    #[arg(long, env = "SPDL_WORKER_STORE_SILENCE_S", value_name = "SECONDS", default_value_t = 10.0)]
    pub store_silence_s: f64,
    /// Maximum number of blocks that one other worker is asked for at once, before the store is; 0 for none, and then other workers
    /// get none from this one either. When raised, workers that read the same blocks load the network between them more.
    #[arg(long, env = "SPDL_WORKER_PEER_REQUESTS", value_name = "N", default_value_t = DEFAULT_PEER_REQUESTS)]
    pub peer_requests: usize,
    /// What the worker does. `home` serves ranks; `helper` serves none, and decodes samples of other workers' ranks that wait
    /// because their worker is short of cores; `both` does that, too, with the cores that its own ranks do not need. With
    /// --peer-requests 0 a worker neither helps nor is helped.
    #[arg(long, env = "SPDL_WORKER_ROLE", value_enum, default_value_t = WorkerRole::Home)]
    pub role: WorkerRole,
    /// Whether ranks of different sessions share decoded samples, where their jobs have the same dataset, seed and columns and they come to
    /// the same samples at about the same time. `on` keeps a sample that another session needs soon, in up to an eighth of the
    /// memory of slots and cached blocks, and not where decoding is as fast as copying.
    #[arg(long, env = "SPDL_WORKER_SHARE_SAMPLES", value_enum, default_value_t = SampleSharing::On)]
    pub share_samples: SampleSharing,
    /// Read of large scalable pictures (`pack --scalable`) no more than crops need, in place of whole blocks, and keep none of it. For datasets that are
    /// read from a store, are larger than what can be cached, and have pictures that are much larger than the crops: those read a half to a tenth of the
    /// bytes, with a few requests for each.
    #[arg(long, env = "SPDL_WORKER_READ_PARTS", conflicts_with = "cache_dir")]
    pub read_parts: bool,
    /// Call the Python functions that jobs name (`transform`). Everyone who may use this worker can then run any code
    /// that Python finds here, with the rights of this process. Without this or --python such jobs are refused.
    #[arg(long, env = "SPDL_WORKER_ALLOW_TRANSFORMS")]
    pub allow_transforms: bool,
    /// Python interpreter that calls them, with numpy and the modules of the functions; default: python3. Allows the
    /// calls too.
    #[arg(long, env = "SPDL_PYTHON", value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Seconds that such a function may take for a sample. When raised, one that hangs delays its batch for longer.
    /// When lowered, samples become bad because the node is busy.
    #[arg(long, env = "SPDL_WORKER_TRANSFORM_TIMEOUT_S", value_name = "SECONDS", default_value_t = 30.0)]
    pub transform_timeout_s: f64,
    /// Maximum number of ranks that are served.
    #[arg(long, env = "SPDL_WORKER_RANKS", value_name = "N", default_value_t = DEFAULT_RANKS)]
    pub ranks: usize,
    /// TCP address for /healthz, /readyz and /metrics, which have no access control; default: none. Port 0 means any
    /// free port.
    #[arg(long, env = "SPDL_WORKER_HTTP", value_name = "ADDRESS")]
    pub http: Option<SocketAddr>,
    /// Collector of OpenTelemetry that gets the spans of each batch, its reads and its decoding, as OTLP over HTTP:
    /// http://HOST:4318; default: none. OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER and the other usual variables are
    /// followed.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp: Option<String>,
    /// Settings of QUIC: KEY=VALUE, with commas between: payload=1452,offload=off. The keys and the defaults are in
    /// docs/spec/protocol/connections.md. What both sides of a connection need is set on both.
    #[arg(long, env = "SPDL_QUIC", value_name = "KEY=VALUE,...", default_value = "", hide_default_value = true)]
    pub quic: QuicSettings,
    /// Name of this node; default: the kernel's boot id. Clients with the same name share memory with this worker.
    #[arg(long, env = "SPDL_NODE", value_name = "NAME")]
    pub node: Option<String>,
}

/// The error of a worker that does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum CliError {
    /// The value of a flag is invalid.
    #[error("`{flag}`: {problem}")]
    Value { flag: &'static str, problem: String },
    /// The certificate cannot be used.
    #[error(transparent)]
    Certs(#[from] CertError),
    /// The settings of stores are invalid.
    #[error(transparent)]
    Store(Box<StoreError>),
    /// The resources cannot be created.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The worker cannot serve.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// An operation of the system failed.
    #[error("{what}: {source}")]
    Os { what: String, source: io::Error },
}

impl CliError {
    /// Returns what the user can do about the error.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Certs(_) | Self::Serve(ServeError::Role { .. }) => {
                Some("`spdl-ctl cert` issues a worker's certificate; name its directory with --certs or SPDL_CERTS")
            }
            Self::Serve(ServeError::Advertise { .. }) => {
                Some("give the address that clients are to use with `--advertise`")
            }
            Self::Feed(FeedError::Transform(_)) => {
                Some("name with --python an interpreter that has numpy, such as the one of a virtual environment")
            }
            Self::Store(error) => error.hint(),
            Self::Serve(ServeError::Local(_)) => Some("choose another path with --socket, or another --name"),
            _ => None,
        }
    }
}

/// The log of a worker's process. Dropping it sends the last spans; a task of tokio must not drop it.
#[derive(Debug)]
#[must_use = "the last spans are sent when it is dropped"]
pub struct WorkerLog {
    _spans: Option<spdl_process::Exporting>,
}

impl WorkerArgs {
    /// Starts the log of this process on standard error, and the export of spans if there is to be one. `SPDL_LOG` chooses what is
    /// logged, or else `default`.
    ///
    /// # Errors
    /// [`CliError::Value`] if spans cannot be sent to the collector that is named.
    ///
    /// # Panics
    /// If this process has a log already.
    pub fn log(&self, default: &str) -> Result<WorkerLog, CliError> {
        if let Some(collector) = self.otlp.clone().filter(|collector| !collector.is_empty()) {
            let instance = self.name.clone().map_or_else(host_name, Ok).unwrap_or_default();
            let export = spdl_process::SpanExport { collector, service: "spdl-worker", instance };
            let spans = spdl_process::log_and_export(default, &export)
                .map_err(|error| CliError::Value { flag: "--otlp", problem: error.to_string() })?;
            return Ok(WorkerLog { _spans: Some(spans) });
        }
        spdl_process::log_to_stderr(default);
        Ok(WorkerLog { _spans: None })
    }

    /// Returns the budget that these arguments set.
    ///
    /// # Errors
    /// [`CliError::Value`] if a value is invalid.
    pub fn budget(&self) -> Result<Budget, CliError> {
        let node_cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let cores =
            parse_cores(&self.cores, node_cores).map_err(|problem| CliError::Value { flag: "--cores", problem })?;
        if self.memory < MIN_MEMORY_BYTES {
            let problem = format!("{} bytes are less than the {MIN_MEMORY_BYTES} that a worker needs", self.memory);
            return Err(CliError::Value { flag: "--memory", problem });
        }
        let disk = self.cache_dir.clone().map(|directory| DiskBudget { directory, bytes: self.cache_bytes });
        let budget = Budget { cores, memory_bytes: self.memory, disk };
        let flag = |error: &BudgetError| match error {
            BudgetError::Cores(_) => "--cores",
            BudgetError::CacheFolder(_) => "--cache-dir",
        };
        budget.check().map_err(|error| CliError::Value { flag: flag(&error), problem: error.to_string() })?;
        Ok(budget)
    }

    /// Returns the retry policy that these arguments set.
    ///
    /// # Errors
    /// [`CliError::Value`] if a value is invalid.
    pub fn retry(&self) -> Result<RetrySettings, CliError> {
        let value = |flag, problem: String| CliError::Value { flag, problem };
        if !(0.0..=100.0).contains(&self.hedge_percent) {
            return Err(value("--hedge-percent", format!("{} is not 0 to 100", self.hedge_percent)));
        }
        if !(0.001..=3600.0).contains(&self.store_silence_s) {
            return Err(value("--store-silence-s", format!("{} is not 0.001 to 3600", self.store_silence_s)));
        }
        let silence_timeout = Duration::from_secs_f64(self.store_silence_s);
        let request_timeout = RetrySettings::default().request_timeout.max(silence_timeout);
        let hedge_percent = self.hedge_percent;
        Ok(RetrySettings { hedge_percent, silence_timeout, request_timeout, ..RetrySettings::default() })
    }

    /// Returns the values that these arguments pin.
    ///
    /// # Errors
    /// [`CliError::Value`] if a value is out of its bounds.
    pub fn tuning(&self) -> Result<TuningSettings, CliError> {
        let settings = TuningSettings { requests: self.requests, read_ahead: self.read_ahead };
        let flag = |value| match value {
            Tunable::Requests => "--requests",
            Tunable::ReadAhead => "--read-ahead",
        };
        settings.check().map_err(|(value, problem)| CliError::Value { flag: flag(value), problem })?;
        Ok(settings)
    }

    /// Returns the settings for calling functions of jobs; `None` if they may not be called.
    ///
    /// # Errors
    /// [`CliError::Value`] if a value is invalid.
    pub fn transforms(&self) -> Result<Option<TransformSettings>, CliError> {
        if !(0.001..=86_400.0).contains(&self.transform_timeout_s) {
            let problem = format!("{} is not 0.001 to 86400", self.transform_timeout_s);
            return Err(CliError::Value { flag: "--transform-timeout-s", problem });
        }
        if !self.allow_transforms && self.python.is_none() {
            return Ok(None);
        }
        let default = TransformSettings::default();
        let python = self.python.clone().unwrap_or(default.python);
        let timeout = Duration::from_secs_f64(self.transform_timeout_s);
        Ok(Some(TransformSettings { python, timeout, ..default }))
    }

    /// Returns the path of the journal of samples being decoded: in the cache directory, otherwise beside the socket.
    fn journal(&self, name: &str, socket: Option<&Path>) -> Option<PathBuf> {
        let beside_socket = || Some(socket?.with_extension("decoding"));
        let in_cache = |folder: &PathBuf| folder.join(format!("spdl-worker-{name}.decoding"));
        self.cache_dir.as_ref().map(in_cache).or_else(beside_socket)
    }

    fn socket_path(&self, name: &str, allow: &Allow) -> Result<Option<PathBuf>, CliError> {
        Ok(match &self.socket {
            _ if self.no_socket => None,
            Some(path) => Some(path.clone()),
            None => Some(private_folder(allow).map_err(ServeError::from)?.join(format!("{name}.sock"))),
        })
    }

    fn settings(&self, socket: Option<PathBuf>, allow: Allow) -> Result<WorkerSettings, CliError> {
        let node = this_node(self.node.as_deref()).map_err(|source| CliError::Os { what: "node id".into(), source })?;
        let value = |flag, problem: &str| Err(CliError::Value { flag, problem: problem.to_owned() });
        if self.ranks == 0 {
            return value("--ranks", "a worker that serves no rank is of no use: 1 or more");
        }
        if self.advertise.is_some_and(|address| address.ip().is_unspecified() || address.port() == 0) {
            return value("--advertise", "clients cannot connect to any address or port: name the one to use");
        }
        if self.role != WorkerRole::Home && self.peer_requests == 0 {
            return value("--role", "a helper exchanges samples with other workers, which --peer-requests 0 turns off");
        }
        Ok(WorkerSettings {
            identity: Identity::load(&self.certs)?,
            listen: self.listen,
            advertise: self.advertise,
            socket,
            allow,
            coordinators: self.coord.clone(),
            node,
            ranks: self.ranks,
            peer_requests: self.peer_requests,
            role: self.role,
            quic: self.quic.clone(),
        })
    }
}

#[derive(Parser)]
#[command(version, about, name = "spdl-worker")]
struct WorkerCli {
    #[command(flatten)]
    args: WorkerArgs,
}

/// Runs the program `spdl-worker`, with functions in Rust that jobs can call.
#[must_use]
pub fn main(functions: FunctionRegistry) -> ExitCode {
    if let Some(code) = frame_child() {
        return code;
    }
    match serve(WorkerCli::parse().args, functions) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => spdl_process::fail(&error, error.hint()),
    }
}

/// Starts tokio with two threads, or one for each connection of a rank. They only move bytes; decoding has threads of
/// its own, within the budget.
fn serve(args: WorkerArgs, functions: FunctionRegistry) -> Result<(), CliError> {
    let _log = args.log("info")?;
    let threads = args.quic.connections_of_rank().max(2);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(|source| CliError::Os { what: "runtime".to_owned(), source })?;
    runtime.block_on(run(args, functions))
}

/// Serves until SIGTERM or SIGINT, then leaves within two seconds; a second signal ends the process at once. When
/// ready, prints one line of JSON: `{"name":"..","quic":"..","socket":"..","http":".."}`.
///
/// # Errors
/// [`CliError`] if the worker cannot start.
pub async fn run(args: WorkerArgs, functions: FunctionRegistry) -> Result<(), CliError> {
    // Parquet, whose blocks are decoded by one thread and then another, took 80 MB more than a budget of 256 MiB with more arenas.
    // Threads do not wait for each other, as they allocate less than twice for each sample.
    spdl_process::allocator::use_arenas(1);
    let os = |what: &str| {
        let what = what.to_owned();
        move |source| CliError::Os { what, source }
    };
    let mut signals = StopSignals::listen().map_err(os("handler of signals"))?;
    let name = args.name.clone().map_or_else(host_name, Ok).map_err(os("name of the host"))?;
    check_name(&name)?;
    StoreOptions::from_env().check().map_err(|error| CliError::Store(Box::new(error)))?;
    let allow = Allow::uids(args.allow_uids.iter().copied());
    let socket = args.socket_path(&name, &allow)?;
    let stores =
        StoreAccess { retry: args.retry()?, stores: args.stores.iter().cloned().collect(), ..StoreAccess::default() };
    let (transforms, tuning) = (args.transforms()?, args.tuning()?);
    if !functions.names().is_empty() {
        tracing::info!("functions in Rust: {}", functions.names().join(", "));
    }
    let (sharing, journal) = (args.share_samples, args.journal(&name, socket.as_deref()));
    let (frames, reads_parts) = (None, args.read_parts);
    let access = Access { stores, transforms, functions, frames, tuning, sharing, reads_parts, journal };
    let resources = Resources::with_access(&name, args.budget()?, access)?;
    let checked = resources.clone();
    tokio::task::spawn_blocking(move || checked.check_transforms()).await.expect("it does not panic")?;
    // Resolving the coordinator's name may take long.
    let worker = tokio::select! {
        worker = Worker::start(args.settings(socket, allow)?, resources) => Arc::new(worker?),
        _ = signals.next() => return Ok(()),
    };
    let (http, serving_http) = match args.http {
        Some(address) => {
            let listener = TcpListener::bind(address).await.map_err(os(&format!("HTTP on {address}")))?;
            let bound = listener.local_addr().map_err(os("HTTP"))?;
            let router = http::router(worker.clone());
            (Some(bound), Some(tokio::spawn(async move { axum::serve(HttpListener::new(listener), router).await })))
        }
        None => (None, None),
    };
    announce(ready(&worker, http));
    tokio::select! {
        name = signals.next() => tracing::info!("{name}: leaving"),
        never = worker.resources().keep_pace() => match never {},
    }
    let leave = async {
        worker.leave().await;
        if let Some(serving_http) = serving_http {
            serving_http.abort();
        }
    };
    tokio::select! {
        () = leave => Ok(()),
        // A worker has no state to save.
        _ = signals.next() => std::process::exit(1),
    }
}

/// Returns the line that reports the worker's name and addresses.
fn ready(worker: &Worker, http: Option<SocketAddr>) -> serde_json::Value {
    let home = worker.home();
    serde_json::json!({
        "name": home.name,
        "quic": home.quic.to_string(),
        "socket": home.socket,
        "http": http.map(|address| address.to_string()),
    })
}

/// Checks a worker's name: it is part of the socket's path, and is shown in one line.
fn check_name(name: &str) -> Result<(), CliError> {
    let is_allowed = |c: char| !c.is_control() && c != '/';
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && name.chars().all(is_allowed) {
        return Ok(());
    }
    let problem =
        format!("`{}` is not 1 to {MAX_NAME_BYTES} bytes without `/`, beginning with no `.`", name.escape_debug());
    Err(CliError::Value { flag: "--name", problem })
}

fn host_name() -> io::Result<String> {
    Ok(std::fs::read_to_string(Path::new("/proc/sys/kernel/hostname"))?.trim().to_owned())
}
