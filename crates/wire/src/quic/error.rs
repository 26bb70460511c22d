//! Errors of QUIC connections, with advice in their texts.

use std::{io, net::SocketAddr};

use quinn::{Connection, ConnectionError};

use super::varint;
use crate::{frame::FrameError, slab::SlabError};
use spdl_control::Role;

/// Why a side closes a connection: QUIC's application error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The connection is no longer needed.
    Done,
    /// The peer's role may not connect here.
    Role,
    /// The peer broke the protocol.
    Protocol,
    /// The server has too many connections.
    Busy,
}

impl Close {
    const ALL: [Self; 4] = [Self::Done, Self::Role, Self::Protocol, Self::Busy];

    const fn code(self) -> u64 {
        match self {
            Self::Done => 0,
            Self::Role => 1,
            Self::Protocol => 2,
            Self::Busy => 3,
        }
    }

    /// Closes the connection with a reason as text, which the peer shows.
    pub fn close(self, connection: &Connection, reason: &str) {
        // Quinn truncates a reason that does not fit into one packet.
        connection.close(varint(self.code()), reason.as_bytes());
    }
}

/// A connection cannot be made, or has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum QuicError {
    #[error("cannot listen on UDP `{address}`: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("host `{host}` cannot be resolved: {source}")]
    Resolve { host: String, source: io::Error },
    #[error("`{address}` is unreachable: {source}")]
    Unreachable { address: SocketAddr, source: io::Error },
    #[error("no process listens on UDP `{address}`: check the port, and that the server runs")]
    PortClosed { address: SocketAddr },
    #[error("no {role} answered at UDP `{address}` within {timeout_ms} ms: check address and firewall")]
    Timeout { address: SocketAddr, role: Role, timeout_ms: u64 },
    #[error("`{address}` did not finish its handshake within {timeout_ms} ms")]
    HandshakeTimeout { address: SocketAddr, timeout_ms: u64 },
    #[error(
        "`{address}` belongs to another cluster: its certificate is not of our CA; use a certificate issued by its cluster"
    )]
    TheirCluster { address: SocketAddr },
    #[error(
        "`{address}` does not know the CA of our certificate: it belongs to another cluster; use a certificate issued by its cluster"
    )]
    OurCluster { address: SocketAddr },
    #[error("`{address}` is not a {expected}: {reason}")]
    WrongRole { address: SocketAddr, expected: Role, reason: String },
    #[error("`{address}` is the {role} `{name}`, which may not connect here, only: {allowed}")]
    RoleNotAllowed { address: SocketAddr, role: Role, name: String, allowed: String },
    #[error("certificate of `{address}` {problem}")]
    Certificate { address: SocketAddr, problem: String },
    #[error("`{address}` refused us: {reason}")]
    Refused { address: SocketAddr, reason: String },
    #[error("`{address}` has reached its limit of connections: {reason}")]
    Busy { address: SocketAddr, reason: String },
    #[error("connection to `{address}` was closed")]
    Closed { address: SocketAddr },
    #[error("connection to `{address}` was lost: {source}")]
    Lost { address: SocketAddr, source: ConnectionError },
    #[error("`{address}` did not reply within {timeout_ms} ms")]
    NoReply { address: SocketAddr, timeout_ms: u64 },
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("`{address}` broke the protocol: {problem}")]
    Protocol { address: SocketAddr, problem: String },
    #[error(transparent)]
    Slab(#[from] SlabError),
}

/// Codes of TLS alerts (RFC 8446, section 6).
mod alert {
    pub(super) const BAD_CERTIFICATE: u64 = 42;
    pub(super) const UNSUPPORTED_CERTIFICATE: u64 = 43;
    pub(super) const CERTIFICATE_EXPIRED: u64 = 45;
    pub(super) const UNKNOWN_CA: u64 = 48;
    pub(super) const DECRYPT_ERROR: u64 = 51;
    pub(super) const NO_APPLICATION_PROTOCOL: u64 = 120;
}
/// The offset of TLS alerts in QUIC's error codes (RFC 9001, section 4.8).
const CRYPTO_ERRORS: u64 = 0x100;

impl QuicError {
    /// Returns whether the same may succeed later, or elsewhere.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Resolve { .. }
            | Self::Unreachable { .. }
            | Self::PortClosed { .. }
            | Self::Timeout { .. }
            | Self::HandshakeTimeout { .. }
            | Self::Busy { .. }
            | Self::Closed { .. }
            | Self::Lost { .. }
            | Self::NoReply { .. } => true,
            Self::Frame(error) => error.is_retryable(),
            Self::Bind { .. }
            | Self::TheirCluster { .. }
            | Self::OurCluster { .. }
            | Self::WrongRole { .. }
            | Self::RoleNotAllowed { .. }
            | Self::Certificate { .. }
            | Self::Refused { .. }
            | Self::Protocol { .. }
            | Self::Slab(_) => false,
        }
    }

    /// Explains the end of a connection.
    #[must_use]
    pub fn of(error: ConnectionError, address: SocketAddr) -> Self {
        let crypto = |code: u64| code.checked_sub(CRYPTO_ERRORS).filter(|alert| *alert < 256);
        match &error {
            ConnectionError::ApplicationClosed(close) => {
                let code = close.error_code.into_inner();
                if code == Close::Done.code() {
                    return Self::Closed { address };
                }
                let reason = String::from_utf8_lossy(&close.reason).into_owned();
                if code == Close::Busy.code() {
                    return Self::Busy { address, reason };
                }
                let known = Close::ALL.iter().any(|close| close.code() == code);
                Self::Refused { address, reason: if known { reason } else { format!("{reason} (code {code})") } }
            }
            // Our verdict on the peer's certificate.
            ConnectionError::TransportError(ours) => match crypto(ours.code.into()) {
                Some(alert::UNKNOWN_CA | alert::DECRYPT_ERROR) => Self::TheirCluster { address },
                Some(alert::CERTIFICATE_EXPIRED) => Self::Certificate {
                    address,
                    problem: "has expired, or is not valid yet: compare the clocks of both machines".to_owned(),
                },
                Some(_) => Self::Certificate { address, problem: format!("is refused: {}", ours.reason) },
                None => Self::Lost { address, source: error },
            },
            // The peer's verdict on our certificate.
            ConnectionError::ConnectionClosed(theirs) => match crypto(theirs.error_code.into()) {
                Some(alert::UNKNOWN_CA | alert::DECRYPT_ERROR) => Self::OurCluster { address },
                Some(alert::CERTIFICATE_EXPIRED) => Self::Refused {
                    address,
                    reason: "our certificate has expired, or is not valid yet: compare the clocks of both machines"
                        .to_owned(),
                },
                Some(alert::NO_APPLICATION_PROTOCOL) => {
                    Self::Refused { address, reason: "it is not a part of spdl-cluster".to_owned() }
                }
                Some(_) => Self::Refused { address, reason: theirs.to_string() },
                None => Self::Lost { address, source: error },
            },
            ConnectionError::LocallyClosed => Self::Closed { address },
            _ => Self::Lost { address, source: error },
        }
    }

    /// Like [`QuicError::of`], for a handshake with a peer that has to have the role `expected`.
    pub(super) fn of_handshake(error: ConnectionError, address: SocketAddr, expected: Role) -> Self {
        if let ConnectionError::TransportError(ours) = &error {
            let code: u64 = ours.code.into();
            let wrong_name =
                [alert::BAD_CERTIFICATE, alert::UNSUPPORTED_CERTIFICATE].map(|alert| CRYPTO_ERRORS + alert);
            if wrong_name.contains(&code) {
                return Self::WrongRole { address, expected, reason: ours.reason.clone() };
            }
        }
        Self::of(error, address)
    }
}
