//! One session: the ranks of one launch of a trainer on a run of a job, what they have acknowledged and where they are served.

use std::collections::BTreeMap;

use spdl_shard::{Position, Receipt, job::Job};
use spdl_wire::{
    messages::{
        Holder, Join, NodeId, RankHeartbeat, Refusal, RunName, SessionId, Start, StartReason, Transport, WorkerId,
    },
    mutations::{Mutation, mutated},
};

use super::{
    effect::{RankRecord, SessionRecord, Successor},
    recent::RecentEvents,
};

/// A session as the coordinator sees it.
#[derive(Clone, Debug)]
pub(super) struct SessionState {
    pub(super) id: SessionId,
    pub(super) job: String,
    pub(super) run: String,
    pub(super) world: u32,
    pub(super) global_batch: u32,
    /// Of its run, from this session on.
    pub(super) epochs: u64,
    pub(super) start: Position,
    pub(super) reason: StartReason,
    /// The id of its launch.
    pub(super) launch: Option<String>,
    /// Its launch takes over.
    pub(super) is_takeover: bool,
    /// The session that it replaces, after a coordinator had forgotten that.
    pub(super) replaces: Option<SessionId>,
    pub(super) superseded_by: Option<Successor>,
    /// Its run was reset since: nothing goes on from it.
    pub(super) is_reset: bool,
    pub(super) ranks: BTreeMap<u32, RankState>,
    /// The durable state lags behind.
    pub(super) dirty: bool,
    pub(super) persisted_ms: u64,
}

/// A rank that has joined.
#[derive(Clone, Debug)]
pub(super) struct RankState {
    pub(super) nonce: u64,
    pub(super) client: String,
    pub(super) since_unix_s: u64,
    pub(super) node: NodeId,
    pub(super) acknowledged: Position,
    /// Of what was taken up to there; records of earlier builds lack it.
    pub(super) receipt: Option<Receipt>,
    pub(super) left: bool,
    pub(super) heard_ms: u64,
    pub(super) waited_ms: u64,
    /// Where it was and what it had waited a few seconds ago.
    pub(super) recent: RecentEvents<(Position, u64)>,
    pub(super) transport: Option<Transport>,
    pub(super) home: Option<WorkerId>,
    /// When its home was last looked for, or looked at.
    pub(super) looked_ms: u64,
    /// Workers it said it cannot reach, and until when that is believed.
    pub(super) unreachable: BTreeMap<WorkerId, u64>,
    /// It was read from the durable state, and its home is yet to say so.
    pub(super) is_settling: bool,
}

impl RankState {
    pub(super) fn joined(join: &Join, start: Position, now_ms: u64) -> Self {
        Self {
            nonce: join.nonce,
            client: join.client.clone(),
            since_unix_s: join.since_unix_s,
            node: join.node.clone(),
            acknowledged: start,
            receipt: Some(Receipt::default()),
            left: false,
            heard_ms: now_ms,
            waited_ms: 0,
            recent: RecentEvents::default(),
            transport: None,
            home: None,
            looked_ms: now_ms,
            unreachable: BTreeMap::new(),
            is_settling: false,
        }
    }

    /// Takes part: has not left and was heard within the liveness timeout.
    pub(super) fn is_alive(&self, now_ms: u64, liveness_ms: u64) -> bool {
        !self.left && now_ms.saturating_sub(self.heard_ms) <= liveness_ms
    }

    /// Takes note of a beat; whether what is durable has changed.
    pub(super) fn hear(&mut self, beat: &RankHeartbeat, samples: u64, now_ms: u64) -> bool {
        self.heard_ms = now_ms;
        self.waited_ms = self.waited_ms.max(beat.waited_ms);
        if beat.transport.is_some() {
            self.transport = beat.transport;
        }
        let is_ahead = beat.acknowledged > self.acknowledged || mutated(Mutation::TakeBackAcknowledged);
        let is_new = is_ahead && beat.acknowledged.offset <= samples && !mutated(Mutation::ForgetAcknowledged);
        if is_new {
            self.acknowledged = beat.acknowledged;
        }
        // The receipt goes with the position: a beat that was overtaken on its way carries an older one.
        if beat.acknowledged == self.acknowledged {
            self.receipt = Some(beat.receipt);
        }
        self.recent.note(now_ms, &(self.acknowledged, self.waited_ms));
        is_new
    }
}

impl SessionState {
    /// A session of `job` as it was kept, by this version or by one that knew no runs.
    pub(super) fn restored(record: SessionRecord, job: &Job, now_ms: u64) -> Self {
        let ranks = record
            .ranks
            .into_iter()
            .map(|rank| {
                let state = RankState {
                    nonce: rank.nonce,
                    client: rank.client,
                    since_unix_s: rank.since_unix_s,
                    node: rank.node,
                    acknowledged: rank.acknowledged,
                    receipt: rank.receipt,
                    left: rank.left,
                    heard_ms: now_ms,
                    waited_ms: 0,
                    recent: RecentEvents::default(),
                    transport: None,
                    home: None,
                    looked_ms: now_ms,
                    unreachable: BTreeMap::new(),
                    is_settling: true,
                };
                (rank.rank, state)
            })
            .collect();
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
            ranks,
            dirty: false,
            persisted_ms: now_ms,
        }
    }

    pub(super) fn record(&self) -> SessionRecord {
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
            ranks: self
                .ranks
                .iter()
                .map(|(&rank, state)| RankRecord {
                    rank,
                    nonce: state.nonce,
                    client: state.client.clone(),
                    since_unix_s: state.since_unix_s,
                    node: state.node.clone(),
                    acknowledged: state.acknowledged,
                    receipt: state.receipt,
                    left: state.left,
                })
                .collect(),
        }
    }

    /// The last position that every rank has acknowledged; ranks that never joined are still at the start.
    pub(super) fn acknowledged(&self) -> Position {
        let everyone = self.ranks.len() == self.world as usize;
        let acknowledged = self.ranks.values().map(|rank| rank.acknowledged);
        let of_all = if mutated(Mutation::ResumeAtFurthest) { acknowledged.max() } else { acknowledged.min() };
        of_all.filter(|_| everyone).unwrap_or(self.start)
    }

    /// Where a launch that resumes its run starts; `None` where the run was reset, and begins at the beginning.
    pub(super) fn resumes_at(&self) -> Option<Position> {
        (!self.is_reset).then(|| self.acknowledged())
    }

    /// Whether no rank takes part any longer.
    pub(super) fn is_over(&self, now_ms: u64, liveness_ms: u64) -> bool {
        self.is_reset || !self.ranks.values().any(|rank| rank.is_alive(now_ms, liveness_ms))
    }

    /// Whether every rank that has not left was heard within half the liveness timeout. One that was not may be dead, and
    /// its seat is not given away.
    pub(super) fn is_punctual(&self, now_ms: u64, liveness_ms: u64) -> bool {
        self.ranks.values().all(|rank| rank.left || rank.is_alive(now_ms, liveness_ms / 2))
    }

    /// Refuses a rank that goes on in a session that this one, the run's newest, has superseded: the coordinator has
    /// forgotten that one since.
    pub(super) fn check_rejoin(&self, join: &Join) -> Result<(), Refusal> {
        if self.is_reset && join.session == Some(self.id) {
            return self.superseded();
        }
        let Some(theirs) = join.session.filter(|theirs| *theirs < self.id && self.replaces != Some(*theirs)) else {
            return Ok(());
        };
        let (&rank, state) = self.ranks.first_key_value().expect("a session has a rank from its beginning on");
        let run = Box::new(self.run_name());
        Err(Refusal::SessionSuperseded { run, session: theirs, rank, client: state.client.clone() })
    }

    /// The job and the run that it is of.
    pub(super) fn run_name(&self) -> RunName {
        RunName { job: self.job.clone(), run: self.run.clone() }
    }

    /// Who holds it: the first rank that is alive, or where none is, as a join that disagrees can find it, the first.
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

    /// What a join says otherwise than the session's first one did: the field, its value and the session's. To resume is
    /// to go on where all ranks of the last session had got to, and of one that is not full that is its start.
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

    /// The refusal for those who still take part in a session that has a successor, or whose run was reset.
    pub(super) fn superseded(&self) -> Result<(), Refusal> {
        if self.is_reset {
            return Err(Refusal::RunReset { run: Box::new(self.run_name()), session: self.id });
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
