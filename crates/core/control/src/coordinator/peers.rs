//! Makes the map from which a worker learns which workers read the same blocks: the homes in its ranks' sessions.

use std::collections::{BTreeMap, BTreeSet};

use crate::peers::{PeerAddress, PeerMap, Readers, SessionReaders};
use spdl_types::{
    SessionId, WorkerId,
    mix::splitmix64,
    mutations::{Mutation, mutated},
};

use super::{
    CoordinatorCore,
    rank_state::RankState,
    session::{Homes, ListedHomes, SessionState},
};

/// The least time between two listings of a session's homes, in milliseconds: the ranks of a launch join one by one.
const REFRESH_MS: u64 = 100;
/// How long after the opening of a session its workers send frequent heartbeats, in milliseconds, unless all its ranks
/// have homes earlier. A block that they fetch without a complete map may be fetched twice.
const OPENING_MS: u64 = 5_000;
/// The least interval of frequent heartbeats, in milliseconds. With more than 50 workers, it is 1 ms for each worker.
const OPENING_HEARTBEAT_MS: u64 = 50;
/// The number of earlier sessions of a run whose homes are listed.
const EARLIER_SESSIONS: usize = 2;

/// The part of the reply to a worker's heartbeat that depends on other workers.
pub(super) struct PeerNews {
    /// When to send the next heartbeat.
    pub(super) heartbeat_ms: u64,
    /// The map, if the worker has another version.
    pub(super) peers: Option<Box<PeerMap>>,
}

impl CoordinatorCore {
    /// Returns the news for a worker that has version `known` of the map.
    pub(super) fn peer_news(&mut self, worker: WorkerId, known: u64) -> PeerNews {
        let served = self.workers[&worker].ranks.iter().map(|rank| rank.session);
        let is_newest = |id: &SessionId| self.sessions.get(id).is_some_and(|session| session.superseded_by.is_none());
        let sessions: BTreeSet<SessionId> = served.filter(is_newest).collect();
        let (mut version, mut is_opening) = (0, false);
        for id in &sessions {
            self.list_homes(*id);
            let session = &self.sessions[id];
            let listed = session.listed_homes.as_ref().expect("it has just been listed");
            version = splitmix64(version ^ listed.version).max(1);
            is_opening |= !listed.is_complete && self.now_ms < session.opened_ms + OPENING_MS;
        }
        let opening_ms = OPENING_HEARTBEAT_MS.max(self.workers.len() as u64);
        let heartbeat_ms = if is_opening { opening_ms.min(self.config.heartbeat_ms) } else { self.config.heartbeat_ms };
        let is_known = version == known || (mutated(Mutation::OldMap) && known != 0);
        let peers = (!is_known).then(|| Box::new(self.shared_map(version, &sessions)));
        PeerNews { heartbeat_ms, peers }
    }

    /// Lists the homes of a session, if they may have changed.
    fn list_homes(&mut self, id: SessionId) {
        let session = &self.sessions[&id];
        let (now_ms, changes) = (self.now_ms, self.home_changes);
        let is_new = |listed: &ListedHomes| {
            listed.changes == changes || now_ms < listed.listed_ms + REFRESH_MS || mutated(Mutation::OldHomes)
        };
        if session.listed_homes.as_ref().is_some_and(is_new) {
            return;
        }
        let before = |rank: &RankState| rank.homes_before.first().copied();
        let runs = &self.jobs[&session.job].runs;
        let earlier = runs[&session.run].sessions.iter().rev().filter(|earlier| **earlier < id);
        let earlier = earlier.take(EARLIER_SESSIONS).map(|earlier| self.homes(&self.sessions[earlier], before));
        let now = self.homes(session, |rank| rank.home);
        let is_complete = now.workers.iter().all(Option::is_some);
        let is_known = |homes: &Homes| homes.workers.iter().any(Option::is_some);
        let before = [self.homes(session, before)].into_iter().chain(earlier).filter(is_known);
        let homes: Vec<Homes> = [now].into_iter().chain(before).collect();
        let version = homes.iter().fold(splitmix64(id.0), |version, homes| homes.fold(version));
        let session = self.sessions.get_mut(&id).expect("it was found above");
        session.listed_homes = Some(ListedHomes { changes, listed_ms: now_ms, version, homes, is_complete, map: None });
    }

    fn homes(&self, session: &SessionState, of: impl Fn(&RankState) -> Option<WorkerId>) -> Homes {
        let mut workers = vec![None; session.world as usize];
        for (rank, state) in &session.ranks {
            if let Some(home) = workers.get_mut(*rank as usize) {
                *home = of(state).filter(|worker| self.workers.contains_key(worker));
            }
        }
        Homes { world: session.world, global_batch: session.global_batch, workers }
    }

    /// Returns the map for a worker that serves these sessions. Workers that serve the same single session share one
    /// map.
    fn shared_map(&mut self, version: u64, sessions: &BTreeSet<SessionId>) -> PeerMap {
        let only = sessions.first().filter(|_| sessions.len() == 1);
        let listed = only.and_then(|id| self.sessions.get(id)?.listed_homes.as_ref());
        if let Some(map) = listed.and_then(|listed| listed.map.as_ref()) {
            return map.clone();
        }
        let map = self.peer_map(version, sessions);
        let listed = only.and_then(|id| self.sessions.get_mut(id)?.listed_homes.as_mut());
        if let Some(listed) = listed {
            listed.map = Some(map.clone());
        }
        map
    }

    fn peer_map(&self, version: u64, sessions: &BTreeSet<SessionId>) -> PeerMap {
        let mut numbers = BTreeMap::new();
        let mut workers = Vec::new();
        let mut readers = |homes: &Homes| {
            let mut number = |worker: WorkerId| {
                let quic = self.workers.get(&worker)?.home.quic;
                Some(*numbers.entry(worker).or_insert_with(|| {
                    workers.push(PeerAddress { worker, quic });
                    // It fits: there are at most 10,000 workers.
                    (workers.len() - 1) as u16
                }))
            };
            let homes_of_ranks = homes.workers.iter().map(|worker| number((*worker)?)).collect();
            Readers { world: homes.world, global_batch: homes.global_batch, homes: homes_of_ranks }
        };
        let listed = |id: &SessionId| Some((*id, self.sessions[id].listed_homes.as_ref()?));
        let sessions = sessions.iter().filter_map(listed).map(|(session, listed)| {
            let mut all = listed.homes.iter().map(&mut readers);
            let now = all.next().expect("the homes of now are listed");
            SessionReaders { session, now, before: all.collect() }
        });
        let sessions = sessions.collect();
        PeerMap { version, workers, sessions }
    }
}

impl Homes {
    fn fold(&self, version: u64) -> u64 {
        let head = [u64::from(self.world), self.global_batch.into()].into_iter();
        let workers = self.workers.iter().map(|worker| worker.map_or(0, |worker| worker.0));
        head.chain(workers).fold(version, |version, word| splitmix64(version ^ splitmix64(word)))
    }
}
