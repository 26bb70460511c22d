//! The TLS of an endpoint, which follows the renewals of its process's certificate: each connection uses the
//! certificate that is current when it begins.

use std::{
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use parking_lot::RwLock;
use quinn::{
    ConnectError, ConnectionId,
    crypto::{
        self, Keys, Session, UnsupportedVersion,
        rustls::{QuicClientConfig, QuicServerConfig},
    },
};
use quinn_proto::transport_parameters::TransportParameters;

use crate::certs::{CertError, Identity};

/// How often a process looks whether its certificate was renewed.
const RENEWAL_PERIOD: Duration = Duration::from_secs(5);
/// The time before a certificate expires at which a warning is logged if it was not renewed.
const LATE: Duration = Duration::from_secs(24 * 3600);

/// The TLS of an endpoint.
pub(super) struct Tls(RwLock<QuicConfigs>);

/// The configurations for connections that begin now.
struct QuicConfigs {
    client: Arc<QuicClientConfig>,
    server: Arc<QuicServerConfig>,
}

impl QuicConfigs {
    fn of(identity: &Identity) -> Self {
        let client = QuicClientConfig::try_from(identity.client_config()).expect("TLS 1.3 with AES-128-GCM");
        let server = QuicServerConfig::try_from(identity.server_config()).expect("TLS 1.3 with AES-128-GCM");
        Self { client: Arc::new(client), server: Arc::new(server) }
    }
}

impl Tls {
    /// Makes the TLS of an endpoint. A task of this runtime takes over renewed certificates until the endpoint is gone.
    pub(super) fn of(identity: &Identity) -> Arc<Self> {
        let tls = Arc::new(Self(RwLock::new(QuicConfigs::of(identity))));
        if identity.is_renewable() {
            tokio::spawn(renew(Arc::downgrade(&tls), identity.clone()));
        }
        tls
    }

    fn server(&self) -> Arc<QuicServerConfig> {
        Arc::clone(&self.0.read().server)
    }
}

impl crypto::ClientConfig for Tls {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let client = Arc::clone(&self.0.read().client);
        client.start_session(version, server_name, parameters)
    }
}

impl crypto::ServerConfig for Tls {
    fn initial_keys(&self, version: u32, connection: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.server().initial_keys(version, connection)
    }

    fn retry_tag(&self, version: u32, original: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.server().retry_tag(version, original, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, parameters: &TransportParameters) -> Box<dyn Session> {
        self.server().start_session(version, parameters)
    }
}

/// Takes over the renewed certificates of a process until the endpoint is gone. Logs each problem with one once.
async fn renew(tls: Weak<Tls>, mut identity: Identity) {
    let (mut reported, mut is_late) = (None, false);
    loop {
        tokio::time::sleep(RENEWAL_PERIOD).await;
        if tls.strong_count() == 0 {
            return;
        }
        let (before, result) = read_renewed(identity).await;
        identity = before;
        let place = identity.place().display().to_string();
        match result {
            Ok(Some(renewed)) => {
                let Some(tls) = tls.upgrade() else { return };
                *tls.0.write() = QuicConfigs::of(&renewed);
                identity = renewed;
                (reported, is_late) = (None, false);
                let hours = left(&identity).as_secs() / 3600;
                tracing::info!(place, name = identity.name(), hours, "the certificate was renewed");
            }
            Ok(None) => reported = None,
            Err(problem) => {
                let problem = problem.to_string();
                if reported.as_ref() != Some(&problem) {
                    tracing::warn!("the certificate in use stays, because what is there now is not valid: {problem}");
                    reported = Some(problem);
                }
            }
        }
        if !is_late && left(&identity) < LATE {
            is_late = true;
            let minutes = left(&identity).as_secs() / 60;
            tracing::warn!(
                "the certificate in `{place}` ends in {minutes} minutes, and then no connection can be made: renew it there, \
                 as with `spdl-ctl cert`; this process takes it over"
            );
        }
    }
}

/// Returns how long the certificate is still valid.
fn left(identity: &Identity) -> Duration {
    identity.valid_until().duration_since(SystemTime::now()).unwrap_or_default()
}

/// Reads the current files, on a thread that may wait for them.
async fn read_renewed(identity: Identity) -> (Identity, Result<Option<Identity>, CertError>) {
    let read = tokio::task::spawn_blocking(move || {
        let renewed = identity.renewed();
        (identity, renewed)
    });
    read.await.expect("reading certificates does not panic")
}
