//! One session: the ranks of one launch of a trainer on a job, what they have acknowledged and where they are served.

use std::collections::BTreeMap;

use spdl_shard::{Position, Receipt};
use spdl_wire::{
    messages::{Join, NodeId, RankBeat, Refusal, SessionId, Transport, WorkerId},
    planted::{Bug, has},
};

use super::effect::{RankRecord, SessionRecord, Successor};

/// A session as the coordinator sees it.
#[derive(Clone, Debug)]
pub(super) struct SessionState {
    pub(super) id: SessionId,
    pub(super) job: String,
    pub(super) world: u32,
    pub(super) global_batch: u32,
    pub(super) start: Position,
    pub(super) superseded_by: Option<Successor>,
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
    pub(super) node: NodeId,
    pub(super) acknowledged: Position,
    pub(super) receipt: Receipt,
    pub(super) left: bool,
    pub(super) heard_ms: u64,
    pub(super) waited_ms: u64,
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
            node: join.node.clone(),
            acknowledged: start,
            receipt: Receipt::default(),
            left: false,
            heard_ms: now_ms,
            waited_ms: 0,
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
    pub(super) fn hear(&mut self, beat: &RankBeat, samples: u64, now_ms: u64) -> bool {
        self.heard_ms = now_ms;
        self.waited_ms = self.waited_ms.max(beat.waited_ms);
        if beat.transport.is_some() {
            self.transport = beat.transport;
        }
        let is_ahead = beat.acknowledged > self.acknowledged || has(Bug::TakeBackAcknowledged);
        let is_new = is_ahead && beat.acknowledged.offset <= samples && !has(Bug::ForgetAcknowledged);
        if is_new {
            self.acknowledged = beat.acknowledged;
        }
        // The receipt goes with the position: a beat that was overtaken on its way carries an older one.
        if beat.acknowledged == self.acknowledged {
            self.receipt = beat.receipt;
        }
        is_new
    }
}

impl SessionState {
    pub(super) fn restored(record: SessionRecord, now_ms: u64) -> Self {
        let ranks = record
            .ranks
            .into_iter()
            .map(|rank| {
                let state = RankState {
                    nonce: rank.nonce,
                    client: rank.client,
                    node: rank.node,
                    acknowledged: rank.acknowledged,
                    receipt: Receipt::default(),
                    left: rank.left,
                    heard_ms: now_ms,
                    waited_ms: 0,
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
            job: record.job,
            world: record.world,
            global_batch: record.global_batch,
            start: record.start,
            superseded_by: record.superseded_by,
            ranks,
            dirty: false,
            persisted_ms: now_ms,
        }
    }

    pub(super) fn record(&self) -> SessionRecord {
        SessionRecord {
            id: self.id,
            job: self.job.clone(),
            world: self.world,
            global_batch: self.global_batch,
            start: self.start,
            superseded_by: self.superseded_by.clone(),
            ranks: self
                .ranks
                .iter()
                .map(|(&rank, state)| RankRecord {
                    rank,
                    nonce: state.nonce,
                    client: state.client.clone(),
                    node: state.node.clone(),
                    acknowledged: state.acknowledged,
                    left: state.left,
                })
                .collect(),
        }
    }

    /// The last position that every rank has acknowledged; ranks that never joined are still at the start.
    pub(super) fn acknowledged(&self) -> Position {
        let everyone = self.ranks.len() == self.world as usize;
        let acknowledged = self.ranks.values().map(|rank| rank.acknowledged);
        let of_all = if has(Bug::ResumeAtFurthest) { acknowledged.max() } else { acknowledged.min() };
        of_all.filter(|_| everyone).unwrap_or(self.start)
    }

    /// Whether no rank takes part any longer.
    pub(super) fn is_over(&self, now_ms: u64, liveness_ms: u64) -> bool {
        !self.ranks.values().any(|rank| rank.is_alive(now_ms, liveness_ms))
    }

    /// Refuses a join that says something else than the session's first one did. A rank that leaves batch or start
    /// open takes the session's.
    pub(super) fn agree(&self, join: &Join) -> Result<(), Refusal> {
        let disagree = |field: &str, theirs: String, ours: String| {
            Err(Refusal::SessionDisagrees {
                job: self.job.clone(),
                session: self.id,
                rank: join.rank,
                field: field.to_owned(),
                theirs,
                ours,
            })
        };
        if join.world != self.world {
            return disagree("world", join.world.to_string(), self.world.to_string());
        }
        if let Some(batch) = join.global_batch.filter(|batch| *batch != self.global_batch) {
            return disagree("global_batch", batch.to_string(), self.global_batch.to_string());
        }
        if let Some(start) = join.start.filter(|start| *start != self.start) {
            return disagree("start", start.to_string(), self.start.to_string());
        }
        Ok(())
    }

    /// The refusal for those who still take part in a session that has a successor.
    pub(super) fn superseded(&self) -> Result<(), Refusal> {
        self.superseded_by.as_ref().filter(|_| !has(Bug::KeepSuperseded)).map_or(Ok(()), |successor| {
            Err(Refusal::SessionSuperseded {
                job: self.job.clone(),
                session: self.id,
                rank: successor.rank,
                client: successor.client.clone(),
            })
        })
    }
}
