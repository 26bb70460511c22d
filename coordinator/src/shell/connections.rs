//! QUIC connections: one task each, from the handshake until the peer disconnects.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use spdl_control::{
    Role,
    coordinator::{ConnectionId, RequestPeer},
};
use spdl_wire::{
    pending::PendingConnections,
    quic::{self, Close, HANDSHAKE_TIMEOUT, handshake, serve_requests},
    rejections::RejectionCause,
};
use tokio::{sync::mpsc, task::JoinSet};

use super::leadership::Leadership;
use crate::error_text;

/// The largest number of connections: roughly two for every rank and worker that a coordinator can have.
const MAX_CONNECTIONS: usize = 100_000;
/// The largest number of connections from one address, so that one host cannot use up all of them. Ranks behind one NAT
/// address share this number.
const MAX_CONNECTIONS_PER_ADDRESS: usize = 1_024;
/// The largest number of concurrent handshakes. More wait: all at once would take so long that each client gives up.
const HANDSHAKES_AT_ONCE: usize = 64;
/// The roles that may connect.
const ROLES: [Role; 3] = [Role::Worker, Role::Client, Role::Admin];

/// Accepts peers until the endpoint is closed, and returns after the last connection has ended. At most `max_handshakes` peers wait
/// for their handshake. Connections that end while `stopping` is set do not count as dead peers. Dropping the future closes all
/// connections.
pub(crate) async fn accept(
    endpoint: quinn::Endpoint,
    max_handshakes: usize,
    leadership: Arc<Leadership>,
    stopping: Arc<AtomicBool>,
) {
    let mut handshakes = PendingConnections::new(HANDSHAKES_AT_ONCE, max_handshakes);
    let (ready_tx, mut ready_rx) = mpsc::channel(1);
    let limits = Arc::new(ConnectionLimits::default());
    let rejections = Arc::clone(leadership.rejections());
    let mut next_id = 0;
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { break };
                let (ready_tx, rejections) = (ready_tx.clone(), Arc::clone(&rejections));
                handshakes.admit(incoming.remote_address().ip(), async move {
                    match handshake(incoming, &ROLES, HANDSHAKE_TIMEOUT).await {
                        Ok(peer) => drop(ready_tx.send(peer).await),
                        Err(error) => {
                            let text = || format!("rejected a peer: {}", error_text(&error));
                            rejections.note(RejectionCause::from(&error), text);
                        }
                    }
                });
            }
            () = handshakes.go_on() => {}
            Some((connection, peer)) = ready_rx.recv() => {
                let address = connection.remote_address();
                let Some(permit) = ConnectionLimits::admit(&limits, address.ip()) else {
                    let reason = format!(
                        "{MAX_CONNECTIONS} connections are the most, {MAX_CONNECTIONS_PER_ADDRESS} of them from one address"
                    );
                    let text = || format!("the {} `{}` at {address} is one too many: {reason}", peer.role, peer.name);
                    rejections.note(RejectionCause::Room, text);
                    Close::Busy.close(&connection, &reason);
                    continue;
                };
                next_id += 1;
                let (leadership, stopping) = (Arc::clone(&leadership), Arc::clone(&stopping));
                running.spawn(serve(connection, ConnectionId(next_id), peer, leadership, stopping, permit));
            }
            Some(_) = running.join_next() => {}
        }
    }
    while running.join_next().await.is_some() {}
}

async fn serve(
    connection: quinn::Connection,
    id: ConnectionId,
    peer: quic::Peer,
    leadership: Arc<Leadership>,
    stopping: Arc<AtomicBool>,
    _permit: ConnectionPermit,
) {
    let peer = Arc::new(RequestPeer { connection: id, role: peer.role, name: peer.name });
    tracing::debug!("{} `{}` connected from {}", peer.role, peer.name, connection.remote_address());
    let handler = {
        let (leadership, peer) = (Arc::clone(&leadership), Arc::clone(&peer));
        move |request| {
            let (leadership, peer) = (Arc::clone(&leadership), Arc::clone(&peer));
            async move { leadership.request(&peer, request).await }
        }
    };
    let why = serve_requests(connection, handler).await;
    tracing::debug!("{} `{}` has closed its connection: {why}", peer.role, peer.name);
    if !stopping.load(Ordering::Relaxed) {
        leadership.closed(id);
    }
}

/// The number of open connections, and those per remote address.
#[derive(Default)]
struct ConnectionLimits {
    open: Mutex<OpenConnections>,
}

#[derive(Default)]
struct OpenConnections {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Counts one connection against the limits until it is dropped.
struct ConnectionPermit {
    limits: Arc<ConnectionLimits>,
    address: IpAddr,
}

impl ConnectionLimits {
    /// Admits one more connection from `address`; returns `None` if there are too many.
    fn admit(limits: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let mut open = limits.open.lock();
        let here = open.by_address.get(&address).copied().unwrap_or_default();
        if open.total >= MAX_CONNECTIONS || here >= MAX_CONNECTIONS_PER_ADDRESS {
            return None;
        }
        open.by_address.insert(address, here + 1);
        open.total += 1;
        Some(ConnectionPermit { limits: Arc::clone(limits), address })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.limits.open.lock();
        if let Some(here) = open.by_address.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                open.by_address.remove(&self.address);
            }
            open.total -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_every_place_and_gives_back_what_it_has() {
        let limits = Arc::new(ConnectionLimits::default());
        let (hostile, honest) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut places: Vec<ConnectionPermit> =
            std::iter::from_fn(|| ConnectionLimits::admit(&limits, hostile)).collect();
        assert_eq!(places.len(), MAX_CONNECTIONS_PER_ADDRESS);
        let permit = ConnectionLimits::admit(&limits, honest).expect("another address has places of its own");
        places.pop();
        assert!(ConnectionLimits::admit(&limits, hostile).is_some());
        drop((places, permit));
        let open = limits.open.lock();
        assert!(open.by_address.is_empty() && open.total == 0);
    }
}
