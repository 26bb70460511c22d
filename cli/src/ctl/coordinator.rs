//! How a command sends a request to the coordinator and gets its reply.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use spdl_control::{
    coordinators::{Addresses, LeaderDiscovery},
    messages::{FromCoordinator, ToCoordinator},
};
use spdl_wire::{
    certs::Identity,
    coordinators::{CoordinatorClient, CoordinatorError},
    quic::{self, QuicSettings},
};

use super::CtlError;

/// Time limit of an attempt to connect, and of the retries while no coordinator can be reached: one may be starting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a request. It is long because to create a job the coordinator reads a manifest from the store.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a command retries while no coordinator leads: a few leases.
const LEADERLESS_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// The coordinator's address, and the certificate that the command presents.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connection {
    /// Address of the coordinator, or of all of them, separated by commas.
    #[arg(long, env = "SPDL_COORD", value_name = "HOST:PORT,...")]
    pub(crate) coord: Addresses,
    /// Folder with `ca.pem`, `cert.pem` and `key.pem`.
    #[arg(long, env = "SPDL_CERTS", value_name = "DIR")]
    pub(crate) certs: PathBuf,
    /// Settings of QUIC: KEY=VALUE, with commas between; the keys are in docs/spec/protocol/connections.md.
    #[arg(long, env = "SPDL_QUIC", value_name = "KEY=VALUE,...", default_value = "", hide_default_value = true)]
    pub(crate) quic: QuicSettings,
}

impl Connection {
    /// Sends one request to the leading coordinator; a refusal is an error.
    pub(crate) async fn ask(&self, request: &ToCoordinator) -> Result<FromCoordinator, CtlError> {
        let mut client = self.open()?;
        let started = Instant::now();
        let reply = loop {
            match client.ask(request, REQUEST_TIMEOUT).await {
                Err(error) if started.elapsed() < retry_timeout(&error) => tokio::time::sleep(PAUSE).await,
                done => break done?,
            }
        };
        client.finish("done").await;
        match reply {
            FromCoordinator::Refused(refusal) => Err(refusal.into()),
            reply => Ok(reply),
        }
    }

    /// Reads the certificate and returns a client for several requests.
    pub(crate) fn open(&self) -> Result<CoordinatorClient, CtlError> {
        let identity = Identity::load(&self.certs)?;
        let endpoint = quic::client_endpoint(&identity, &self.quic)?;
        Ok(CoordinatorClient::new(endpoint, LeaderDiscovery::new(self.coord.clone()), CONNECT_TIMEOUT))
    }
}

/// Returns how long to retry after this error; zero when it is permanent.
fn retry_timeout(error: &CoordinatorError) -> Duration {
    match error {
        error if error.is_leaderless() => LEADERLESS_TIMEOUT,
        error if error.is_unreachable() => CONNECT_TIMEOUT,
        _ => Duration::ZERO,
    }
}
