//! A command's conversation with the coordinator: connect, ask, get an answer or a refusal.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use spdl_wire::{
    certs::{Identity, Role},
    messages::{FromCoordinator, ToCoordinator},
    quic::{self, QuicError, QuicSettings},
};

use super::CtlError;

/// How long a coordinator that is just starting is waited for.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Creating a job reads a manifest from the store.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Where the coordinator is and who asks.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connection {
    /// Address of the coordinator.
    #[arg(long, env = "SPDL_COORD", value_name = "HOST:PORT")]
    pub(crate) coord: String,
    /// Folder with `ca.pem`, `cert.pem` and `key.pem`.
    #[arg(long, env = "SPDL_CERTS", value_name = "DIR")]
    pub(crate) certs: PathBuf,
}

impl Connection {
    /// Sends one request; a refusal is an error.
    pub(crate) async fn ask(&self, request: &ToCoordinator) -> Result<FromCoordinator, CtlError> {
        let identity = Identity::load(&self.certs)?;
        let endpoint = quic::client_endpoint(&identity, &QuicSettings::default())?;
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let connection = loop {
            match quic::connect_host(&endpoint, &self.coord, Role::Coordinator, CONNECT_TIMEOUT).await {
                Err(QuicError::PortClosed { .. }) if Instant::now() < deadline => {
                    tokio::time::sleep(CONNECT_PAUSE).await;
                }
                connection => break connection?,
            }
        };
        let reply = quic::request(&connection, request, REQUEST_TIMEOUT).await?;
        connection.close(0u8.into(), b"done");
        endpoint.wait_idle().await;
        match reply {
            FromCoordinator::Refused(refusal) => Err(refusal.into()),
            reply => Ok(reply),
        }
    }
}
