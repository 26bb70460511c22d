//! Probes whether a process listens on a host's UDP port.
//!
//! QUIC cannot distinguish a peer that was killed from a slow one until the idle timeout. The kernel of the peer's host
//! can, and reports a closed port to a connected UDP socket. The probe's single byte is not a QUIC packet, so a live
//! peer drops it.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use quinn::Connection;
use tokio::net::UdpSocket;

use super::{Close, QuicError};

/// The time between two probes.
const PERIOD: Duration = Duration::from_secs(1);

async fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let local: IpAddr = if address.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(local, 0)).await?;
    socket.connect(address).await?;
    Ok(socket)
}

/// Probes once. Completes only if the host reports that the port is closed, or the network that the host is
/// unreachable.
pub(super) async fn refusal(address: SocketAddr) -> QuicError {
    let ask = async {
        let socket = open(address).await?;
        socket.send(&[0]).await?;
        socket.recv(&mut [0]).await
    };
    match ask.await.map_err(|source| (source.kind(), source)) {
        Err((io::ErrorKind::ConnectionRefused, _)) => QuicError::PortClosed { address },
        Err((io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable, source)) => {
            QuicError::Unreachable { address, source }
        }
        _ => std::future::pending().await,
    }
}

/// Probes every second while the connection lasts. Completes when the connection has ended, or when the peer's port is
/// closed: the connection is then closed too, long before its idle timeout.
pub async fn until_closed(connection: &Connection) -> QuicError {
    let address = connection.remote_address();
    let closed = async { QuicError::of(connection.closed().await, address) };
    let refused = async {
        tokio::time::sleep(PERIOD).await;
        let Ok(socket) = open(address).await else { return std::future::pending().await };
        let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        loop {
            // The error for one probe is reported by the next call on the socket.
            if socket.send(&[0]).await.as_ref().is_err_and(is_gone)
                || socket.try_recv(&mut [0]).as_ref().is_err_and(is_gone)
            {
                return QuicError::PortClosed { address };
            }
            tokio::time::sleep(PERIOD).await;
        }
    };
    tokio::select! {
        error = closed => error,
        error = refused => {
            Close::Done.close(connection, "");
            error
        }
    }
}
