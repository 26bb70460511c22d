//! Blocks from other workers: who is asked for a block before the store is, and what is served to those that ask.
//!
//! All workers of a session name the same owner of a block, from the coordinator's map and the plan. The owner fetches it
//! from the store, and the others ask the owner. Before the store, an owner asks workers that may have kept the block.
//! Whatever a peer does or does not do, the store has the block.

mod links;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    ops::Range,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use spdl_control::peers::{BlockRequest, PeerAddress, PeerMap, PeerStats};
use spdl_feed::cache::BlockKey;
use spdl_types::{Fingerprint, SessionId, WorkerId};
use spdl_wire::quic::QuicError;
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::timeout_at,
};

pub(crate) use self::links::PeerLinks;
use super::{
    pieces::Pieces,
    place::{BlockPeers, BlockPlace, BlockSource},
};

/// Blocks that are read ahead wait until all ranks of their session have homes, but only for this long after a rank
/// began to read. A step needs all ranks, so that little is lost.
pub(super) const OPENING: Duration = Duration::from_secs(2);
/// Blocks that a batch needs wait until the session is in the map, but only for this long after a rank began to read.
const FIRST_MAP: Duration = Duration::from_secs(1);
/// Maximum number of blocks that other workers are asked for at once.
const ASKED_AT_ONCE: usize = 32;
/// Maximum number of blocks that are sent to other workers at once.
const SENT_AT_ONCE: usize = 16;
/// Maximum number of blocks that are remembered because their bytes were wrong.
const MAX_WRONG: usize = 10_000;
/// Maximum number of blocks of which the sender is remembered.
const MAX_SENDERS: usize = 10_000;

/// Asks other workers for blocks.
pub(crate) trait AskPeer: fmt::Debug + Send + Sync {
    /// Returns whether the worker was neither late nor out of reach lately.
    fn is_usable(&self, worker: WorkerId) -> bool;

    /// Asks the worker for nothing for a while.
    fn put_aside(&self, worker: WorkerId);

    /// Forgets the workers that are not in the map.
    fn keep(&self, map: &PeerMap);

    /// Returns the ranges that `request` wants, one after the other; `None` if the worker does not have them. Notifies `late`
    /// once the worker is late, and goes on.
    fn ask<'a>(
        &'a self,
        peer: PeerAddress,
        request: &'a BlockRequest,
        late: &'a Notify,
    ) -> BoxFuture<'a, Result<Option<Bytes>, QuicError>>;
}

/// What a worker knows about the workers that read the same blocks.
#[derive(Debug)]
pub(crate) struct Peers {
    map: watch::Sender<Arc<PeerMap>>,
    /// Whether the coordinator has answered the last heartbeat. If not, no block waits for a map.
    is_coordinated: AtomicBool,
    /// This worker, and its connections to others; without them it asks none and waits for none.
    links: OnceLock<(WorkerId, Box<dyn AskPeer>)>,
    sources: watch::Sender<Vec<SessionBlockSource>>,
    /// Blocks whose fetched bytes were wrong: only the store is asked for them.
    wrong: Mutex<HashSet<BlockKey>>,
    /// The workers that sent blocks, in case their bytes are wrong.
    senders: Mutex<HashMap<BlockKey, PeerAddress>>,
    asking: Semaphore,
    pub(super) sending: Semaphore,
    counts: Mutex<PeerStats>,
}

/// The blocks of a dataset that ranks of a session read.
#[derive(Clone, Debug)]
struct SessionBlockSource {
    session: SessionId,
    dataset: Fingerprint,
    blocks: Weak<dyn BlockSource>,
}

/// The workers to ask for a block before the store.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// The worker that fetches the block from the store for all, if it is not this one.
    pub(super) owner: Option<PeerAddress>,
    /// Workers that may have it.
    holders: Vec<PeerAddress>,
}

impl Route {
    pub(super) fn is_empty(&self) -> bool {
        self.owner.is_none() && self.holders.is_empty()
    }
}

/// The time for which a block waits for the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It is read ahead.
    Ahead,
    /// A batch waits for it.
    Now,
}

impl Default for Peers {
    fn default() -> Self {
        Self {
            map: watch::Sender::default(),
            is_coordinated: AtomicBool::new(false),
            links: OnceLock::new(),
            sources: watch::Sender::default(),
            wrong: Mutex::default(),
            senders: Mutex::default(),
            asking: Semaphore::new(ASKED_AT_ONCE),
            sending: Semaphore::new(SENT_AT_ONCE),
            counts: Mutex::default(),
        }
    }
}

impl Peers {
    /// Lets this process, which is worker `me`, ask others. Called at most once.
    pub(crate) fn start(&self, me: WorkerId, links: Box<dyn AskPeer>) {
        assert!(self.links.set((me, links)).is_ok(), "a process is one worker");
    }

    /// Returns whether others are asked at all.
    pub(crate) fn is_started(&self) -> bool {
        self.links.get().is_some()
    }

    /// Takes over the coordinator's map.
    pub(crate) fn set_map(&self, map: PeerMap) {
        if let Some((_, links)) = self.links.get() {
            links.keep(&map);
        }
        self.map.send_replace(Arc::new(map));
    }

    /// Notes whether the coordinator has answered the last heartbeat.
    pub(crate) fn set_coordinated(&self, is_coordinated: bool) {
        self.is_coordinated.store(is_coordinated, Relaxed);
    }

    /// Returns the version of the map.
    pub(crate) fn version(&self) -> u64 {
        self.map.borrow().version
    }

    /// Returns the number of workers in the map.
    pub(crate) fn count(&self) -> usize {
        self.map.borrow().workers.len()
    }

    /// Adds the blocks of a dataset that a rank of a session reads, for others to ask for, as long as `blocks` exists.
    pub(crate) fn add_source(&self, session: SessionId, dataset: Fingerprint, blocks: &Arc<dyn BlockSource>) {
        let source = SessionBlockSource { session, dataset, blocks: Arc::downgrade(blocks) };
        self.sources.send_modify(|sources| {
            sources.retain(|source| source.blocks.strong_count() > 0);
            sources.push(source);
        });
    }

    /// Returns the workers to ask for a block. Waits until the map knows the block's session, but no longer than `need`
    /// allows.
    pub(super) async fn route(&self, place: &BlockPlace, need: Need) -> Route {
        let (Some((me, links)), Some(peers)) = (self.links.get(), &place.peers) else { return Route::default() };
        if self.wrong.lock().contains(&place.key) {
            return Route::default();
        }
        let mut map = self.map.subscribe();
        let is_known = |map: &Arc<PeerMap>| {
            map.session(peers.session).is_some_and(|session| need == Need::Now || session.is_complete())
        };
        if self.is_coordinated.load(Relaxed) {
            let until = peers.since + if need == Need::Now { FIRST_MAP } else { OPENING };
            // After that time, even an incomplete map is better than none.
            let _ = timeout_at(until.into(), map.wait_for(is_known)).await;
        }
        let map = map.borrow_and_update().clone();
        let BlockPeers { session, plan, is_owner, .. } = peers;
        let is_asked = |peer: &PeerAddress| peer.worker != *me && links.is_usable(peer.worker);
        let planned = peers.planned(place.key.block);
        let owner = map.owner(*session, plan, planned).filter(|owner| !is_owner && is_asked(owner));
        let mut holders = map.holders(*session, plan, planned);
        holders.retain(|holder| is_asked(holder) && Some(*holder) != owner);
        Route { owner, holders }
    }

    /// Waits until fewer than the maximum number of blocks are being asked for.
    pub(super) async fn turn(&self) -> tokio::sync::SemaphorePermit<'_> {
        self.asking.acquire().await.expect("the semaphore is never closed")
    }

    /// Asks the peers of a route one after the other for ranges of a block that consists of these parts; returns `None`
    /// if no peer has them. Notifies `late` if a peer is late, and keeps waiting for it.
    pub(super) async fn ask(
        &self,
        route: &Route,
        place: &BlockPlace,
        parts: &[Range<u64>],
        wanted: &[Range<u64>],
        late: &Notify,
    ) -> Option<Pieces> {
        let ((_, links), peers) = (self.links.get()?, place.peers.as_ref()?);
        let mut request = BlockRequest {
            session: peers.session,
            dataset: place.key.dataset,
            block: place.key.block,
            parts: parts.to_vec(),
            wanted: wanted.to_vec(),
            // The owner need not fetch a whole block of which only a part is wanted.
            is_for_owner: parts == wanted,
        };
        for peer in route.owner.iter().chain(&route.holders) {
            request.is_for_owner &= Some(*peer) == route.owner;
            match links.ask(*peer, &request, late).await {
                Ok(Some(bytes)) => {
                    self.note_sender(place.key, *peer);
                    let mut counts = self.counts.lock();
                    counts.received_blocks += 1;
                    counts.received_bytes += bytes.len() as u64;
                    return Some(cut(&bytes, wanted));
                }
                Ok(None) => self.counts.lock().misses += 1,
                Err(error) => {
                    self.counts.lock().failures += 1;
                    let block = place.key.block;
                    match error {
                        QuicError::Protocol { .. } => {
                            tracing::warn!(block, %error, "a worker gives no valid answer for a block")
                        }
                        error => tracing::debug!(peer = %peer.quic, block, %error, "a peer gives no block"),
                    }
                }
            }
        }
        None
    }

    /// Counts a peer that was late, so that the store is asked, too.
    pub(super) fn note_late(&self) {
        self.counts.lock().late += 1;
    }

    pub(super) fn note_sent(&self, bytes: u64) {
        let mut counts = self.counts.lock();
        counts.sent_blocks += 1;
        counts.sent_bytes += bytes;
    }

    /// Remembers who sent a block. When there are too many, it forgets those of before: their samples were decoded long ago.
    fn note_sender(&self, key: BlockKey, peer: PeerAddress) {
        let mut senders = self.senders.lock();
        if senders.len() >= MAX_SENDERS {
            senders.clear();
        }
        senders.insert(key, peer);
    }

    /// Notes that the store has given a block.
    pub(super) fn forget_sender(&self, key: &BlockKey) {
        self.senders.lock().remove(key);
    }

    /// Notes that the bytes of a block were wrong, wherever they came from: from now on the store is asked for it. A worker that sent
    /// them is named and put aside.
    pub(super) fn note_wrong(&self, key: BlockKey) {
        let Some((_, links)) = self.links.get() else { return };
        if let Some(peer) = self.senders.lock().remove(&key) {
            tracing::warn!(address = %peer.quic, block = key.block, "a worker sent wrong bytes of a block");
            links.put_aside(peer.worker);
        }
        let mut wrong = self.wrong.lock();
        if wrong.len() < MAX_WRONG {
            wrong.insert(key);
        }
    }

    /// Returns the place of a block that another worker asks this one for as the block's owner; `None` if another
    /// worker is the owner, or no rank of the session reads the dataset here. Waits for at most `patience` for a rank
    /// that is about to attach.
    pub(super) async fn place_of_owner(
        &self,
        session: SessionId,
        key: BlockKey,
        patience: Duration,
    ) -> Option<BlockPlace> {
        let (me, _) = self.links.get()?;
        let find = |sources: &Vec<SessionBlockSource>| {
            let mut fitting =
                sources.iter().filter(|source| source.session == session && source.dataset == key.dataset);
            fitting.find_map(|source| source.blocks.upgrade())
        };
        let mut sources = self.sources.subscribe();
        let known = timeout_at((Instant::now() + patience).into(), sources.wait_for(|sources| find(sources).is_some()));
        let blocks = find(&*known.await.ok()?.ok()?)?;
        let mut place = blocks.place(key.block)?;
        let peers = place.peers.as_mut()?;
        let owner = self.map.borrow().owner(session, &peers.plan, peers.planned(key.block));
        if owner.is_some_and(|owner| owner.worker != *me) {
            return None;
        }
        peers.is_owner = true;
        Some(place)
    }

    /// Returns what was counted since the start.
    pub(crate) fn stats(&self) -> PeerStats {
        *self.counts.lock()
    }
}

/// Cuts `bytes`, which holds these ranges of the shard one after the other, into a piece for each range.
fn cut(bytes: &Bytes, ranges: &[Range<u64>]) -> Pieces {
    let mut at = 0;
    let pieces = ranges.iter().map(|range| {
        let start = at;
        at += (range.end - range.start) as usize;
        (range.start, bytes.slice(start..at))
    });
    Pieces::new(pieces.collect())
}

#[cfg(test)]
mod tests;
