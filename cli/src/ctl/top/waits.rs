//! The waits of ranks over time, from one status to the next.

use std::collections::{BTreeMap, VecDeque};

use spdl_control::coordinator::{RankStatus, Status};

/// The most points of a rank that are kept: no terminal is wider.
const MAX_POINTS: usize = 240;

/// For each rank, the parts of its time in which it waited, the newest last.
#[derive(Debug, Default)]
pub(super) struct WaitHistory(BTreeMap<(u64, u32), Points>);

#[derive(Debug, Default)]
struct Points {
    /// When its last heartbeat came, by the coordinator's clock, and for how long it had waited then.
    last: Option<(u64, u64)>,
    parts: VecDeque<f64>,
}

impl WaitHistory {
    /// Takes in a status: a point for each rank whose heartbeat is new. Forgets ranks that are gone.
    pub(super) fn note(&mut self, status: &Status) {
        let mut before = std::mem::take(&mut self.0);
        for session in &status.sessions {
            for rank in session.ranks.iter().filter(|rank| rank.is_alive) {
                let key = (session.session, rank.rank);
                let mut points = before.remove(&key).unwrap_or_default();
                points.note(status.uptime_ms, rank);
                self.0.insert(key, points);
            }
        }
    }

    /// Returns the points of a rank.
    pub(super) fn of(&self, session: u64, rank: u32) -> impl DoubleEndedIterator<Item = f64> {
        self.0.get(&(session, rank)).into_iter().flat_map(|points| &points.parts).copied()
    }
}

impl Points {
    fn note(&mut self, uptime_ms: u64, rank: &RankStatus) {
        let now = (uptime_ms.saturating_sub(rank.heartbeat_age_ms), rank.waited_ms);
        let part = match self.last {
            Some((heard_ms, _)) if now.0 == heard_ms => return,
            // The counter belongs to the same process.
            Some((heard_ms, waited_ms)) if now.0 > heard_ms && now.1 >= waited_ms => {
                Some((now.1 - waited_ms) as f64 / (now.0 - heard_ms) as f64)
            }
            _ => rank.waiting,
        };
        self.last = Some(now);
        self.parts.extend(part.map(|part| part.clamp(0.0, 1.0)));
        if self.parts.len() > MAX_POINTS {
            self.parts.pop_front();
        }
    }
}
