//! The requests between workers, and the map that shows which worker holds a block. The map is small because it lists
//! only homes: from it and the plan, each worker computes which worker to ask for a block.

use std::{net::SocketAddr, ops::Range};

use serde::{Deserialize, Serialize};

use spdl_order::Plan;
use spdl_types::{Fingerprint, SessionId, WorkerId};

/// The current and earlier homes of the ranks of sessions. The map lists no blocks: the plan determines which rank
/// reads a block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMap {
    /// Identifies the content; 0 if the map is empty.
    pub version: u64,
    /// The workers that are alive, each once.
    pub workers: Vec<PeerAddress>,
    /// The sessions.
    pub sessions: Vec<SessionReaders>,
}

/// How other workers reach a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PeerAddress {
    /// The worker process.
    pub worker: WorkerId,
    /// Its QUIC address.
    pub quic: SocketAddr,
}

/// The workers that read the blocks of a session now, and those that read them earlier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionReaders {
    /// The session.
    pub session: SessionId,
    /// The homes of its ranks.
    pub now: Readers,
    /// Homes that its ranks had before, and those of earlier sessions of the run, the latest first.
    pub before: Vec<Readers>,
}

/// The homes of all ranks at one world size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readers {
    /// W, the number of ranks.
    pub world: u32,
    /// B, the number of samples per step over all ranks.
    pub global_batch: u32,
    /// For each rank the index of its home in the map's list of workers; `None` if it has no home that is alive.
    pub homes: Vec<Option<u16>>,
}

impl PeerMap {
    /// Returns the readers of a session, if the map has it.
    #[must_use]
    pub fn session(&self, session: SessionId) -> Option<&SessionReaders> {
        self.sessions.iter().find(|readers| readers.session == session)
    }

    /// Returns the worker that fetches block `block` of a session's plan from the store, for itself and for the workers
    /// that request it. All workers with this map compute the same owner. Returns `None` if the block has no owner at
    /// the moment.
    #[must_use]
    pub fn owner(&self, session: SessionId, plan: &Plan, block: u32) -> Option<PeerAddress> {
        self.home(&self.session(session)?.now, plan, block)
    }

    /// Returns the earlier owners of the block, which may still hold it: the most likely first, each once.
    #[must_use]
    pub fn holders(&self, session: SessionId, plan: &Plan, block: u32) -> Vec<PeerAddress> {
        let mut holders = Vec::new();
        for readers in self.session(session).map_or(&[][..], |readers| &readers.before) {
            let holder = self.home(readers, plan, block);
            holders.extend(holder.filter(|holder| !holders.contains(holder)));
        }
        holders
    }

    fn home(&self, readers: &Readers, plan: &Plan, block: u32) -> Option<PeerAddress> {
        let rank = plan.owner(block, readers.global_batch, readers.world)?;
        let home = (*readers.homes.get(rank as usize)?)?;
        self.workers.get(usize::from(home)).copied()
    }
}

impl SessionReaders {
    /// Returns whether every rank of the session has a home.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.now.homes.iter().all(Option::is_some)
    }
}

/// A request for bytes of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRequest {
    /// The session whose plan determines the block's owner.
    pub session: SessionId,
    /// Identifies the dataset in caches.
    pub dataset: Fingerprint,
    /// Number of the block in the manifest.
    pub block: u32,
    /// The byte ranges of the shard that the block consists of.
    pub parts: Vec<Range<u64>>,
    /// The wanted ranges, each within a part.
    pub wanted: Vec<Range<u64>>,
    /// Whether the receiver owns the block, and so fetches it if it does not have it.
    pub is_for_owner: bool,
}

/// A reply to a [`BlockRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockReply {
    /// The worker is fetching the block; another reply follows.
    Fetching,
    /// The wanted ranges follow as raw bytes, one after the other.
    Block,
    /// The worker does not have the block, and does not fetch it.
    Missing,
}

spdl_insight::counts! {
    /// Counts what a worker exchanged with other workers since it started.
    PeerStats {
        /// Blocks, or parts of blocks, that came from other workers.
        received_blocks: Total = "spdl_worker_peer_received_blocks", "Blocks, or parts of them, from other workers";
        /// Their bytes.
        received_bytes: Total = "spdl_worker_peer_received_bytes", "Bytes of blocks from other workers";
        /// Blocks, or parts of blocks, that were sent to other workers.
        sent_blocks: Total = "spdl_worker_peer_sent_blocks", "Blocks, or parts of them, sent to other workers";
        /// Their bytes.
        sent_bytes: Total = "spdl_worker_peer_sent_bytes", "Bytes of blocks sent to other workers";
        /// Requests to workers that did not have the block.
        misses: Total = "spdl_worker_peer_misses", "Requests to workers that did not have the block";
        /// Requests to workers that could not be reached, or whose answer broke off.
        failures: Total = "spdl_worker_peer_failures", "Requests to workers that failed";
        /// Requests whose reply was late, so that the block was requested from the store as well.
        late: Total = "spdl_worker_peer_late", "Requests to workers that were late, so that the store was asked, too";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spdl_order::OrderParams;

    fn address(worker: u64) -> PeerAddress {
        PeerAddress { worker: WorkerId(worker), quic: ([10, 0, 0, worker as u8], 1).into() }
    }

    fn readers(homes: &[Option<u16>]) -> Readers {
        Readers { world: homes.len() as u32, global_batch: 24, homes: homes.to_vec() }
    }

    #[test]
    fn a_block_has_one_owner_and_its_holders_are_those_of_before_each_once() {
        let plan = Plan::new(&[10; 64], 3, OrderParams { version: 1, lanes: 8, window: 10, shuffle: true }).unwrap();
        let (before, elsewhere) = (readers(&[Some(1), Some(1)]), readers(&[None, Some(0), None]));
        let session = SessionReaders {
            session: SessionId(7),
            now: readers(&[Some(0), Some(1), None]),
            before: vec![before.clone(), before, elsewhere],
        };
        assert!(!session.is_complete());
        let map = PeerMap { version: 1, workers: vec![address(5), address(6)], sessions: vec![session] };
        let mut owned = [0; 3];
        for block in 0..64 {
            let rank = plan.owner(block, 24, 3).unwrap();
            owned[rank as usize] += 1;
            let owner = [Some(address(5)), Some(address(6)), None][rank as usize];
            assert_eq!(map.owner(SessionId(7), &plan, block), owner);
            let expected = if rank == 1 { vec![address(6), address(5)] } else { vec![address(6)] };
            assert_eq!(map.holders(SessionId(7), &plan, block), expected);
        }
        assert!(owned.iter().all(|blocks| *blocks > 10), "{owned:?}");
        assert_eq!(map.owner(SessionId(8), &plan, 0), None);
        assert!(map.holders(SessionId(8), &plan, 0).is_empty());
    }

    #[test]
    fn a_map_that_contradicts_itself_names_nobody() {
        let plan = Plan::new(&[10; 64], 3, OrderParams { version: 1, lanes: 8, window: 10, shuffle: true }).unwrap();
        let readers = [
            readers(&[Some(9); 3]),
            Readers { homes: Vec::new(), ..readers(&[None; 3]) },
            Readers { world: 0, ..readers(&[None]) },
        ];
        for now in readers {
            let sessions = vec![SessionReaders { session: SessionId(1), now, before: Vec::new() }];
            let map = PeerMap { version: 1, workers: vec![address(1)], sessions };
            assert_eq!(map.owner(SessionId(1), &plan, 3), None);
        }
    }
}
