//! The diagnosis of ranks from the heartbeats of the last seconds.

use crate::insight::{Diagnosis, RankWindow, WorkerWindow, diagnose};

use super::{
    CoordinatorCore,
    members::WorkerRecord,
    session::{RankState, SessionState},
};

/// The window of stages that diagnoses look at.
const WINDOW_MS: u64 = 10_000;

impl CoordinatorCore {
    /// Finds what limits the ranks of a session that are alive, in their order, as far as there is a history of some
    /// seconds.
    pub(super) fn diagnoses(&self, session: &SessionState) -> Vec<Diagnosis> {
        if session.superseded_by.is_some() || session.is_reset {
            return Vec::new();
        }
        let alive = session.ranks.iter().filter(|(_, rank)| rank.is_alive(self.now_ms, self.config.liveness_ms));
        alive.filter_map(|(&number, rank)| self.diagnosis(session, number, rank)).collect()
    }

    fn diagnosis(&self, session: &SessionState, number: u32, rank: &RankState) -> Option<Diagnosis> {
        let worker = rank.home.and_then(|home| self.workers.get(&home));
        let mut served = worker.into_iter().flat_map(|worker| &worker.ranks);
        let served = served.find(|served| served.session == session.id && served.rank == number);
        let (seconds, (position, waited_ms)) = rank.recent.before(rank.heard_ms)?;
        let samples = self.jobs.get(&session.job)?.job.samples;
        let taken = rank.acknowledged.samples(samples).saturating_sub(position.samples(samples));
        let taken = taken / u128::from(session.world.max(1));
        let window = RankWindow {
            rank: number,
            seconds,
            samples: u64::try_from(taken).unwrap_or(u64::MAX),
            waited_s: rank.waited_ms.saturating_sub(*waited_ms) as f64 / 1e3,
            stall: served.and_then(|served| served.stall.clone()),
        };
        match worker {
            Some(worker) => Some(diagnose(window, Some(worker_window(worker)?))),
            None => Some(diagnose(window, None)),
        }
    }
}

/// Returns what the worker did in the last seconds.
fn worker_window(worker: &WorkerRecord) -> Option<WorkerWindow> {
    let (seconds, (store, cpu_ns)) = worker.recent.before(worker.heard_ms)?;
    let windows = worker.history.windows(worker.uptime_ms, &worker.stages);
    let stages = windows.into_iter().find(|window| window.window_ms == WINDOW_MS)?.stages;
    Some(WorkerWindow {
        name: worker.home.name.clone(),
        cores: worker.cores,
        cores_used: worker.cpu_ns.saturating_sub(*cpu_ns) as f64 / 1e9 / seconds,
        stages,
        store_s: seconds,
        store: worker.store.since(store),
    })
}
