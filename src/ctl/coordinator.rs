//! A command's conversation with the coordinator: ask, get an answer or a refusal.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use spdl_wire::{
    certs::Identity,
    coordinators::{Addresses, CoordinatorClient, CoordinatorError, LeaderDiscovery},
    messages::{FromCoordinator, ToCoordinator},
    quic::{self, QuicSettings},
};

use super::CtlError;

/// How long a coordinator that is just starting is waited for.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Creating a job reads a manifest from the store.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long coordinators may take to agree on one that leads: a few of their leases.
const LEADERLESS_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two looks for either.
const PAUSE: Duration = Duration::from_millis(100);

/// Where the coordinator is and who asks.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connection {
    /// Address of the coordinator, or of all of them, separated by commas.
    #[arg(long, env = "SPDL_COORD", value_name = "HOST:PORT,...")]
    pub(crate) coord: Addresses,
    /// Folder with `ca.pem`, `cert.pem` and `key.pem`.
    #[arg(long, env = "SPDL_CERTS", value_name = "DIR")]
    pub(crate) certs: PathBuf,
}

impl Connection {
    /// Sends one request to the coordinator that leads; a refusal is an error.
    pub(crate) async fn ask(&self, request: &ToCoordinator) -> Result<FromCoordinator, CtlError> {
        let identity = Identity::load(&self.certs)?;
        let endpoint = quic::client_endpoint(&identity, &QuicSettings::default())?;
        let mut coordinator_client =
            CoordinatorClient::new(endpoint.clone(), LeaderDiscovery::new(self.coord.clone()), CONNECT_TIMEOUT);
        let started = Instant::now();
        let reply = loop {
            match coordinator_client.ask(request, REQUEST_TIMEOUT).await {
                Err(error) if started.elapsed() < patience(&error) => tokio::time::sleep(PAUSE).await,
                done => break done?,
            }
        };
        coordinator_client.close("done");
        endpoint.wait_idle().await;
        match reply {
            FromCoordinator::Refused(refusal) => Err(refusal.into()),
            reply => Ok(reply),
        }
    }
}

/// How long it is worth asking again.
fn patience(error: &CoordinatorError) -> Duration {
    match error {
        error if error.is_leaderless() => LEADERLESS_TIMEOUT,
        error if error.is_nobody_there() => CONNECT_TIMEOUT,
        _ => Duration::ZERO,
    }
}
