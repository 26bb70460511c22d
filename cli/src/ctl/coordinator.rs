//! How a command sends a request to the coordinator and gets its reply.

use std::{
    path::PathBuf,
    sync::Once,
    time::{Duration, Instant},
};

use spdl_control::{
    Role,
    coordinators::{Addresses, LeaderDiscovery},
    messages::{FromCoordinator, ToCoordinator},
};
use spdl_wire::{
    certs::Identity,
    coordinators::{CoordinatorClient, CoordinatorError},
    quic::{self, QuicSettings},
};

use super::{CtlError, output::note};
use crate::dev_cluster::DevCluster;

/// Time limit of an attempt to connect, and of the retries while no coordinator can be reached: one may be starting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a request. It is long because to create a job the coordinator reads a manifest from the store.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a command retries while no coordinator leads: a few leases.
const LEADERLESS_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// The coordinator's address, and the certificate that the command presents. Without both, the cluster of `dev up`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connection {
    /// Address of the coordinator, or of all of them, separated by commas. Default: the cluster of `spdl-ctl dev up`.
    #[arg(long, env = "SPDL_COORD", value_name = "HOST:PORT,...")]
    pub(crate) coord: Option<Addresses>,
    /// Folder with `ca.pem`, `cert.pem` and `key.pem`. Default: that of the cluster of `spdl-ctl dev up`.
    #[arg(long, env = "SPDL_CERTS", value_name = "DIR")]
    pub(crate) certs: Option<PathBuf>,
    /// Settings of QUIC: KEY=VALUE, with commas between; the keys are in docs/spec/protocol/connections.md.
    #[arg(long, env = "SPDL_QUIC", value_name = "KEY=VALUE,...", default_value = "", hide_default_value = true)]
    pub(crate) quic: QuicSettings,
}

impl Connection {
    /// Returns how to reach a cluster of `dev up` as `role`.
    pub(crate) fn of(cluster: &DevCluster, role: Role) -> Result<Self, CtlError> {
        let coord = Some(cluster.coordinator.parse().map_err(|_| CtlError::NoCluster)?);
        Ok(Self { coord, certs: Some(cluster.certs(role)), quic: QuicSettings::default() })
    }

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
        let (coordinators, certs) = self.place()?;
        let identity = Identity::load(&certs)?;
        let endpoint = quic::client_endpoint(&identity, &self.quic)?;
        Ok(CoordinatorClient::new(endpoint, LeaderDiscovery::new(coordinators), CONNECT_TIMEOUT))
    }

    /// Returns the address and the certificates: those that are given, or those of the cluster of `dev up`.
    fn place(&self) -> Result<(Addresses, PathBuf), CtlError> {
        match (&self.coord, &self.certs) {
            (Some(coordinators), Some(certs)) => Ok((coordinators.clone(), certs.clone())),
            (None, None) => {
                let found = find_dev_cluster().ok_or(CtlError::NoCluster)?;
                Self::of(&found, Role::Admin)?.place()
            }
            (Some(_), None) => Err(CtlError::HalfConnection { given: "--coord", missing: "--certs" }),
            (None, Some(_)) => Err(CtlError::HalfConnection { given: "--certs", missing: "--coord" }),
        }
    }
}

/// Returns the cluster of `dev up`, if one is up, and says once which one that is.
pub(crate) fn find_dev_cluster() -> Option<DevCluster> {
    static SAID: Once = Once::new();
    let found = DevCluster::find()?;
    SAID.call_once(|| note(&found.text()));
    Some(found)
}

/// Returns how long to retry after this error; zero when it is permanent.
fn retry_timeout(error: &CoordinatorError) -> Duration {
    match error {
        error if error.is_leaderless() => LEADERLESS_TIMEOUT,
        error if error.is_unreachable() => CONNECT_TIMEOUT,
        _ => Duration::ZERO,
    }
}
