//! One session: the ranks of one launch of a trainer on a run of a job, what they have acknowledged and which workers
//! serve them.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    messages::{Holder, Join, Refusal, RunName, Start, StartReason},
    peers::PeerMap,
};
use spdl_job::Job;
use spdl_types::{
    Fingerprint, Position, SessionId, WorkerId,
    mutations::{Mutation, mutated},
};

use super::{
    effect::{RankRecord, SessionRecord, Successor},
    rank_state::RankState,
};

/// A session as the coordinator tracks it.
#[derive(Clone, Debug)]
pub(super) struct SessionState {
    pub(super) id: SessionId,
    pub(super) job: String,
    pub(super) run: String,
    pub(super) world: u32,
    pub(super) global_batch: u32,
    /// The number of epochs of the run, from this session on.
    pub(super) epochs: u64,
    pub(super) start: Position,
    pub(super) reason: StartReason,
    /// The id of the launch.
    pub(super) launch: Option<String>,
    /// Whether the launch asked to take over.
    pub(super) is_takeover: bool,
    /// The session that this one replaces, after the coordinator had lost that session.
    pub(super) replaces: Option<SessionId>,
    pub(super) superseded_by: Option<Successor>,
    /// Whether the run was reset since: no launch resumes from this session.
    pub(super) is_reset: bool,
    /// Whether the job has other stages or redactions since. A rank that was only silent meanwhile has the old ones, and must not go on with them.
    pub(super) is_outdated: bool,
    pub(super) ranks: BTreeMap<u32, RankState>,
    /// When it was opened, or restored.
    pub(super) opened_ms: u64,
    /// Whether it was restored, from the durable state.
    pub(super) is_restored: bool,
    /// Whether ranks may have joined it of which the coordinator has lost the record.
    pub(super) may_lack_ranks: bool,
    /// The homes of its ranks, for the workers.
    pub(super) listed_homes: Option<ListedHomes>,
    /// Until this time, in milliseconds, no rank is late, except for ranks that have left.
    pub(super) punctual_until_ms: Cell<u64>,
    /// The ranks as they were in the last record, in order.
    pub(super) recorded: Vec<Arc<RankRecord>>,
    /// The ranks that have changed since the last record.
    pub(super) changed: BTreeSet<u32>,
    /// Whether the durable state is older than this one.
    pub(super) dirty: bool,
    pub(super) persisted_ms: u64,
}

/// The current and earlier homes of a session's ranks, as they were listed last.
#[derive(Clone, Debug)]
pub(super) struct ListedHomes {
    /// The number of changes of homes before the listing.
    pub(super) changes: u64,
    pub(super) listed_ms: u64,
    pub(super) version: u64,
    /// The current homes first, then the earlier ones.
    pub(super) homes: Vec<Homes>,
    pub(super) is_complete: bool,
    /// The map for workers that serve only this session, once it was made.
    pub(super) map: Option<PeerMap>,
}

/// For each rank its worker, if that is alive.
#[derive(Clone, Debug)]
pub(super) struct Homes {
    pub(super) world: u32,
    pub(super) global_batch: u32,
    pub(super) workers: Vec<Option<WorkerId>>,
}

impl SessionState {
    /// Restores a session of `job` from a record of this version or of a version without runs.
    pub(super) fn restored(record: SessionRecord, job: &Job, now_ms: u64) -> Self {
        let mut recorded = record.ranks.clone();
        recorded.sort_unstable_by_key(|rank| rank.rank);
        let restored = |rank: &Arc<RankRecord>| (rank.rank, RankState::restored(rank, now_ms));
        let ranks = record.ranks.iter().map(restored).collect();
        Self {
            id: record.id,
            run: if record.run.is_empty() { job.name.clone() } else { record.run },
            job: record.job,
            world: record.world,
            global_batch: record.global_batch,
            epochs: if record.epochs == 0 { job.epochs } else { record.epochs },
            start: record.start,
            reason: record.reason,
            launch: record.launch,
            is_takeover: record.is_takeover,
            replaces: record.replaces,
            superseded_by: record.superseded_by,
            is_reset: record.is_reset,
            is_outdated: record.is_outdated,
            ranks,
            opened_ms: now_ms,
            is_restored: true,
            may_lack_ranks: true,
            listed_homes: None,
            punctual_until_ms: Cell::new(0),
            recorded,
            changed: BTreeSet::new(),
            dirty: false,
            persisted_ms: now_ms,
        }
    }

    pub(super) fn record(&mut self) -> SessionRecord {
        for rank in std::mem::take(&mut self.changed) {
            let record = Arc::new(self.ranks[&rank].record(rank));
            match self.recorded.binary_search_by_key(&rank, |recorded| recorded.rank) {
                Ok(at) => self.recorded[at] = record,
                Err(at) => self.recorded.insert(at, record),
            }
        }
        SessionRecord {
            id: self.id,
            job: self.job.clone(),
            run: self.run.clone(),
            world: self.world,
            global_batch: self.global_batch,
            epochs: self.epochs,
            start: self.start,
            reason: self.reason,
            launch: self.launch.clone(),
            is_takeover: self.is_takeover,
            replaces: self.replaces,
            superseded_by: self.superseded_by.clone(),
            is_reset: self.is_reset,
            is_outdated: self.is_outdated,
            ranks: self.recorded.clone(),
        }
    }

    /// Returns whether the next record would have the current state of the ranks.
    #[cfg(test)]
    pub(super) fn records_all(&self) -> bool {
        let ranks: Vec<RankRecord> = self.ranks.iter().map(|(&rank, state)| state.record(rank)).collect();
        self.clone().record().ranks.iter().map(Arc::as_ref).eq(&ranks)
    }

    /// Returns the last position that every rank has acknowledged; ranks that never joined count as at the start.
    pub(super) fn acknowledged(&self) -> Position {
        let acknowledged = self.ranks.values().map(|rank| rank.acknowledged);
        let of_all = if mutated(Mutation::ResumeAtFurthest) { acknowledged.max() } else { acknowledged.min() };
        of_all.filter(|_| self.is_full()).unwrap_or(self.start)
    }

    /// Returns the last position that any rank has acknowledged.
    pub(super) fn furthest(&self) -> Position {
        self.ranks.values().map(|rank| rank.acknowledged).max().unwrap_or(self.start)
    }

    /// Returns the last position up to which batches were handed to the trainer of any rank.
    pub(super) fn furthest_handed(&self) -> Position {
        self.ranks.values().map(RankState::furthest).max().unwrap_or(self.start)
    }

    /// Iterates over the ranks that take part, and have neither promised to wait for this change nor go by the changed job.
    pub(super) fn unpromised(&self, change: Fingerprint) -> impl Iterator<Item = &u32> {
        let late = move |(_, rank): &(&u32, &RankState)| {
            !rank.left && rank.job != Some(change) && rank.promise.is_none_or(|hold| hold.change != change)
        };
        self.ranks.iter().filter(late).map(|(rank, _)| rank)
    }

    /// Returns where a launch that resumes the run starts, or `None` if the run was reset and starts at the beginning.
    pub(super) fn resumes_at(&self) -> Option<Position> {
        (!self.is_reset).then(|| self.acknowledged())
    }

    /// Returns how long it ran until a rank was last heard; `None` if it was restored.
    pub(super) fn lasted_ms(&self) -> Option<u64> {
        let heard_ms = self.ranks.values().map(|rank| rank.heard_ms).max()?;
        (!self.is_restored).then(|| heard_ms.saturating_sub(self.opened_ms))
    }

    /// Returns whether all ranks have joined.
    pub(super) fn is_full(&self) -> bool {
        self.ranks.len() == self.world as usize
    }

    /// Returns whether the coordinator has the record of all ranks that have joined.
    pub(super) fn has_all_ranks(&self) -> bool {
        self.is_full() || !self.may_lack_ranks
    }

    /// Returns whether no rank takes part any longer.
    pub(super) fn is_over(&self, now_ms: u64, liveness_ms: u64) -> bool {
        self.is_reset || self.is_outdated || !self.ranks.values().any(|rank| rank.is_alive(now_ms, liveness_ms))
    }

    /// Returns whether every rank that has not left was heard within half the liveness timeout. A rank that is later
    /// than that may be dead, so the session's free places are not given away.
    pub(super) fn is_punctual(&self, now_ms: u64, liveness_ms: u64) -> bool {
        if now_ms <= self.punctual_until_ms.get() {
            return true;
        }
        // Heartbeats that arrive meanwhile can only make this time later.
        let heard_ms = self.ranks.values().filter(|rank| !rank.left).map(|rank| rank.heard_ms).min();
        self.punctual_until_ms.set(heard_ms.map_or(now_ms, |heard_ms| heard_ms + liveness_ms / 2));
        now_ms <= self.punctual_until_ms.get()
    }

    /// Returns whether every rank that has not left was heard since the coordinator has started.
    pub(super) fn is_heard(&self) -> bool {
        !self.is_restored || self.ranks.values().all(|rank| rank.left || rank.job.is_some())
    }

    /// Refuses a rank that continues a session which this one, the run's newest, has superseded, and which the
    /// coordinator no longer keeps.
    pub(super) fn check_rejoin(&self, join: &Join) -> Result<(), Refusal> {
        if self.is_reset && join.session == Some(self.id) {
            return self.superseded();
        }
        if self.is_outdated && join.session == Some(self.id) {
            let run = Box::new(self.run_name());
            return Err(Refusal::SessionOutdated { run, session: self.id, rank: join.rank });
        }
        let Some(theirs) = join.session.filter(|theirs| *theirs < self.id && self.replaces != Some(*theirs)) else {
            return Ok(());
        };
        let (&rank, state) = self.ranks.first_key_value().expect("a session has a rank from its beginning on");
        let run = Box::new(self.run_name());
        Err(Refusal::SessionSuperseded { run, session: theirs, rank, client: state.client.clone() })
    }

    /// Returns the names of the job and the run.
    pub(super) fn run_name(&self) -> RunName {
        RunName { job: self.job.clone(), run: self.run.clone() }
    }

    /// Returns who holds the session: its first rank that is alive, or its first rank if none is alive, which a join
    /// with different settings can meet.
    pub(super) fn holder(&self, now_ms: u64, liveness_ms: u64) -> Holder {
        let is_alive = |rank: &RankState| rank.is_alive(now_ms, liveness_ms);
        let alive = self.ranks.values().filter(|rank| is_alive(rank)).count();
        let first = self.ranks.iter().find(|(_, rank)| is_alive(rank)).or_else(|| self.ranks.first_key_value());
        let (&rank, state) = first.expect("a session has a rank from its beginning on");
        Holder {
            rank,
            world: self.world,
            client: state.client.clone(),
            others: u32::try_from(alive.saturating_sub(1)).unwrap_or(u32::MAX),
            since_unix_s: state.since_unix_s,
        }
    }

    /// Returns the first setting in which a join differs from the session's first join: the field, its value and the
    /// session's value. To resume means to start where all ranks of the previous session had got to, which is this
    /// session's start if it is not full.
    pub(super) fn disagreement(&self, join: &Join) -> Option<(&'static str, String, String)> {
        let wanted = match join.start {
            Start::Beginning => Position::START,
            Start::Resume => self.start,
            Start::At(position) => position,
        };
        if join.world != self.world {
            return Some(("world", join.world.to_string(), self.world.to_string()));
        }
        if let Some(batch) = join.global_batch.filter(|batch| *batch != self.global_batch) {
            return Some(("global_batch", batch.to_string(), self.global_batch.to_string()));
        }
        if let Some(epochs) = join.epochs.filter(|epochs| *epochs != self.epochs) {
            return Some(("epochs", epochs.to_string(), self.epochs.to_string()));
        }
        (wanted != self.start).then(|| ("start", wanted.to_string(), self.start.to_string()))
    }

    /// Returns the refusal for ranks that still take part in a session that has a successor, whose run was reset or whose job has other
    /// stages since. Of these, a rank asks to join again, and that is refused.
    pub(super) fn superseded(&self) -> Result<(), Refusal> {
        if self.is_reset {
            return Err(Refusal::RunReset { run: Box::new(self.run_name()), session: self.id });
        }
        if self.is_outdated && self.superseded_by.is_none() && !mutated(Mutation::KeepOutdated) {
            return Err(Refusal::UnknownSession { session: self.id });
        }
        self.superseded_by.as_ref().filter(|_| !mutated(Mutation::KeepSuperseded)).map_or(Ok(()), |successor| {
            Err(Refusal::SessionSuperseded {
                run: Box::new(self.run_name()),
                session: self.id,
                rank: successor.rank,
                client: successor.client.clone(),
            })
        })
    }
}
