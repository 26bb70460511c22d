//! QUIC between processes: endpoints, connections that check the peer's role, requests to the coordinator, and batches.

mod batch;
mod crypto;
mod error;
mod peer;
mod probe;
mod request;
mod restart;
mod settings;
mod socket;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use quinn::{ClientConfig, Connection, Endpoint, Incoming, ServerConfig, VarInt, rustls::pki_types::CertificateDer};
use serde::{Deserialize, Serialize};

use crate::{
    certs::{self, Identity},
    frame::{self, FrameError, Message},
};
use crypto::Tls;
use socket::Socket;
use spdl_control::Role;

pub use batch::{receive_batch, send_batch};
pub use error::{Close, QuicError};
pub use peer::{PeerReply, PeerStream, request_peer, serve_peer};
pub use probe::until_closed;
pub use request::{REQUEST_TIMEOUT, request, serve_requests};
pub(crate) use settings::MAX_CONNECTIONS;
pub use settings::{Congestion, QuicSettings};

/// How long trainers and workers wait for a connection to one address. A server does not begin handshakes that have waited for
/// longer.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A peer that does not finish its handshake within this time is dropped.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The identity of the peer, from its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer's role.
    pub role: Role,
    /// The peer's name.
    pub name: String,
}

/// The first message of a server, on its own stream, once it has accepted the client's certificate and role. In TLS 1.3
/// the client's handshake completes before the server has checked the client's certificate; this message informs
/// [`connect`] that it was accepted.
#[derive(Debug, Serialize, Deserialize)]
struct Welcome;

impl Message for Welcome {
    const NAME: &'static str = "welcome";
    const MAX_BYTES: usize = 64;
}

/// Makes an endpoint that accepts connections and can also [`connect`]. Connections that begin after the identity's
/// files were renewed use the new files. Call it in a tokio runtime.
///
/// # Errors
/// [`QuicError::Bind`].
pub fn server_endpoint(
    listen: SocketAddr,
    identity: &Identity,
    settings: &QuicSettings,
) -> Result<Endpoint, QuicError> {
    let tls = Tls::of(identity);
    let mut config = ServerConfig::with_crypto(Arc::clone(&tls) as _);
    settings.limit_server(&mut config);
    endpoint(listen, identity, Some(config), tls, settings)
}

/// Makes an endpoint that only connects. Connections that begin after the identity's files were renewed use the new
/// files. Call it in a tokio runtime.
///
/// # Errors
/// [`QuicError::Bind`].
pub fn client_endpoint(identity: &Identity, settings: &QuicSettings) -> Result<Endpoint, QuicError> {
    let tls = Tls::of(identity);
    let any = |ip: IpAddr| endpoint(SocketAddr::new(ip, 0), identity, None, Arc::clone(&tls), settings);
    // An IPv6 socket reaches IPv4 too, but some hosts have no IPv6.
    any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))
}

fn endpoint(
    listen: SocketAddr,
    identity: &Identity,
    server: Option<ServerConfig>,
    tls: Arc<Tls>,
    settings: &QuicSettings,
) -> Result<Endpoint, QuicError> {
    let bind = |source| QuicError::Bind { address: listen, source };
    let socket = UdpSocket::bind(listen).map_err(bind)?;
    settings.size_buffers(&socket);
    let mut config = settings.endpoint();
    if server.is_some() {
        restart::share_with_predecessors(&mut config, identity, socket.local_addr().map_err(bind)?);
    }
    let mut endpoint = Endpoint::new_with_abstract_socket(
        config,
        server,
        Socket::of(socket).map_err(bind)?,
        Arc::new(quinn::TokioRuntime),
    )
    .map_err(bind)?;
    let mut client = ClientConfig::new(tls);
    client.transport_config(settings.client_transport());
    endpoint.set_default_client_config(client);
    Ok(endpoint)
}

/// Connects to `address`, where a process of our cluster with this role must reply, and waits until it has accepted
/// this client.
///
/// Returns [`QuicError`] if no process answers, if the process is of another cluster or role, or if it refuses with a
/// reason. If the host reports that the port is closed, the error comes at once.
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
            // If the peer closed the connection, it sent a reason.
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

/// Connects to `host:port`; tries every address that the name resolves to.
///
/// Returns the error of [`connect`] for the last address, or [`QuicError::Resolve`].
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
/// accepts it. A peer with another role gets the list of allowed ones.
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

/// Reads the peer's identity from its certificate, which TLS has already verified.
///
/// Returns [`QuicError::Certificate`] if it contains no role.
pub fn peer(connection: &Connection) -> Result<Peer, QuicError> {
    let address = connection.remote_address();
    let problem = |problem: String| QuicError::Certificate { address, problem };
    let chain =
        connection.peer_identity().and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok());
    let leaf = chain.as_ref().and_then(|chain| chain.first()).ok_or_else(|| problem("is missing".to_owned()))?;
    let (role, name) = certs::names_of(leaf).map_err(problem)?;
    Ok(Peer { role, name })
}

/// Converts a small number to QUIC's variable-length integer.
fn varint(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}
