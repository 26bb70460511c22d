//! The command line of `spdl-coord`, which `spdl-ctl coord` shares. The environment is read here and nowhere else.

mod state;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use spdl_process::{StopSignals, announce};
use spdl_wire::quic::QuicSettings;

use crate::{
    shell::{Authority, CoordinatorSettings, DatasetLimits, Server, StartError},
    state::StateLocation,
};
use spdl_control::{Stores, coordinator::CoordinatorConfig};

pub use state::{StateAction, StateArgs};

/// The subcommands of `spdl-coord` that do not serve.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum CoordTask {
    /// Exports the state of a coordinator to a plain file, imports it from one, or creates an empty state.
    State {
        /// The action.
        #[command(subcommand)]
        action: StateAction,
    },
}

/// Holds jobs and sessions, and assigns to each rank the worker that it pulls its batches from.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CoordArgs {
    /// A task other than serving.
    #[command(subcommand)]
    pub task: Option<CoordTask>,
    /// UDP address for workers, clients and admins; port 0 picks a free one.
    #[arg(long, env = "SPDL_COORD_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:7400")]
    pub listen: SocketAddr,
    /// TCP address for the web page, /status, /metrics and probes; port 0 picks a free one. An address that other machines
    /// reach needs --http-token-file.
    #[arg(long, env = "SPDL_COORD_HTTP", value_name = "ADDRESS", default_value = "127.0.0.1:7401")]
    pub http: SocketAddr,
    /// File with a token of 16 or more characters. Requests for the status have to send it as `Authorization: Bearer TOKEN`,
    /// and the page asks for it; probes and /metrics need none.
    #[arg(long, env = "SPDL_COORD_HTTP_TOKEN_FILE", value_name = "FILE")]
    pub http_token_file: Option<PathBuf>,
    /// Where the durable state is: a directory, for one coordinator, created at first start; or
    /// etcd://HOST:PORT,.../PREFIX, for several of which one leads.
    #[arg(long, env = "SPDL_COORD_STATE", value_name = "DIR|etcd://...", default_value = "spdl-state")]
    pub state: StateLocation,
    /// Directory of the cluster's CA, which issues this coordinator's certificate; the same for all coordinators.
    /// Default, if the state is in a directory: `ca` in it, created at first start.
    #[arg(long, env = "SPDL_COORD_CA", value_name = "DIR", conflicts_with = "certs")]
    pub ca: Option<PathBuf>,
    /// Directory with a coordinator's certificate (ca.pem, cert.pem, key.pem), instead of the CA with its key.
    #[arg(long, env = "SPDL_COORD_CERTS", value_name = "DIR")]
    pub certs: Option<PathBuf>,
    /// Address at which others reach this coordinator, and to which a standby refers them; default: --listen, if that
    /// names an address.
    #[arg(long, env = "SPDL_COORD_ADVERTISE", value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Directory with ca.pem, and optionally cert.pem and key.pem, for TLS to etcd; without it, plain HTTP.
    #[arg(long, env = "SPDL_COORD_ETCD_CERTS", value_name = "DIR")]
    pub etcd_certs: Option<PathBuf>,
    /// Silence of the leader, in seconds, after which another coordinator takes the lead. Raised: no coordinator leads
    /// for longer after the leader was killed. Lowered: the leader loses the lead when etcd is slow for that long.
    #[arg(long, env = "SPDL_COORD_LEASE_S", value_name = "S", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(2..=600))]
    pub lease_s: u64,
    /// Directory of job files (*.toml) to load; files that fail are retried every 5 s.
    #[arg(long, env = "SPDL_COORD_JOBS", value_name = "DIR")]
    pub jobs: Option<PathBuf>,
    /// Folders and URLs that the datasets of jobs have to be in or below; default: anywhere that the coordinator can
    /// reach.
    #[arg(long, env = "SPDL_STORES", value_name = "URL,...", value_delimiter = ',', value_parser = Stores::parse_place)]
    pub stores: Vec<String>,
    /// The largest manifest that is read when a job is created. Raised: creating a job can take that much more memory,
    /// and two at one time twice as much, beside 16 smaller ones of 16 MiB.
    #[arg(long, env = "SPDL_COORD_MANIFEST_BYTES", value_name = "BYTES", default_value_t = 256 << 20)]
    pub manifest_bytes: u64,
    /// Silence, in milliseconds, after which a worker or rank counts as dead, and how long a worker has to be present
    /// before ranks are moved to it. Raised: ranks of a worker that hangs wait longer for another one.
    #[arg(long, env = "SPDL_COORD_LIVENESS_MS", value_name = "MS", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub liveness_ms: u64,
    /// Settings of QUIC: KEY=VALUE, with commas between: payload=1452,offload=off. The keys and the defaults are in
    /// docs/spec/protocol/connections.md. What both sides of a connection need is set on both.
    #[arg(long, env = "SPDL_QUIC", value_name = "KEY=VALUE,...", default_value = "", hide_default_value = true)]
    pub quic: QuicSettings,
    /// Name in this coordinator's certificate.
    #[arg(long, env = "SPDL_COORD_NAME", default_value = "spdl-coord")]
    pub name: String,
    /// Further DNS name or address in the certificate, for other tools; may be repeated.
    #[arg(long = "san", env = "SPDL_COORD_SAN", value_name = "NAME", value_delimiter = ',')]
    pub sans: Vec<String>,
}

impl CoordArgs {
    /// Converts the arguments to settings. There are five heartbeats per liveness timeout, and at least one per second.
    #[must_use]
    pub fn settings(&self) -> CoordinatorSettings {
        let heartbeat_ms = (self.liveness_ms / 5).clamp(20, 1_000);
        CoordinatorSettings {
            listen: self.listen,
            http: self.http,
            http_token: self.http_token_file.clone(),
            state: self.state.clone(),
            authority: match (&self.ca, &self.certs) {
                (Some(ca), _) => Authority::Ca(ca.clone()),
                (None, Some(certs)) => Authority::Issued(certs.clone()),
                (None, None) => Authority::OfState,
            },
            etcd_certs: self.etcd_certs.clone(),
            lease_s: self.lease_s,
            advertise: self.advertise.clone(),
            jobs: self.jobs.clone(),
            quic: self.quic.clone(),
            name: self.name.clone(),
            sans: self.sans.clone(),
            datasets: DatasetLimits {
                stores: self.stores.iter().cloned().collect(),
                manifest_bytes: self.manifest_bytes,
            },
            config: CoordinatorConfig {
                heartbeat_ms,
                liveness_ms: self.liveness_ms,
                move_ms: self.liveness_ms,
                ..CoordinatorConfig::default()
            },
        }
    }
}

/// Serves until SIGTERM or SIGINT, then stops within two seconds; a second signal ends the process at once. When the
/// ports are open it prints one line of JSON: `{"quic":"..","http":"..","state":".."}`.
///
/// # Errors
/// [`StartError`].
pub async fn run(args: CoordArgs) -> Result<(), StartError> {
    if let Some(CoordTask::State { action }) = args.task {
        return state::run(action).await;
    }
    let mut signals = StopSignals::listen().unwrap_or_else(|error| panic!("no signal handler can be set: {error}"));
    let server = tokio::select! {
        server = Server::start(args.settings()) => server?,
        _ = signals.next() => return Ok(()),
    };
    let state = match &args.state {
        StateLocation::Directory(path) => absolute(path),
        etcd @ StateLocation::Etcd { .. } => etcd.to_string(),
    };
    let ready = serde_json::json!({
        "quic": server.quic().to_string(),
        "http": server.http().to_string(),
        "state": state,
    });
    announce(ready);
    let name = signals.next().await;
    tracing::info!("{name}: stopping");
    tokio::select! {
        () = server.stop() => Ok(()),
        // Nothing is lost: everything that peers were promised is already durable.
        _ = signals.next() => std::process::exit(1),
    }
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).to_string_lossy().into_owned()
}
