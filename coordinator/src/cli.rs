//! The command line of `spdl-coord`, which `spdl-ctl coord` shares. The environment is read here and nowhere else.

use std::{io::Write, net::SocketAddr, path::PathBuf};

use tokio::signal::unix::{SignalKind, signal};

use crate::{
    core::Config,
    shell::{Server, Settings, StartError},
};

/// Holds jobs and sessions, and tells ranks which worker to pull their batches from.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// UDP address for workers, clients and admins; port 0 takes a free one.
    #[arg(long, env = "SPDL_COORD_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:7400")]
    pub listen: SocketAddr,
    /// TCP address for /healthz, /readyz, /metrics and /status, which have no access control; port 0 takes a free one.
    #[arg(long, env = "SPDL_COORD_HTTP", value_name = "ADDRESS", default_value = "127.0.0.1:7401")]
    pub http: SocketAddr,
    /// Directory of the durable state and, in `ca`, the cluster's CA; both are made at first start.
    #[arg(long, env = "SPDL_COORD_STATE", value_name = "DIR", default_value = "spdl-state")]
    pub state: PathBuf,
    /// Directory of job files (*.toml) to load; those that cannot be are tried again every 5 s.
    #[arg(long, env = "SPDL_COORD_JOBS", value_name = "DIR")]
    pub jobs: Option<PathBuf>,
    /// Silence, in milliseconds, after which a worker or rank is taken for dead. Raised: ranks of a worker that hangs
    /// wait longer for another one.
    #[arg(long, env = "SPDL_COORD_LIVENESS_MS", value_name = "MS", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub liveness_ms: u64,
    /// Name in its certificate.
    #[arg(long, env = "SPDL_COORD_NAME", default_value = "spdl-coord")]
    pub name: String,
    /// A further DNS name or address in its certificate, for other tools; may be repeated.
    #[arg(long = "san", env = "SPDL_COORD_SAN", value_name = "NAME", value_delimiter = ',')]
    pub sans: Vec<String>,
}

impl Args {
    /// What was written, as settings. Beats come five times per liveness timeout, at least every second.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let beat_ms = (self.liveness_ms / 5).clamp(20, 1_000);
        Settings {
            listen: self.listen,
            http: self.http,
            state: self.state.clone(),
            jobs: self.jobs.clone(),
            name: self.name.clone(),
            sans: self.sans.clone(),
            config: Config { beat_ms, liveness_ms: self.liveness_ms, ..Config::default() },
        }
    }
}

/// Serves until SIGTERM or SIGINT, then stops within two seconds; a second signal ends the process at once. When it is
/// ready it prints one line of JSON: `{"quic":"..","http":"..","state":".."}`.
///
/// # Errors
/// [`StartError`].
pub async fn run(args: Args) -> Result<(), StartError> {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else { panic!("no signal handler can be set: {signals:?}") };
    let server = Server::start(args.settings()).await?;
    let state = std::path::absolute(&args.state).unwrap_or(args.state);
    let ready = serde_json::json!({
        "quic": server.quic().to_string(),
        "http": server.http().to_string(),
        "state": state.to_string_lossy(),
    });
    // Whoever started us may not be reading: that is no reason to stop.
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "{ready}").and_then(|()| stdout.flush());
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
    }
    tokio::select! {
        () = server.stop() => Ok(()),
        // Nothing is lost: what peers were told is durable already.
        _ = terminate.recv() => std::process::exit(1),
        _ = interrupt.recv() => std::process::exit(1),
    }
}
