//! QUIC connections: one task each, from the handshake until the peer is gone.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use spdl_wire::{
    certs::Role,
    quic::{HANDSHAKE_TIMEOUT, QuicError, handshake, serve_requests},
};
use tokio::{sync::Semaphore, task::JoinSet};

use super::seat::Seat;
use crate::{
    core::{ConnectionId, Peer},
    error_text,
};

/// Connections at once: two for every rank and worker that a coordinator can have, roughly.
const MAX_CONNECTIONS: usize = 100_000;

/// Lets peers in until the endpoint is closed, and ends when the last one is gone. Peers that go because of `stopping`
/// are not dead. Dropped, it drops all connections.
pub(crate) async fn accept(endpoint: quinn::Endpoint, seat: Arc<Seat>, stopping: Arc<AtomicBool>) {
    let next_id = AtomicU64::new(0);
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut running = JoinSet::new();
    while let Some(incoming) = endpoint.accept().await {
        while running.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tracing::warn!(
                "a connection from {} is one too many; the most is {MAX_CONNECTIONS}",
                incoming.remote_address()
            );
            incoming.refuse();
            continue;
        };
        let id = ConnectionId(next_id.fetch_add(1, Ordering::Relaxed));
        let (seat, stopping) = (Arc::clone(&seat), Arc::clone(&stopping));
        running.spawn(async move {
            let _permit = permit;
            if let Err(error) = serve(incoming, id, &seat).await {
                tracing::warn!("a peer was not let in: {}", error_text(&error));
            } else if !stopping.load(Ordering::Relaxed) {
                seat.closed(id);
            }
        });
    }
    while running.join_next().await.is_some() {}
}

async fn serve(incoming: quinn::Incoming, id: ConnectionId, seat: &Arc<Seat>) -> Result<(), QuicError> {
    let (connection, peer) = handshake(incoming, &[Role::Worker, Role::Client, Role::Admin], HANDSHAKE_TIMEOUT).await?;
    let peer = Arc::new(Peer { connection: id, role: peer.role, name: peer.name });
    tracing::debug!("{} `{}` connected from {}", peer.role, peer.name, connection.remote_address());
    let handler = {
        let (seat, peer) = (Arc::clone(seat), Arc::clone(&peer));
        move |request| {
            let (seat, peer) = (Arc::clone(&seat), Arc::clone(&peer));
            async move { seat.request(&peer, request).await }
        }
    };
    let why = serve_requests(connection, handler).await;
    tracing::debug!("{} `{}` is gone: {why}", peer.role, peer.name);
    Ok(())
}
