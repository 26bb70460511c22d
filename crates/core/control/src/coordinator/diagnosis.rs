//! The diagnosis of ranks from the heartbeats of the last seconds.

use std::{collections::BTreeMap, sync::Arc};

use crate::messages::{FromCoordinator, RankStats, Refusal};
use spdl_insight::{Diagnosis, Measured, Presence, RankWindow, WorkerWindow, diagnose};
use spdl_types::{SessionId, WorkerId};

use super::{CoordinatorCore, rank_state::RankState, session::SessionState};

/// A rank that misses this many heartbeats is silent.
const MISSED_HEARTBEATS: u64 = 3;
/// A rank of a session that is over is shown for this long after its last heartbeat, in milliseconds.
const SHOWN_MS: u64 = 60_000;

impl CoordinatorCore {
    /// Diagnoses the ranks of a session that have not left, in their order. If the session is over, only those that
    /// were heard in the last minute; if its run was reset, none. Omits a rank that is alive and has no history of some
    /// seconds yet.
    pub(super) fn diagnoses(&self, session: &SessionState) -> Vec<Diagnosis> {
        let is_over = session.superseded_by.is_some() || session.is_over(self.now_ms, self.config.liveness_ms);
        let is_shown = |rank: &RankState| {
            let silent_ms = self.now_ms.saturating_sub(rank.heard_ms);
            !rank.left && !session.is_reset && (!is_over || silent_ms < SHOWN_MS)
        };
        let mut windows = BTreeMap::new();
        let shown = session.ranks.iter().filter(|(_, rank)| is_shown(rank));
        shown.filter_map(|(&number, rank)| self.diagnosis(session, number, rank, &mut windows)).collect()
    }

    /// Returns the reply with the measurements of a rank and its home.
    pub(super) fn measurements(&self, session: SessionId, rank: u32) -> Result<FromCoordinator, Refusal> {
        let Some(found) = self.sessions.get(&session) else { return Err(Refusal::UnknownSession { session }) };
        let state = found.ranks.get(&rank);
        let diagnosis = state.and_then(|state| self.diagnosis(found, rank, state, &mut BTreeMap::new()));
        Ok(FromCoordinator::Measured(diagnosis.map(|diagnosis| Box::new(Measured::from(&diagnosis)))))
    }

    /// Diagnoses one rank. `windows` caches the workers' windows.
    fn diagnosis(
        &self,
        session: &SessionState,
        number: u32,
        rank: &RankState,
        windows: &mut BTreeMap<WorkerId, Option<Arc<WorkerWindow>>>,
    ) -> Option<Diagnosis> {
        let presence = self.presence(session, rank);
        if presence != Presence::Alive {
            let window = RankWindow { rank: number, presence, ..RankWindow::default() };
            return Some(diagnose(window, None::<Arc<WorkerWindow>>));
        }
        let progress = rank.progress(self.jobs.get(&session.job)?.job.samples)?;
        let home = rank.home.filter(|home| self.workers.contains_key(home));
        let served = home.and_then(|home| self.served(home, session.id, number));
        let window = RankWindow {
            rank: number,
            seconds: progress.seconds,
            samples: progress.samples / u64::from(session.world.max(1)),
            waited_s: progress.waited_s,
            stall: served.and_then(|served| served.stall.clone()),
            presence,
            transport: rank.transport,
            received: progress.received,
            slots: served.map_or(0, |served| served.slots),
            ready: served.map_or(0, |served| served.ready),
            named_before: rank.named_limit.get(),
        };
        let Some(home) = home else { return Some(diagnose(window, None::<Arc<WorkerWindow>>)) };
        let worker = windows.entry(home).or_insert_with(|| self.workers[&home].window().map(Arc::new)).clone()?;
        let found = diagnose(window, Some(worker));
        rank.named_limit.set(found.resource());
        Some(found)
    }

    fn presence(&self, session: &SessionState, rank: &RankState) -> Presence {
        let for_ms = self.now_ms.saturating_sub(rank.heard_ms);
        match &session.superseded_by {
            Some(successor) => Presence::Superseded { by: format!("{} ({})", successor.session, successor.client) },
            None if for_ms > MISSED_HEARTBEATS * self.config.heartbeat_ms => Presence::Silent { for_ms },
            None => Presence::Alive,
        }
    }

    fn served(&self, home: WorkerId, session: SessionId, rank: u32) -> Option<&RankStats> {
        self.workers[&home].ranks.iter().find(|served| served.session == session && served.rank == rank)
    }
}
