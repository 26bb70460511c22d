//! Workers: membership, and the choice of each rank's home.

use crate::{
    insight::{WorkerHistory, WorkerTotals, WorkerWindow},
    messages::{
        CacheStats, FromCoordinator, Home, RankStats, Refusal, SessionId, SlowObject, StageStats, StoreStats,
        WorkerHeartbeat, WorkerId,
    },
    mutations::{Mutation, mutated},
    tuning::TuningStatus,
};

use super::{
    Candidate, ClusterNote, ConnectionId, CoordinatorCore, MAX_WORKERS, WorkerGone, over_limit, session::RankState,
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
    pub(super) connection: ConnectionId,
    pub(super) ranks: Vec<RankStats>,
    pub(super) stages: Vec<StageStats>,
    /// The time of `stages`, by the worker's clock.
    pub(super) uptime_ms: u64,
    /// Earlier statistics.
    pub(super) history: WorkerHistory,
    pub(super) cpu_ns: u64,
    pub(super) store: StoreStats,
    pub(super) cache: CacheStats,
    pub(super) slow_object: Option<Box<SlowObject>>,
    pub(super) tuning: Box<TuningStatus>,
}

impl WorkerRecord {
    fn totals(&self) -> WorkerTotals<'_> {
        WorkerTotals {
            stages: &self.stages,
            cpu_ns: self.cpu_ns,
            store: self.store,
            cache: self.cache,
            slow_object: self.slow_object.as_deref(),
        }
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
        self.remove_predecessors(&heartbeat.home);
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
        for stats in &heartbeat.ranks {
            self.settle(id, &heartbeat.home.name, stats.session, stats.rank);
        }
        for bad in heartbeat.bad_samples {
            self.record_bad_sample(&heartbeat.home.name, bad);
        }
        let joined_ms = self.workers.get(&id).map_or(self.now_ms, |worker| worker.joined_ms);
        let mut history =
            self.workers.get_mut(&id).map(|worker| std::mem::take(&mut worker.history)).unwrap_or_default();
        self.history.note_worker(self.now_ms, id, &heartbeat.stages);
        let mut worker = WorkerRecord {
            joined_ms,
            home: heartbeat.home,
            cores: heartbeat.cores,
            draining: heartbeat.draining,
            heard_ms: self.now_ms,
            connection,
            ranks: heartbeat.ranks,
            stages: heartbeat.stages,
            uptime_ms: heartbeat.uptime_ms,
            history: WorkerHistory::default(),
            cpu_ns: heartbeat.cpu_ns,
            store: *heartbeat.store,
            cache: heartbeat.cache,
            slow_object: heartbeat.slow_object,
            tuning: heartbeat.tuning,
        };
        history.note(worker.uptime_ms, &worker.totals());
        worker.history = history;
        self.workers.insert(id, worker);
        Ok(FromCoordinator::WorkerAcknowledged {
            heartbeat_ms: self.config.heartbeat_ms,
            liveness_ms: self.config.liveness_ms,
            trace: self.trace_order_of_worker(id),
        })
    }

    /// Removes workers with the same address as `home`: they are earlier processes of that worker, and dead even if
    /// their silence was not noticed yet.
    fn remove_predecessors(&mut self, home: &Home) {
        let before: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(id, worker)| **id != home.worker && worker.home.quic == home.quic)
            .map(|(id, _)| *id)
            .collect();
        for worker in before {
            self.remove_worker(worker, WorkerGone::Restarted);
        }
    }

    /// Keeps a rank at the worker that reports serving it, after a restart of the coordinator.
    fn settle(&mut self, worker: WorkerId, name: &str, session: SessionId, rank: u32) {
        let rank = self.sessions.get_mut(&session).and_then(|session| session.ranks.get_mut(&rank));
        if let Some(rank) = rank.filter(|rank| rank.is_settling && rank.home.is_none()) {
            rank.home = Some(worker);
            rank.last_home = Some(name.to_owned());
            rank.looked_ms = self.now_ms;
            rank.is_settling = false;
        }
    }

    pub(super) fn remove_worker(&mut self, id: WorkerId, cause: WorkerGone) {
        let Some(worker) = self.workers.remove(&id) else { return };
        let mut homeless = 0;
        for rank in self.sessions.values_mut().flat_map(|session| session.ranks.values_mut()) {
            if rank.home == Some(id) {
                rank.home = None;
                homeless += u32::from(!rank.left);
            }
            rank.unreachable.remove(&id);
        }
        self.log(ClusterNote::WorkerGone { worker: worker.home.name, cause, homeless });
    }

    /// Returns the rank's home: the current one, unless it is dead, draining or unreachable, or there is a better one.
    pub(super) fn place(&mut self, session: SessionId, rank: u32) -> Option<Home> {
        let state = &self.sessions[&session].ranks[&rank];
        let current = state.home.filter(|id| self.workers.contains_key(id));
        if let Some(home) = current.filter(|_| mutated(Mutation::DeadHome)) {
            return Some(self.workers[&home].home.clone());
        }
        let choice = match current.filter(|id| !self.workers[id].draining && self.is_within_reach(state, *id)) {
            // Not at every heartbeat: the comparison visits all ranks.
            Some(home) if !self.is_due(state.looked_ms) => return Some(self.workers[&home].home.clone()),
            Some(home) => self.better(state, home).or(Some(home)),
            None if state.is_settling && self.now_ms <= self.started_ms + self.config.liveness_ms => return None,
            None => {
                let all = self.candidates();
                let near: Vec<Candidate<'_>> =
                    all.iter().filter(|c| self.is_within_reach(state, c.worker)).cloned().collect();
                // An unreachable worker is better than none: the fault may pass, and the rank keeps trying.
                let choice = self.placement.choose(&state.node, &near).or(current);
                choice.or_else(|| self.placement.choose(&state.node, &all))
            }
        };
        let now_ms = self.now_ms;
        let state = self.sessions.get_mut(&session).and_then(|session| session.ranks.get_mut(&rank));
        let state = state.expect("it was found above");
        state.home = choice;
        state.looked_ms = now_ms;
        state.is_settling = false;
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
        let is_punctual = |worker: &WorkerRecord| self.now_ms <= worker.heard_ms + 2 * self.config.heartbeat_ms;
        let is_there = |id: WorkerId| {
            let worker = &self.workers[&id];
            self.is_due(worker.joined_ms) && is_punctual(worker) && self.is_within_reach(rank, id)
        };
        let candidates = self.candidates().into_iter().filter(|c| c.worker == current || is_there(c.worker));
        let candidates: Vec<Candidate<'_>> = candidates.collect();
        self.placement.better(&rank.node, current, &candidates)
    }

    /// Returns whether a state that began at `since_ms` has lasted long enough to move a rank.
    fn is_due(&self, since_ms: u64) -> bool {
        self.now_ms.saturating_sub(since_ms) >= self.config.move_ms
    }

    fn is_within_reach(&self, rank: &RankState, worker: WorkerId) -> bool {
        rank.unreachable.get(&worker).is_none_or(|until_ms| *until_ms <= self.now_ms)
    }

    /// Lists the workers that accept ranks, with the number of ranks of each.
    fn candidates(&self) -> Vec<Candidate<'_>> {
        let mut candidates: Vec<Candidate<'_>> = self
            .workers
            .iter()
            .filter(|(_, worker)| !worker.draining)
            .map(|(id, worker)| Candidate { worker: *id, node: &worker.home.node, cores: worker.cores, ranks: 0 })
            .collect();
        let alive = self
            .sessions
            .values()
            .filter(|session| session.superseded_by.is_none())
            .flat_map(|session| session.ranks.values())
            .filter(|rank| rank.is_alive(self.now_ms, self.config.liveness_ms));
        for home in alive.filter_map(|rank| rank.home) {
            if let Ok(at) = candidates.binary_search_by_key(&home, |candidate| candidate.worker) {
                candidates[at].ranks += 1;
            }
        }
        candidates
    }
}
