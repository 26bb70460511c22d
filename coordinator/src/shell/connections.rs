//! QUIC connections: one task each, from the handshake until the peer is gone.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use spdl_wire::{
    certs::Role,
    doorway::Doorway,
    log_limit::LogLimit,
    quic::{self, Close, HANDSHAKE_TIMEOUT, QuicError, handshake, serve_requests},
};
use tokio::{sync::mpsc, task::JoinSet};

use super::seat::Seat;
use crate::{
    core::{ConnectionId, Peer},
    error_text,
};

/// Connections at once: two for every rank and worker that a coordinator can have, roughly.
const MAX_CONNECTIONS: usize = 100_000;
/// Connections from one address at once, so that one host cannot take them all. Ranks behind one address of a NAT share it.
const MAX_CONNECTIONS_PER_ADDRESS: usize = 1_024;
/// Handshakes at once.
const MAX_HANDSHAKES: usize = 256;
/// Of peers that are not let in, one is named so often for each cause; all are counted.
const LOG_PERIOD: Duration = Duration::from_secs(30);
/// Who may connect.
const ROLES: [Role; 3] = [Role::Worker, Role::Client, Role::Admin];

/// Lets peers in until the endpoint is closed, and ends when the last one is gone. Peers that go because of `stopping`
/// are not dead. Dropped, it drops all connections.
pub(crate) async fn accept(endpoint: quinn::Endpoint, seat: Arc<Seat>, stopping: Arc<AtomicBool>) {
    let mut handshakes = Doorway::new(MAX_HANDSHAKES);
    let (let_in, mut entered) = mpsc::channel(1);
    let guests = Arc::new(Guests::default());
    let doorman = Arc::new(Doorman::new(Arc::clone(&seat)));
    let mut next_id = 0;
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { break };
                let (let_in, doorman) = (let_in.clone(), Arc::clone(&doorman));
                handshakes.enter(incoming.remote_address().ip(), async move {
                    match handshake(incoming, &ROLES, HANDSHAKE_TIMEOUT).await {
                        Ok(guest) => drop(let_in.send(guest).await),
                        Err(error) => doorman.turn_away(&error),
                    }
                });
            }
            Some((connection, peer)) = entered.recv() => {
                let address = connection.remote_address();
                let Some(place) = Guests::admit(&guests, address.ip()) else {
                    let reason = format!(
                        "{MAX_CONNECTIONS} connections are the most, {MAX_CONNECTIONS_PER_ADDRESS} of them from one address"
                    );
                    let text = format!("the {} `{}` at {address} is one too many: {reason}", peer.role, peer.name);
                    doorman.note(Cause::Room, &text);
                    Close::Busy.close(&connection, &reason);
                    continue;
                };
                next_id += 1;
                let (seat, stopping) = (Arc::clone(&seat), Arc::clone(&stopping));
                running.spawn(serve(connection, ConnectionId(next_id), peer, seat, stopping, place));
            }
            Some(_) = running.join_next() => {}
        }
    }
    while running.join_next().await.is_some() {}
}

/// Why a peer is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// It sent what is no handshake, or did not finish it. Anybody can, at any rate.
    Noise,
    /// Its certificate is of another cluster, has expired or names no role.
    Certificate,
    /// Its role has no business here.
    Role,
    /// There is no room.
    Room,
}

impl Cause {
    const ALL: [Self; 4] = [Self::Noise, Self::Certificate, Self::Role, Self::Room];

    const fn of(error: &QuicError) -> Self {
        match error {
            QuicError::TheirCluster { .. } | QuicError::OurCluster { .. } | QuicError::Certificate { .. } => {
                Self::Certificate
            }
            QuicError::RoleNotAllowed { .. } | QuicError::WrongRole { .. } => Self::Role,
            _ => Self::Noise,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Noise => "noise",
            Self::Certificate => "certificate",
            Self::Role => "role",
            Self::Room => "room",
        }
    }
}

/// Counts those who are not let in, and says so now and then.
struct Doorman {
    seat: Arc<Seat>,
    limits: [LogLimit; Cause::ALL.len()],
}

impl Doorman {
    fn new(seat: Arc<Seat>) -> Self {
        Self { seat, limits: Cause::ALL.map(|_| LogLimit::new(LOG_PERIOD)) }
    }

    fn turn_away(&self, error: &QuicError) {
        self.note(Cause::of(error), &format!("a peer was not let in: {}", error_text(error)));
    }

    fn note(&self, cause: Cause, text: &str) {
        self.seat.turned_away().count(cause.name());
        if let Some(more) = self.limits[cause as usize].admit_text() {
            tracing::warn!("{text}{more}");
        }
    }
}

async fn serve(
    connection: quinn::Connection,
    id: ConnectionId,
    peer: quic::Peer,
    seat: Arc<Seat>,
    stopping: Arc<AtomicBool>,
    _place: Place,
) {
    let peer = Arc::new(Peer { connection: id, role: peer.role, name: peer.name });
    tracing::debug!("{} `{}` connected from {}", peer.role, peer.name, connection.remote_address());
    let handler = {
        let (seat, peer) = (Arc::clone(&seat), Arc::clone(&peer));
        move |request| {
            let (seat, peer) = (Arc::clone(&seat), Arc::clone(&peer));
            async move { seat.request(&peer, request).await }
        }
    };
    let why = serve_requests(connection, handler).await;
    tracing::debug!("{} `{}` is gone: {why}", peer.role, peer.name);
    if !stopping.load(Ordering::Relaxed) {
        seat.closed(id);
    }
}

/// The connections there are, by the address they come from.
#[derive(Default)]
struct Guests {
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// A guest's place, free again when dropped.
struct Place {
    guests: Arc<Guests>,
    address: IpAddr,
}

impl Guests {
    /// A place for one more from `address`; `None` where there are too many.
    fn admit(guests: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut by_address = guests.by_address.lock();
        let total: usize = by_address.values().sum();
        let here = by_address.get(&address).copied().unwrap_or_default();
        if total >= MAX_CONNECTIONS || here >= MAX_CONNECTIONS_PER_ADDRESS {
            return None;
        }
        by_address.insert(address, here + 1);
        Some(Place { guests: Arc::clone(guests), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_address = self.guests.by_address.lock();
        if let Some(here) = by_address.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_every_place_and_gives_back_what_it_has() {
        let guests = Arc::new(Guests::default());
        let (hostile, honest) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut places: Vec<Place> = std::iter::from_fn(|| Guests::admit(&guests, hostile)).collect();
        assert_eq!(places.len(), MAX_CONNECTIONS_PER_ADDRESS);
        let place = Guests::admit(&guests, honest).expect("another address has places of its own");
        places.pop();
        assert!(Guests::admit(&guests, hostile).is_some());
        drop((places, place));
        assert!(guests.by_address.lock().is_empty());
    }
}
