//! Counts the ranks of each worker, and knows when each peer would have been silent for too long. Events keep both up
//! to date, so that a heartbeat does not have to visit all ranks or all workers.
//!
//! A rank counts at its home while it is alive. It can die without an event, so a rank that counts is watched: it is
//! checked when its liveness timeout would end, and checked again later if it was heard meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use spdl_types::{SessionId, WorkerId};

#[cfg(test)]
use super::session::SessionState;
use super::{ConnectionId, CoordinatorCore, WorkerGone, members::WorkerRecord, rank_state::RankState};

/// The workers by address and by connection, and when to check for silent peers.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    /// The worker of each address.
    addresses: BTreeMap<SocketAddr, WorkerId>,
    connections: BTreeSet<(ConnectionId, WorkerId)>,
    /// Until this time, in milliseconds, no worker can have been silent for too long.
    workers_until_ms: u64,
    /// When to check each rank that counts at a home, or did so at its last check.
    ranks: BTreeSet<(u64, SessionId, u32)>,
    /// When something last changed that could give a rank a better home.
    pub(super) changed_ms: u64,
}

impl Default for Watch {
    fn default() -> Self {
        let (addresses, connections, ranks) = Default::default();
        Self { addresses, connections, workers_until_ms: u64::MAX, ranks, changed_ms: 0 }
    }
}

impl Watch {
    /// Watches a worker whose heartbeat has just arrived; `before` is its previous record.
    pub(super) fn hear(&mut self, worker: &WorkerRecord, before: Option<&WorkerRecord>, liveness_ms: u64) {
        if let Some(before) = before {
            self.leave(before);
        }
        self.addresses.insert(worker.home.quic, worker.home.worker);
        self.connections.insert((worker.connection, worker.home.worker));
        self.workers_until_ms = self.workers_until_ms.min(worker.heard_ms + liveness_ms);
    }

    /// Forgets a worker that is gone.
    pub(super) fn leave(&mut self, worker: &WorkerRecord) {
        self.connections.remove(&(worker.connection, worker.home.worker));
        if self.at(worker.home.quic) == Some(worker.home.worker) {
            self.addresses.remove(&worker.home.quic);
        }
    }

    /// Returns the worker with this address.
    pub(super) fn at(&self, address: SocketAddr) -> Option<WorkerId> {
        self.addresses.get(&address).copied()
    }

    /// Returns the workers that were last heard over this connection.
    pub(super) fn over(&self, connection: ConnectionId) -> Vec<WorkerId> {
        let workers = self.connections.range((connection, WorkerId(0))..=(connection, WorkerId(u64::MAX)));
        workers.map(|(_, worker)| *worker).collect()
    }
}

impl CoordinatorCore {
    /// Counts a rank at its home after a change of the home, or after the rank was heard of or has left.
    pub(super) fn count_rank(&mut self, session: SessionId, rank: u32) {
        let Some(found) = self.sessions.get_mut(&session).and_then(|found| found.ranks.get_mut(&rank)) else { return };
        let liveness_ms = self.config.liveness_ms;
        let is_alive = found.is_alive(self.now_ms, liveness_ms);
        let home = found.home.filter(|home| is_alive && self.workers.contains_key(home));
        let before = std::mem::replace(&mut found.counted_at, home);
        if home.is_some() && !found.is_watched {
            found.is_watched = true;
            self.watch.ranks.insert((found.heard_ms + liveness_ms + 1, session, rank));
        }
        if before != home {
            self.uncount(before);
            if let Some(worker) = home.and_then(|home| self.workers.get_mut(&home)) {
                worker.alive_ranks += 1;
                self.watch.changed_ms = self.now_ms;
            }
        }
    }

    /// Stops counting the ranks of a session, which have no homes any more.
    pub(super) fn uncount_session(&mut self, session: SessionId) {
        let ranks = self.sessions.get_mut(&session).into_iter().flat_map(|found| found.ranks.values_mut());
        let counted: Vec<WorkerId> = ranks.filter_map(|rank| rank.counted_at.take()).collect();
        counted.into_iter().for_each(|worker| self.uncount(Some(worker)));
    }

    fn uncount(&mut self, worker: Option<WorkerId>) {
        if let Some(worker) = worker.and_then(|worker| self.workers.get_mut(&worker)) {
            worker.alive_ranks -= 1;
            self.watch.changed_ms = self.now_ms;
        }
    }

    /// Stops counting ranks that have been silent for too long, and removes workers that have been.
    pub(super) fn end_silent(&mut self) {
        while let Some(&(due_ms, session, rank)) =
            self.watch.ranks.first().filter(|(due_ms, ..)| *due_ms <= self.now_ms)
        {
            self.watch.ranks.remove(&(due_ms, session, rank));
            let found = self.sessions.get_mut(&session).and_then(|found| found.ranks.get_mut(&rank));
            if let Some(found) = found {
                found.is_watched = false;
                self.count_rank(session, rank);
            }
        }
        let (now_ms, liveness_ms) = (self.now_ms, self.config.liveness_ms);
        if now_ms <= self.watch.workers_until_ms {
            return;
        }
        let is_silent = |worker: &WorkerRecord| now_ms.saturating_sub(worker.heard_ms) > liveness_ms;
        let silent: Vec<WorkerId> =
            self.workers.iter().filter(|(_, worker)| is_silent(worker)).map(|(id, _)| *id).collect();
        for worker in silent {
            self.remove_silent_worker(worker, WorkerGone::Silent { liveness_ms });
        }
        let heard_ms = self.workers.values().map(|worker| worker.heard_ms).min();
        self.watch.workers_until_ms = heard_ms.map_or(u64::MAX, |heard_ms| heard_ms + liveness_ms);
    }

    /// Returns whether the last comparison of a rank's home with others still holds: since then, nothing has changed
    /// that could give the rank a better home, and no worker has become old enough for ranks to move to it.
    pub(super) fn is_compared(&self, rank: &RankState) -> bool {
        let is_since = |compared_ms| compared_ms > self.watch.changed_ms + self.config.move_ms;
        rank.unreachable.is_empty() && rank.compared_ms.is_some_and(is_since)
    }

    /// Returns whether the next record of each session would have the current state of its ranks.
    #[cfg(test)]
    pub(super) fn records_all(&self) -> bool {
        self.sessions.values().all(SessionState::records_all)
    }

    /// Returns for each worker the number of ranks that count at it, and the number found by visiting all ranks.
    #[cfg(test)]
    pub(super) fn recount(&self) -> Vec<(WorkerId, u32, u32)> {
        let ranks = || self.sessions.values().filter(|session| session.superseded_by.is_none());
        let alive = || ranks().flat_map(|session| session.ranks.values());
        let is_at = |rank: &RankState, id: WorkerId| {
            rank.home == Some(id) && rank.is_alive(self.now_ms, self.config.liveness_ms)
        };
        let count = |id: WorkerId| alive().filter(|rank| is_at(rank, id)).count() as u32;
        self.workers.iter().map(|(id, worker)| (*id, worker.alive_ranks, count(*id))).collect()
    }
}
