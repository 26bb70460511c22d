//! QUIC between processes: endpoints, connections with a checked role, and the coordinator's conversation.

mod batch;
mod error;
mod probe;
mod request;
mod settings;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use quinn::{
    ClientConfig, Connection, Endpoint, Incoming, ServerConfig, VarInt,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
    rustls::pki_types::CertificateDer,
};
use serde::{Deserialize, Serialize};

use crate::{
    certs::{self, Identity, Role},
    frame::{self, FrameError, Message},
};

pub use batch::{receive_batch, send_batch};
pub use error::{Close, QuicError};
pub use probe::until_gone;
pub use request::{REQUEST_TIMEOUT, request, serve_requests};
pub use settings::QuicSettings;

/// A peer that does not finish its handshake within this time is dropped.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Who is at the other end, as its certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What it may do.
    pub role: Role,
    /// What it is called.
    pub name: String,
}

/// The first thing a server says, on a stream of its own, once it has accepted the client's certificate and role. In
/// TLS 1.3 a client is done before its own certificate was looked at; with this, [`connect`] knows.
#[derive(Debug, Serialize, Deserialize)]
struct Welcome;

impl Message for Welcome {
    const NAME: &'static str = "welcome";
    const MAX_BYTES: usize = 64;
}

/// An endpoint that others connect to, and that can [`connect`] as well.
///
/// # Errors
/// [`QuicError::Bind`]. Call it in a tokio runtime.
pub fn server_endpoint(
    listen: SocketAddr,
    identity: &Identity,
    settings: &QuicSettings,
) -> Result<Endpoint, QuicError> {
    let crypto = QuicServerConfig::try_from(identity.server_config()).expect("TLS 1.3 with AES-128-GCM");
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    settings.limit_server(&mut config);
    endpoint(listen, Some(config), identity, settings)
}

/// An endpoint that only connects.
///
/// # Errors
/// [`QuicError::Bind`]. Call it in a tokio runtime.
pub fn client_endpoint(identity: &Identity, settings: &QuicSettings) -> Result<Endpoint, QuicError> {
    let any = |ip: IpAddr| endpoint(SocketAddr::new(ip, 0), None, identity, settings);
    // An IPv6 socket reaches IPv4 too; some hosts have no IPv6.
    any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))
}

fn endpoint(
    listen: SocketAddr,
    server: Option<ServerConfig>,
    identity: &Identity,
    settings: &QuicSettings,
) -> Result<Endpoint, QuicError> {
    let bind = |source| QuicError::Bind { address: listen, source };
    let socket = UdpSocket::bind(listen).map_err(bind)?;
    settings.size_buffers(&socket);
    let runtime = Arc::new(quinn::TokioRuntime);
    let mut endpoint = Endpoint::new(settings.endpoint(), server, socket, runtime).map_err(bind)?;
    let crypto = QuicClientConfig::try_from(identity.client_config()).expect("TLS 1.3 with AES-128-GCM");
    let mut client = ClientConfig::new(Arc::new(crypto));
    client.transport_config(settings.client_transport());
    endpoint.set_default_client_config(client);
    Ok(endpoint)
}

/// Connects to `address`, where a `role` of our cluster must answer, and waits until it has accepted us.
///
/// # Errors
/// [`QuicError`]: nobody there, another cluster, another role, or the peer's own reason. A closed port on a host that
/// says so is noticed at once.
pub async fn connect(
    endpoint: &Endpoint,
    address: SocketAddr,
    role: Role,
    timeout: Duration,
) -> Result<Connection, QuicError> {
    let attempt = async {
        let connecting = endpoint
            .connect(address, role.dns_name())
            .map_err(|error| QuicError::Unreachable { address, source: std::io::Error::other(error) })?;
        let connection = connecting.await.map_err(|error| QuicError::of_handshake(error, address, role))?;
        let welcomed = async {
            let mut stream = connection.accept_uni().await.map_err(|error| QuicError::of(error, address))?;
            match frame::read_frame::<Welcome>(&mut stream).await {
                Ok(Some(Welcome)) => Ok(()),
                Ok(None) => Err(QuicError::Frame(FrameError::Cut { message: Welcome::NAME })),
                Err(error) => Err(QuicError::Frame(error)),
            }
        };
        match welcomed.await {
            Ok(()) => Ok(connection),
            // Where the peer closed the connection, it said why.
            Err(error) => Err(match connection.close_reason() {
                Some(reason) => QuicError::of_handshake(reason, address, role),
                None => error,
            }),
        }
    };
    tokio::select! {
        done = tokio::time::timeout(timeout, attempt) => {
            done.unwrap_or(Err(QuicError::Timeout { address, role, timeout_ms: timeout.as_millis() as u64 }))
        }
        error = probe::refusal(address) => Err(error),
    }
}

/// Connects to `host:port`, trying every address that the name has.
///
/// # Errors
/// As [`connect`], of the last address; [`QuicError::Resolve`].
pub async fn connect_host(
    endpoint: &Endpoint,
    host_port: &str,
    role: Role,
    timeout: Duration,
) -> Result<Connection, QuicError> {
    let resolve = |source| QuicError::Resolve { host: host_port.to_owned(), source };
    let lookup = tokio::time::timeout(timeout, tokio::net::lookup_host(host_port)).await;
    let addresses = lookup.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(resolve)?;
    let mut last = resolve(std::io::Error::new(std::io::ErrorKind::NotFound, "it has no address"));
    for address in addresses {
        match connect(endpoint, address, role, timeout).await {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The server's side of [`connect`]: finishes the handshake, checks that the peer has one of the `allowed` roles, and
/// welcomes it. A peer with another role is told so.
///
/// # Errors
/// [`QuicError`].
pub async fn handshake(
    incoming: Incoming,
    allowed: &[Role],
    timeout: Duration,
) -> Result<(Connection, Peer), QuicError> {
    let address = incoming.remote_address();
    let attempt = async {
        let connection = incoming.await.map_err(|error| QuicError::of(error, address))?;
        let peer = peer(&connection)?;
        if !allowed.contains(&peer.role) {
            let allowed = allowed.iter().map(|role| role.name()).collect::<Vec<_>>().join(", ");
            let reason = format!("a {} may not connect here, only: {allowed}", peer.role);
            Close::Role.close(&connection, &reason);
            return Err(QuicError::RoleNotAllowed { address, role: peer.role, name: peer.name, allowed });
        }
        let mut stream = connection.open_uni().await.map_err(|error| QuicError::of(error, address))?;
        frame::write_frame(&mut stream, &Welcome).await.map_err(QuicError::Frame)?;
        let _ = stream.finish();
        Ok((connection, peer))
    };
    let late = QuicError::HandshakeTimeout { address, timeout_ms: timeout.as_millis() as u64 };
    tokio::time::timeout(timeout, attempt).await.unwrap_or(Err(late))
}

/// Who is at the other end. TLS has checked the certificate; this reads it.
///
/// # Errors
/// [`QuicError::Certificate`] when it says no role.
pub fn peer(connection: &Connection) -> Result<Peer, QuicError> {
    let address = connection.remote_address();
    let problem = |problem: String| QuicError::Certificate { address, problem };
    let chain =
        connection.peer_identity().and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok());
    let leaf = chain.as_ref().and_then(|chain| chain.first()).ok_or_else(|| problem("is missing".to_owned()))?;
    let (role, name) = certs::names_of(leaf).map_err(problem)?;
    Ok(Peer { role, name })
}

/// A small number as QUIC writes it.
fn varint(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}
