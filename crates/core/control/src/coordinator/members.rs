//! Workers: membership, and the choice of each rank's home.

use crate::{
    help::HelpReport,
    messages::{FromCoordinator, Home, RankStats, Refusal, WorkerHeartbeat},
    peers::PeerStats,
};
use spdl_insight::{
    CacheStats, SlowObject, StoreStats, WorkerTotals, WorkerTotalsHistory, WorkerWindow, tuning::TuningStatus,
};
use spdl_types::{
    SessionId, StageStats, WorkerId,
    mutations::{Mutation, mutated},
};

use super::{
    Candidate, ClusterNote, ConnectionId, CoordinatorCore, MAX_WORKERS, WorkerGone, over_limit, peers::PeerNews,
    rank_state::RankState,
};

/// A worker that is alive.
#[derive(Clone, Debug)]
pub(super) struct WorkerRecord {
    pub(super) home: Home,
    pub(super) cores: f64,
    pub(super) draining: bool,
    /// When its first heartbeat arrived.
    pub(super) joined_ms: u64,
    pub(super) heard_ms: u64,
    /// The number of ranks alive that it is home to.
    pub(super) alive_ranks: u32,
    pub(super) connection: ConnectionId,
    pub(super) ranks: Vec<RankStats>,
    pub(super) stages: Vec<StageStats>,
    /// The time of `stages`, by the worker's clock.
    pub(super) uptime_ms: u64,
    /// Earlier statistics.
    pub(super) history: WorkerTotalsHistory,
    pub(super) cpu_ns: u64,
    pub(super) sending_thread_ns: u64,
    pub(super) store: StoreStats,
    pub(super) peers: PeerStats,
    pub(super) help: HelpReport,
    pub(super) cache: CacheStats,
    pub(super) slow_object: Option<Box<SlowObject>>,
    pub(super) tuning: Box<TuningStatus>,
}

impl WorkerRecord {
    fn totals(&self) -> WorkerTotals<'_> {
        WorkerTotals {
            stages: &self.stages,
            cpu_ns: self.cpu_ns,
            sending_thread_ns: self.sending_thread_ns,
            store: self.store,
            cache: self.cache,
            slow_object: self.slow_object.as_deref(),
        }
    }

    fn note(&mut self) {
        let mut history = std::mem::take(&mut self.history);
        history.note(self.uptime_ms, &self.totals());
        self.history = history;
    }

    /// Returns what the worker did in the last seconds.
    pub(super) fn window(&self) -> Option<WorkerWindow> {
        self.history.window(&self.home.name, self.cores, self.uptime_ms, &self.totals())
    }
}

impl CoordinatorCore {
    pub(super) fn on_worker_heartbeat(
        &mut self,
        connection: ConnectionId,
        heartbeat: WorkerHeartbeat,
    ) -> Result<FromCoordinator, Refusal> {
        super::limits::check_heartbeat(&heartbeat)?;
        let id = heartbeat.home.worker;
        // A worker with this address and another id is an earlier process, which is dead even if its silence was not
        // noticed yet.
        if let Some(before) = self.watch.at(heartbeat.home.quic).filter(|before| *before != id) {
            self.remove_worker(before, WorkerGone::Restarted);
        }
        match self.workers.get(&id) {
            None if self.workers.len() >= MAX_WORKERS => {
                return Err(over_limit("the number of workers", self.workers.len() + 1, MAX_WORKERS));
            }
            None => {
                let Home { name, node, quic, .. } = &heartbeat.home;
                let (worker, node, quic) = (name.clone(), node.clone(), quic.to_string());
                self.log(ClusterNote::WorkerJoined { worker, node, quic });
            }
            Some(worker) if heartbeat.draining && !worker.draining => {
                self.log(ClusterNote::WorkerDraining { worker: heartbeat.home.name.clone() });
            }
            Some(_) => {}
        }
        for bad in heartbeat.bad_samples {
            self.record_bad_sample(&heartbeat.home.name, bad);
        }
        self.history.note_worker(self.now_ms, id, &heartbeat.stages);
        let mut before = self.workers.remove(&id);
        let history = before.as_mut().map(|worker| std::mem::take(&mut worker.history));
        let served: Vec<(SessionId, u32)> = heartbeat.ranks.iter().map(|stats| (stats.session, stats.rank)).collect();
        let mut worker = WorkerRecord {
            joined_ms: before.as_ref().map_or(self.now_ms, |worker| worker.joined_ms),
            alive_ranks: before.as_ref().map_or(0, |worker| worker.alive_ranks),
            home: heartbeat.home,
            cores: heartbeat.cores,
            draining: heartbeat.draining,
            heard_ms: self.now_ms,
            connection,
            ranks: heartbeat.ranks,
            stages: heartbeat.stages,
            uptime_ms: heartbeat.uptime_ms,
            history: history.unwrap_or_default(),
            cpu_ns: heartbeat.cpu_ns,
            sending_thread_ns: heartbeat.sending_thread_ns,
            store: *heartbeat.store,
            peers: *heartbeat.peers,
            help: *heartbeat.help,
            cache: heartbeat.cache,
            slow_object: heartbeat.slow_object,
            tuning: heartbeat.tuning,
        };
        worker.note();
        if before.as_ref().is_none_or(|before| self.may_attract(before, &worker)) {
            self.watch.changed_ms = self.now_ms;
        }
        self.watch.hear(&worker, before.as_ref(), self.config.liveness_ms);
        self.workers.insert(id, worker);
        for (session, rank) in served {
            self.settle(id, session, rank);
        }
        let PeerNews { heartbeat_ms, peers } = self.peer_news(id, heartbeat.peer_map);
        let helpers = self.helper_news(id, heartbeat.help.helpers);
        Ok(FromCoordinator::WorkerAcknowledged {
            heartbeat_ms,
            liveness_ms: self.config.liveness_ms,
            trace: self.trace_order_of_worker(id),
            peers,
            helpers,
        })
    }

    /// Returns whether a worker may have become a better home than it was (`before`) for another reason than its load.
    fn may_attract(&self, before: &WorkerRecord, worker: &WorkerRecord) -> bool {
        let is_same = before.draining == worker.draining
            && before.cores.total_cmp(&worker.cores).is_eq()
            && before.home.node == worker.home.node;
        !is_same || !self.is_punctual(before)
    }

    /// Keeps a rank at the worker that reports serving it, after a restart of the coordinator.
    fn settle(&mut self, worker: WorkerId, session: SessionId, rank: u32) {
        let found = self.sessions.get_mut(&session).and_then(|session| session.ranks.get_mut(&rank));
        if let Some(found) = found.filter(|rank| rank.is_settling && rank.home.is_none()) {
            found.home = Some(worker);
            found.last_home = Some(self.workers[&worker].home.name.clone());
            found.looked_ms = self.now_ms;
            found.home_since_ms = self.now_ms;
            found.is_settling = false;
            self.home_changes += 1;
            self.count_rank(session, rank);
        }
    }

    /// Removes a worker that is no longer heard.
    pub(super) fn remove_silent_worker(&mut self, id: WorkerId, cause: WorkerGone) {
        if !mutated(Mutation::DeadHome) {
            self.remove_worker(id, cause);
        }
    }

    pub(super) fn remove_worker(&mut self, id: WorkerId, cause: WorkerGone) {
        let Some(worker) = self.workers.remove(&id) else { return };
        self.watch.leave(&worker);
        self.watch.changed_ms = self.now_ms;
        let mut homeless = 0;
        for rank in self.sessions.values_mut().flat_map(|session| session.ranks.values_mut()) {
            if rank.home == Some(id) {
                rank.home = None;
                homeless += u32::from(!rank.left);
            }
            rank.counted_at = rank.counted_at.filter(|at| *at != id);
            rank.homes_before.retain(|before| *before != id);
            rank.unreachable.remove(&id);
        }
        self.home_changes += 1;
        self.log(ClusterNote::WorkerGone { worker: worker.home.name, cause, homeless });
    }

    /// Returns the rank's home: the current one, unless it is dead, draining or unreachable, or there is a better one.
    pub(super) fn place(&mut self, session: SessionId, rank: u32) -> Option<Home> {
        let state = &self.sessions[&session].ranks[&rank];
        let current = state.home.filter(|id| self.workers.contains_key(id));
        if let Some(home) = current.filter(|_| mutated(Mutation::DeadHome)) {
            return Some(self.workers[&home].home.clone());
        }
        let is_compared = self.is_compared(state);
        let choice = match current.filter(|id| !self.workers[id].draining && self.is_within_reach(state, *id)) {
            // Not at every heartbeat: the comparison visits all workers.
            Some(home) if !self.is_due(state.looked_ms) => return Some(self.workers[&home].home.clone()),
            Some(home) if is_compared => Some(home),
            Some(home) => self.better(state, home).or(Some(home)),
            None if state.is_settling && self.now_ms <= self.started_ms + self.config.liveness_ms => return None,
            None => {
                let near = self.candidates(|id, _| self.is_within_reach(state, id));
                // An unreachable worker is better than none: the fault may pass, and the rank keeps trying.
                let choice = self.placement.choose(&state.node, &near).or(current);
                choice.or_else(|| self.placement.choose(&state.node, &self.candidates(|_, _| true)))
            }
        };
        let now_ms = self.now_ms;
        let state = self.sessions.get_mut(&session).and_then(|session| session.ranks.get_mut(&rank));
        let state = state.expect("it was found above");
        if !is_compared {
            // If a worker was out of reach, not all workers were compared.
            state.compared_ms = Some(now_ms).filter(|_| state.unreachable.is_empty());
        }
        if state.home != choice {
            state.leave_home();
            state.home = choice;
            state.home_since_ms = now_ms;
            self.home_changes += 1;
        }
        state.looked_ms = now_ms;
        state.is_settling = false;
        self.count_rank(session, rank);
        let state = self.sessions.get_mut(&session).and_then(|session| session.ranks.get_mut(&rank));
        let state = state.expect("it was found above");
        let home = choice.map(|id| self.workers[&id].home.clone())?;
        let before = state.last_home.replace(home.name.clone()).filter(|before| *before != home.name);
        if let Some(before) = before {
            self.log(ClusterNote::RankMoved { rank, session, home: home.name.clone(), before });
        }
        Some(home)
    }

    /// Returns a better home than `current` that has been present for long enough. A worker whose heartbeats are overdue may
    /// be dead: it looks idle, as its ranks have left it, but is no reason to move.
    fn better(&self, rank: &RankState, current: WorkerId) -> Option<WorkerId> {
        let is_there = |id: WorkerId, worker: &WorkerRecord| {
            self.is_due(worker.joined_ms) && self.is_punctual(worker) && self.is_within_reach(rank, id)
        };
        let candidates = self.candidates(|id, worker| id == current || is_there(id, worker));
        self.placement.better(&rank.node, current, &candidates)
    }

    fn is_punctual(&self, worker: &WorkerRecord) -> bool {
        self.now_ms <= worker.heard_ms + 2 * self.config.heartbeat_ms
    }

    /// Returns whether a state that began at `since_ms` has lasted long enough to move a rank.
    fn is_due(&self, since_ms: u64) -> bool {
        self.now_ms.saturating_sub(since_ms) >= self.config.move_ms
    }

    fn is_within_reach(&self, rank: &RankState, worker: WorkerId) -> bool {
        rank.unreachable.get(&worker).is_none_or(|until_ms| *until_ms <= self.now_ms)
    }

    /// Lists the wanted workers that accept ranks, each with its number of ranks alive.
    fn candidates(&self, is_wanted: impl Fn(WorkerId, &WorkerRecord) -> bool) -> Vec<Candidate<'_>> {
        let is_for_ranks = |worker: &WorkerRecord| !worker.help.is_helper_only || mutated(Mutation::PlaceAtHelper);
        let accepts = |worker: &WorkerRecord| !worker.draining && is_for_ranks(worker);
        let accept = self.workers.iter().filter(|(id, worker)| accepts(worker) && is_wanted(**id, worker));
        accept
            .map(|(id, WorkerRecord { home, cores, alive_ranks, .. })| Candidate {
                worker: *id,
                node: &home.node,
                cores: *cores,
                ranks: *alive_ranks,
            })
            .collect()
    }
}
