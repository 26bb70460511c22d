//! The connections to other workers, and how long they may take.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use quinn::{Connection, Endpoint};
use spdl_control::{
    Role,
    messages::PeerRequest,
    peers::{BlockReply, BlockRequest, PeerAddress, PeerMap},
};
use spdl_types::WorkerId;
use spdl_wire::quic::{self, CONNECT_TIMEOUT, QuicError};
use tokio::sync::{Notify, Semaphore};

use super::AskPeer;

/// A worker that sends nothing for this long is late: the store is asked, too. A worker that is fetching the block
/// reports that more often.
const SILENCE: Duration = Duration::from_secs(1);
/// A worker that has fetched for this long is late.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// A worker that sends a block at fewer bytes per second than this is late.
const MIN_BYTES_PER_S: u64 = 16 << 20;
/// A worker that was late, or could not be reached, is not asked for this long.
const ASIDE: Duration = Duration::from_secs(10);

/// Asks other workers over QUIC.
#[derive(Debug)]
pub(crate) struct PeerLinks {
    endpoint: Endpoint,
    /// Maximum number of requests to one worker at once.
    requests: usize,
    links: Mutex<HashMap<WorkerId, Arc<PeerLink>>>,
}

#[derive(Debug)]
struct PeerLink {
    connection: tokio::sync::Mutex<Option<Connection>>,
    permits: Semaphore,
    aside_until: Mutex<Option<Instant>>,
    /// Notified when it is put aside.
    put_aside: Notify,
}

impl PeerLinks {
    pub(crate) fn new(endpoint: Endpoint, requests: usize) -> Self {
        Self { endpoint, requests, links: Mutex::default() }
    }

    fn link(&self, worker: WorkerId) -> Arc<PeerLink> {
        let new = || {
            Arc::new(PeerLink {
                connection: tokio::sync::Mutex::default(),
                permits: Semaphore::new(self.requests),
                aside_until: Mutex::default(),
                put_aside: Notify::new(),
            })
        };
        self.links.lock().entry(worker).or_insert_with(new).clone()
    }
}

impl AskPeer for PeerLinks {
    fn is_usable(&self, worker: WorkerId) -> bool {
        self.links.lock().get(&worker).is_none_or(|link| !link.is_aside())
    }

    fn put_aside(&self, worker: WorkerId) {
        self.link(worker).put_aside();
    }

    fn keep(&self, map: &PeerMap) {
        self.links.lock().retain(|worker, _| map.workers.iter().any(|peer| peer.worker == *worker));
    }

    fn ask<'a>(
        &'a self,
        peer: PeerAddress,
        request: &'a BlockRequest,
        late: &'a Notify,
    ) -> BoxFuture<'a, Result<Option<Bytes>, QuicError>> {
        async move {
            let link = self.link(peer.worker);
            // Requests that wait for a permit stop waiting when the worker is late.
            let _permit = tokio::select! {
                permit = link.permits.acquire() => permit.expect("the semaphore is never closed"),
                () = link.put_aside.notified() => return Ok(None),
            };
            if link.is_aside() {
                return Ok(None);
            }
            let deadline = Mutex::new(Instant::now() + SILENCE);
            let mut asking = std::pin::pin!(link.ask(&self.endpoint, peer, request, &deadline));
            let answer = loop {
                let until = *deadline.lock();
                tokio::select! {
                    answer = &mut asking => break answer,
                    () = tokio::time::sleep_until(until.into()) => {}
                }
                if *deadline.lock() <= Instant::now() {
                    if !link.is_aside() {
                        tracing::warn!(address = %peer.quic, "a worker does not answer for a block in time; it is asked for nothing for a while");
                    }
                    link.put_aside();
                    late.notify_one();
                    break asking.await;
                }
            };
            if answer.is_err() {
                link.put_aside();
                *link.connection.lock().await = None;
            }
            answer
        }
        .boxed()
    }
}

impl PeerLink {
    fn is_aside(&self) -> bool {
        self.aside_until.lock().is_some_and(|until| Instant::now() < until)
    }

    fn put_aside(&self) {
        *self.aside_until.lock() = Some(Instant::now() + ASIDE);
        self.put_aside.notify_waiters();
    }

    /// Asks once, and extends `deadline` while the worker reports that it is fetching, and once more for the transfer.
    async fn ask(
        &self,
        endpoint: &Endpoint,
        peer: PeerAddress,
        request: &BlockRequest,
        deadline: &Mutex<Instant>,
    ) -> Result<Option<Bytes>, QuicError> {
        let connection = self.connection(endpoint, peer).await?;
        let mut reply = quic::request_peer(&connection, &PeerRequest::Block(request.clone()), Vec::new()).await?;
        let fetched_by = Instant::now() + FETCH_TIMEOUT;
        loop {
            match reply.next().await? {
                BlockReply::Fetching => *deadline.lock() = (Instant::now() + SILENCE).min(fetched_by),
                BlockReply::Missing => return Ok(None),
                BlockReply::Block => break,
            }
        }
        let count: u64 = request.wanted.iter().map(|range| range.end - range.start).sum();
        *deadline.lock() = Instant::now() + SILENCE + Duration::from_secs(count / MIN_BYTES_PER_S);
        reply.bytes(usize::try_from(count).expect("there is room for the block")).await.map(Some)
    }

    async fn connection(&self, endpoint: &Endpoint, peer: PeerAddress) -> Result<Connection, QuicError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = connection.as_ref().filter(|connection| connection.close_reason().is_none()) {
            return Ok(connection.clone());
        }
        let connected = quic::connect(endpoint, peer.quic, Role::Worker, CONNECT_TIMEOUT).await?;
        *connection = Some(connected.clone());
        Ok(connected)
    }
}
