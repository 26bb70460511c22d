//! One rank of a session: what it has acknowledged, by which job it goes, and its homes.

use std::{cell::Cell, collections::BTreeMap};

use crate::messages::{JobHold, Join, RankHeartbeat};
use spdl_insight::{Limit, ReceiveRates, ReceiveStats, Transport, recent::RecentEvents};
use spdl_order::Receipt;
use spdl_types::{
    Fingerprint, NodeId, Position, WorkerId,
    mutations::{Mutation, mutated},
};

use super::effect::RankRecord;

/// The number of earlier homes of a rank that are kept.
const MAX_HOMES_BEFORE: usize = 2;

/// A rank that has joined.
#[derive(Clone, Debug)]
pub(super) struct RankState {
    pub(super) nonce: u64,
    pub(super) client: String,
    pub(super) since_unix_s: u64,
    pub(super) node: NodeId,
    pub(super) acknowledged: Position,
    /// The receipt of the samples taken up to `acknowledged`; records of earlier builds lack it.
    pub(super) receipt: Option<Receipt>,
    /// The position after the last batch that was handed to the trainer, whether it has taken it or not.
    pub(super) handed: Position,
    /// The fingerprint of the job that it goes by; `None` before it was heard.
    pub(super) job: Option<Fingerprint>,
    /// The change of the job for whose outcome it waits at its position.
    pub(super) promise: Option<JobHold>,
    /// The change for which it has waited since it came: whoever proposed that may have made it.
    pub(super) brought: Option<Fingerprint>,
    /// The number of the last heartbeat: one that comes later with a lower number is older.
    pub(super) heartbeats: u64,
    pub(super) left: bool,
    pub(super) heard_ms: u64,
    pub(super) waited_ms: u64,
    /// What it has received over QUIC.
    pub(super) received: ReceiveStats,
    /// The position, the time spent waiting, and what was received, of a few seconds ago.
    pub(super) recent: RecentEvents<(Position, u64, ReceiveStats)>,
    pub(super) transport: Option<Transport>,
    /// The resource that was named last as its limit.
    pub(super) named_limit: Cell<Option<Limit>>,
    pub(super) home: Option<WorkerId>,
    /// Workers alive that were its home before, the latest first.
    pub(super) homes_before: Vec<WorkerId>,
    /// The name of its home, or of the last one that it had.
    pub(super) last_home: Option<String>,
    /// When a home was last chosen, or the current one last compared with others.
    pub(super) looked_ms: u64,
    /// When the home was last compared with all other workers.
    pub(super) compared_ms: Option<u64>,
    /// When the rank joined, was restored or got another home.
    pub(super) home_since_ms: u64,
    /// The workers that the rank reported as unreachable, and until when each report counts.
    pub(super) unreachable: BTreeMap<WorkerId, u64>,
    /// Whether the rank was read from the durable state, and no worker has yet reported that it serves the rank.
    pub(super) is_settling: bool,
    /// The worker that counts this rank as alive.
    pub(super) counted_at: Option<WorkerId>,
    /// Whether a check is scheduled for when the rank may have been silent for too long.
    pub(super) is_watched: bool,
}

/// The progress of a rank in the last seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RankProgress {
    /// Seconds for which this was observed.
    pub(super) seconds: f64,
    /// Samples that the whole job took, as this rank observed it.
    pub(super) samples: u64,
    /// Seconds in which the trainer waited for batches.
    pub(super) waited_s: f64,
    /// What the rank received over QUIC.
    pub(super) received: ReceiveRates,
}

impl RankState {
    /// Returns the rank's recent progress, in a job of `samples` samples an epoch; `None` before its second heartbeat.
    pub(super) fn progress(&self, samples: u64) -> Option<RankProgress> {
        let (seconds, (position, waited_ms, received)) = self.recent.before(self.heard_ms)?;
        let taken = self.acknowledged.samples(samples).saturating_sub(position.samples(samples));
        Some(RankProgress {
            seconds,
            samples: u64::try_from(taken).unwrap_or(u64::MAX),
            waited_s: self.waited_ms.saturating_sub(*waited_ms) as f64 / 1e3,
            received: self.received.rates(received, seconds),
        })
    }

    /// Creates the state of a rank that joins a session which starts at a position.
    pub(super) fn joined(join: &Join, start: Position, now_ms: u64) -> Self {
        let record = RankRecord {
            rank: join.rank,
            nonce: join.nonce,
            client: join.client.clone(),
            since_unix_s: join.since_unix_s,
            node: join.node.clone(),
            acknowledged: start,
            receipt: Some(Receipt::default()),
            left: false,
        };
        Self { is_settling: false, ..Self::restored(&record, now_ms) }
    }

    /// Restores a rank from its record.
    pub(super) fn restored(record: &RankRecord, now_ms: u64) -> Self {
        Self {
            nonce: record.nonce,
            client: record.client.clone(),
            since_unix_s: record.since_unix_s,
            node: record.node.clone(),
            acknowledged: record.acknowledged,
            receipt: record.receipt,
            handed: record.acknowledged,
            job: None,
            promise: None,
            brought: None,
            heartbeats: 0,
            left: record.left,
            heard_ms: now_ms,
            waited_ms: 0,
            received: ReceiveStats::default(),
            recent: RecentEvents::default(),
            transport: None,
            named_limit: Cell::default(),
            home: None,
            homes_before: Vec::new(),
            last_home: None,
            looked_ms: now_ms,
            compared_ms: None,
            home_since_ms: now_ms,
            unreachable: BTreeMap::new(),
            is_settling: true,
            counted_at: None,
            is_watched: false,
        }
    }

    pub(super) fn record(&self, rank: u32) -> RankRecord {
        RankRecord {
            rank,
            nonce: self.nonce,
            client: self.client.clone(),
            since_unix_s: self.since_unix_s,
            node: self.node.clone(),
            acknowledged: self.acknowledged,
            receipt: self.receipt,
            left: self.left,
        }
    }

    /// Removes the rank's home, and records it as an earlier home.
    pub(super) fn leave_home(&mut self) {
        if let Some(home) = self.home.take() {
            self.homes_before.retain(|before| *before != home);
            self.homes_before.insert(0, home);
            self.homes_before.truncate(MAX_HOMES_BEFORE);
        }
    }

    /// Returns the position after the last batch that was handed to its trainer.
    pub(super) fn furthest(&self) -> Position {
        self.acknowledged.max(self.handed)
    }

    /// Returns whether the rank takes part: it has not left and was heard within the liveness timeout.
    pub(super) fn is_alive(&self, now_ms: u64, liveness_ms: u64) -> bool {
        !self.left && now_ms.saturating_sub(self.heard_ms) <= liveness_ms
    }

    /// Records a heartbeat and returns whether the durable state has changed.
    pub(super) fn hear(&mut self, heartbeat: &RankHeartbeat, samples: u64, now_ms: u64) -> bool {
        self.heard_ms = now_ms;
        self.waited_ms = self.waited_ms.max(heartbeat.waited_ms);
        if heartbeat.transport.is_some() {
            self.transport = heartbeat.transport;
        }
        let is_ahead = heartbeat.acknowledged > self.acknowledged || mutated(Mutation::TakeBackAcknowledged);
        let is_new = is_ahead && heartbeat.acknowledged.offset <= samples && !mutated(Mutation::ForgetAcknowledged);
        if is_new {
            self.acknowledged = heartbeat.acknowledged;
        }
        // The receipt belongs to the position: a heartbeat that arrives out of order carries an older one.
        if heartbeat.acknowledged == self.acknowledged {
            self.receipt = Some(heartbeat.receipt);
        }
        if heartbeat.number >= self.heartbeats {
            self.heartbeats = heartbeat.number;
            self.handed = heartbeat.handed.max(self.acknowledged);
            let change = heartbeat.promise.map(|hold| hold.change);
            self.brought = change.filter(|_| self.job.is_none() || self.brought == change);
            self.job = Some(heartbeat.fingerprint);
            self.promise = heartbeat.promise;
            self.received = heartbeat.received;
        }
        self.recent.note(now_ms, &(self.acknowledged, self.waited_ms, self.received));
        is_new
    }
}
