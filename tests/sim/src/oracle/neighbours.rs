//! Checks of what workers learn about each other: which workers help which, and which are the homes of a session's
//! ranks.

use std::collections::{BTreeMap, BTreeSet};

use spdl_control::{
    coordinator::Lending,
    help::HelpReport,
    messages::{FromCoordinator, ToCoordinator, WorkerHeartbeat},
};
use spdl_types::{SessionId, WorkerId};

use super::Oracle;

/// The most homes that a worker may help, and helpers that a home may have.
const MAX_HOMES: usize = 4;
const MAX_HELPERS: usize = 16;
/// The map of homes may be this old.
const REFRESH_MS: u64 = 100;
/// After this many heartbeats without ranks, a home has no helpers. Elapsed time alone does not show that: a
/// coordinator that was stopped meanwhile takes ranks that it could not hear for alive.
const MAX_WITHOUT_RANKS: u32 = 20;

/// What a coordinator has learned of workers, and reported about them.
#[derive(Debug, Default)]
pub(super) struct NeighbourView {
    workers: BTreeMap<WorkerId, ReportedWorker>,
    homes: BTreeMap<(SessionId, u32), SentHome>,
    /// When the coordinator last chose helpers, as far as that was checked.
    looked_ms: Option<u64>,
}

/// The home that a rank was sent to last.
#[derive(Debug)]
struct SentHome {
    worker: WorkerId,
    /// Since when the worker has been the rank's home.
    since_ms: u64,
    /// When the rank was last sent there.
    heard_ms: u64,
}

/// The contents of a worker's last heartbeat.
#[derive(Debug)]
struct ReportedWorker {
    is_draining: bool,
    /// The number of heartbeats since it served a rank.
    without_ranks: u32,
    help: HelpReport,
}

impl Oracle {
    /// Records which home a coordinator sends a rank to.
    pub(crate) fn sent_home(&mut self, at: usize, now_ms: u64, question: &ToCoordinator, answer: &FromCoordinator) {
        let (rank, home) = match (question, answer) {
            (ToCoordinator::Join(join), FromCoordinator::Joined { session, home, .. }) => {
                ((session.id, join.rank), home)
            }
            (ToCoordinator::RankHeartbeat(rank), FromCoordinator::RankAcknowledged { home, .. }) => {
                ((rank.session, rank.rank), home)
            }
            _ => return,
        };
        if let Some(home) = home {
            let new = SentHome { worker: home.worker, since_ms: now_ms, heard_ms: now_ms };
            let sent = self.neighbour_views.entry(at).or_default().homes.entry(rank).or_insert(new);
            if sent.worker != home.worker {
                *sent = SentHome { worker: home.worker, since_ms: now_ms, heard_ms: now_ms };
            }
            sent.heard_ms = now_ms;
        }
    }

    /// Checks the answer to a worker's heartbeat: after it, the worker's map of homes is not an old one.
    pub(crate) fn mapped(
        &mut self,
        at: usize,
        now_ms: u64,
        heartbeat: &WorkerHeartbeat,
        answer: &FromCoordinator,
    ) -> Result<(), String> {
        let FromCoordinator::WorkerAcknowledged { peers: news, .. } = answer else { return Ok(()) };
        if let Some(map) = news {
            self.peer_maps.insert(map.version, (**map).clone());
        }
        let version = news.as_ref().map_or(heartbeat.peer_map, |map| map.version);
        let (Some(map), Some(view)) = (self.peer_maps.get(&version), self.neighbour_views.get(&at)) else {
            return Ok(());
        };
        for readers in &map.sessions {
            for (rank, home) in (0..).zip(&readers.now.homes) {
                let home = home.map(|home| map.workers[usize::from(home)].worker);
                let sent = view.homes.get(&(readers.session, rank));
                let sent = sent.filter(|sent| now_ms > sent.since_ms + REFRESH_MS).map(|sent| sent.worker);
                if let Some((home, sent)) = home.zip(sent).filter(|(home, sent)| home != sent) {
                    let session = readers.session.0;
                    return Err(format!(
                        "worker {} has {} as the home of rank {rank} of session {session}, which is {}",
                        heartbeat.home.worker.0, home.0, sent.0
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks the answer to a worker's heartbeat: after it, the worker's list of helpers is what the coordinator has
    /// lent. If the helpers have just been chosen, also checks which worker was lent to which home.
    pub(crate) fn lent(
        &mut self,
        at: usize,
        now_ms: u64,
        heartbeat: &WorkerHeartbeat,
        answer: &FromCoordinator,
        lending: &Lending,
    ) -> Result<(), String> {
        let FromCoordinator::WorkerAcknowledged { helpers: news, .. } = answer else { return Ok(()) };
        let worker = heartbeat.home.worker;
        let view = self.neighbour_views.entry(at).or_default();
        let before = view.workers.get(&worker).map_or(0, |before| before.without_ranks);
        let without_ranks = if heartbeat.ranks.is_empty() { before + 1 } else { 0 };
        let reported = ReportedWorker { is_draining: heartbeat.draining, without_ranks, help: *heartbeat.help };
        view.workers.insert(worker, reported);
        let has_chosen = std::mem::replace(&mut view.looked_ms, lending.looked_ms) != lending.looked_ms;
        if let Some(list) = news {
            let ids = list.helpers.iter().map(|helper| helper.worker).collect();
            self.helper_lists.insert(list.version, ids);
        }
        let version = news.as_ref().map_or(heartbeat.help.helpers, |list| list.version);
        let nobody = Vec::new();
        let listed = self.helper_lists.get(&version).unwrap_or(&nobody);
        let lent = lending.helpers.get(&worker).unwrap_or(&nobody);
        if let Some(old) = listed.iter().find(|helper| !lent.contains(helper)) {
            return Err(format!("worker {} believes that {} helps it, which does not", worker.0, old.0));
        }
        if has_chosen { self.chosen(at, now_ms, lending) } else { Ok(()) }
    }

    fn chosen(&self, at: usize, now_ms: u64, lending: &Lending) -> Result<(), String> {
        let view = &self.neighbour_views[&at];
        let mut homes_of: BTreeMap<WorkerId, usize> = BTreeMap::new();
        for (home, helpers) in &lending.helpers {
            let unique: BTreeSet<&WorkerId> = helpers.iter().collect();
            if unique.len() < helpers.len() || helpers.len() > MAX_HELPERS || helpers.contains(home) {
                return Err(format!("worker {} is given {helpers:?} as helpers", home.0));
            }
            let is_helped = view.workers.get(home).is_some_and(|worker| worker.help.is_helped);
            let is_sent = |sent: &SentHome| sent.worker == *home && now_ms <= sent.heard_ms + self.liveness_ms;
            let without_ranks = view.workers.get(home).map_or(0, |worker| worker.without_ranks);
            let has_ranks = without_ranks <= MAX_WITHOUT_RANKS || view.homes.values().any(is_sent);
            if !is_helped || !has_ranks {
                let why = if is_helped { "no ranks" } else { "to do without" };
                return Err(format!("worker {} has helpers, and has {why}", home.0));
            }
            for helper in helpers {
                let Some(worker) = view.workers.get(helper) else {
                    return Err(format!("worker {} is lent and was never heard", helper.0));
                };
                if worker.is_draining || !worker.help.is_helper {
                    return Err(format!("worker {} is lent: {worker:?}", helper.0));
                }
                *homes_of.entry(*helper).or_default() += 1;
            }
        }
        match homes_of.into_iter().find(|(helper, homes)| *homes > MAX_HOMES || lending.helpers.contains_key(helper)) {
            Some((helper, homes)) => Err(format!("worker {} helps {homes} homes, or has helpers itself", helper.0)),
            None => Ok(()),
        }
    }
}
