//! A slow network: a UDP proxy on a loopback port that passes packets to a server at once, and the server's packets back
//! at no more than some bytes per second. It stops when dropped.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{net::UdpSocket, time::Instant};

use crate::background::Background;

/// The largest UDP packet.
const MAX_PACKET_BYTES: usize = 64 << 10;

/// A running proxy.
pub struct UdpLink {
    address: SocketAddr,
    _server: Background,
}

impl UdpLink {
    /// Starts a proxy before the server at `server`.
    pub fn start(server: SocketAddr, bytes_per_s: u64) -> Self {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free loopback port");
        socket.set_nonblocking(true).expect("a socket that can be non-blocking");
        let address = socket.local_addr().expect("a bound socket has an address");
        let pass = async move { pass(socket, server, bytes_per_s).await.expect("loopback sockets work") };
        Self { address, _server: Background::start(pass) }
    }

    /// Returns the address that the proxy listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Passes packets of any number of clients.
async fn pass(socket: std::net::UdpSocket, server: SocketAddr, bytes_per_s: u64) -> io::Result<()> {
    let socket = Arc::new(UdpSocket::from_std(socket)?);
    let mut clients: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut packet = vec![0; MAX_PACKET_BYTES];
    loop {
        let (bytes, client) = socket.recv_from(&mut packet).await?;
        let upstream = match clients.get(&client) {
            Some(upstream) => upstream.clone(),
            None => {
                let upstream = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?);
                upstream.connect(server).await?;
                tokio::spawn(pass_back(upstream.clone(), socket.clone(), client, bytes_per_s));
                clients.entry(client).or_insert(upstream).clone()
            }
        };
        // An error is a server that has ended, which the client notices itself.
        let _ = upstream.send(&packet[..bytes]).await;
    }
}

/// Passes the server's packets back to one client. Packets wait in the socket's buffer; those that do not fit are lost.
async fn pass_back(upstream: Arc<UdpSocket>, socket: Arc<UdpSocket>, client: SocketAddr, bytes_per_s: u64) {
    let mut packet = vec![0; MAX_PACKET_BYTES];
    let mut free = Instant::now();
    loop {
        let Ok(bytes) = upstream.recv(&mut packet).await else { continue };
        free = free.max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64);
        tokio::time::sleep_until(free).await;
        let _ = socket.send_to(&packet[..bytes], client).await;
    }
}
