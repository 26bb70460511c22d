//! The invariants, checked from outside: the oracle knows the plan, the requests and answers, and the batches that
//! trainers took.

mod answers;
mod batches;
mod limits;
mod neighbours;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use spdl_control::{
    coordinator::{Change, Durable},
    messages::Session,
    peers::PeerMap,
};
use spdl_job::Job;
use spdl_order::{RankSteps, Receipt};
use spdl_types::{Fingerprint, Position, SessionId, WorkerId};

use self::{batches::WentBy, neighbours::NeighbourView};

/// The longest time for which ranks may continue before they learn that they must stop.
const SETTLED_US: u64 = 30_000_000;

/// The names of job and run.
type RunKey = (String, String);

/// A session as the answers about it describe it.
#[derive(Debug)]
struct ObservedSession {
    run: RunKey,
    world: u32,
    start: Position,
    launch: Option<String>,
    /// What each rank has acknowledged, and the nonce of its join.
    ranks: BTreeMap<u32, (Position, u64)>,
    /// When the running coordinator last heard each rank, by its clock; `None` after the rank has left.
    heard_ms: BTreeMap<u32, Option<u64>>,
}

impl ObservedSession {
    /// Returns the last position that every rank had acknowledged.
    fn acknowledged(&self) -> Position {
        let everyone = self.ranks.len() == self.world as usize;
        self.ranks.values().map(|(at, _)| *at).min().filter(|_| everyone).unwrap_or(self.start)
    }
}

/// The position of a client in its stream.
#[derive(Debug)]
struct Cursor {
    /// Sessions that replace each other after a coordinator lost one count as one stream, named by the first.
    stream: (u32, SessionId),
    rank: u32,
    world: u32,
    job: Job,
    steps: RankSteps,
    next: Position,
    /// The receipt of what it has taken.
    receipt: Receipt,
}

/// What a coordinator must know from its start and its requests; other coordinators may know more meanwhile.
#[derive(Debug, Default)]
struct View {
    known: BTreeMap<SessionId, ObservedSession>,
    /// The positions that were acknowledged and are not durable yet, and since when.
    lagging: VecDeque<(u64, SessionId, u32, Position)>,
    durable: BTreeMap<(SessionId, u32), Position>,
}

impl View {
    /// Returns the newest session of a run.
    fn newest(&self, run: &RunKey) -> Option<(SessionId, &ObservedSession)> {
        self.known.iter().rev().find(|(_, known)| known.run == *run).map(|(id, known)| (*id, known))
    }

    /// Returns whether a session has a successor.
    fn is_superseded(&self, id: SessionId) -> bool {
        self.known.get(&id).and_then(|known| self.newest(&known.run)).is_some_and(|(newest, _)| newest > id)
    }
}

/// What the durable state has held of a session.
#[derive(Debug, Default)]
struct StoredSession {
    job: String,
    is_superseded: bool,
    is_deleted: bool,
    /// Whether its ranks take part no longer, since the job has changed without them.
    is_outdated: bool,
    /// Where a change of its job begins in which its ranks take no part: the session must not get further.
    ends_before: Option<u64>,
    acknowledged: BTreeMap<u32, Position>,
}

impl StoredSession {
    /// Returns whether its ranks take part, as far as the durable state says.
    const fn goes_on(&self) -> bool {
        !self.is_superseded && !self.is_deleted && !self.is_outdated
    }
}

/// A job that was submitted.
#[derive(Debug, Default)]
struct Submitted {
    fate: Fate,
    /// The number of decisions about the job so far; a loss of the state counts as one.
    decisions: u64,
    /// Whether it was removed once: ranks that did not hear of that bring changes of the job before to one of its name.
    was_removed: bool,
}

/// Whether a job exists, according to the answers to the admin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    /// A change was decided and not yet confirmed, or the state was lost.
    #[default]
    Open,
    There,
    Removed {
        since_us: u64,
    },
}

/// A bad sample in a worker's heartbeat: its job, and the number of decisions about the job at that time.
#[derive(Debug)]
pub(crate) struct ReportedBadSample {
    era: u32,
    decisions: u64,
    job: String,
    sample: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    /// The number of times that the coordinator's state was lost.
    era: u32,
    liveness_ms: u64,
    /// The view of each coordinator.
    views: BTreeMap<usize, View>,
    /// What each coordinator has learned of helpers, and reported of homes, since it began to lead.
    neighbour_views: BTreeMap<usize, NeighbourView>,
    /// The lists of helpers that were sent, by their versions.
    helper_lists: BTreeMap<u64, Vec<WorkerId>>,
    /// The maps of homes that were sent, by their versions.
    peer_maps: BTreeMap<u64, PeerMap>,
    /// What the durable state holds of each session.
    kept: BTreeMap<SessionId, StoredSession>,
    /// The sessions that clients take part in: the run, the number of ranks, and the start.
    adopted: BTreeMap<SessionId, (RunKey, u32, Position)>,
    /// Like `adopted`, but including sessions of jobs that were removed.
    given: BTreeMap<SessionId, (RunKey, u32, Position)>,
    bad_acknowledged: BTreeSet<(String, u64)>,
    /// The jobs in the durable state.
    stored: BTreeMap<String, Job>,
    /// The samples of an epoch of each job.
    samples: BTreeMap<String, u64>,
    /// The jobs that coordinators have decided on last.
    decided: BTreeMap<String, Job>,
    /// The jobs as the admin was told that they are.
    confirmed: BTreeMap<String, Job>,
    /// The jobs that were submitted.
    jobs: BTreeMap<String, Submitted>,
    /// The newest session of each run that has delivered a batch, with its era, and since when.
    delivering: BTreeMap<RunKey, ((u32, SessionId), u64)>,
    cursors: BTreeMap<usize, Cursor>,
    /// The receipts that ranks had at their positions.
    receipts: BTreeSet<(u32, Position, u128)>,
    /// Every position that was delivered, and its sample.
    delivered: BTreeMap<(u32, SessionId), BTreeMap<Position, u64>>,
    /// The versions of its job that the ranks of a stream went by.
    versions: BTreeMap<(u32, SessionId), Vec<WentBy>>,
    /// The clients that have ended.
    ended: BTreeSet<usize>,
    /// The versions of jobs that were ever durable.
    durable_versions: BTreeSet<Fingerprint>,
}

impl Oracle {
    pub(crate) fn new(liveness_ms: u64) -> Self {
        Self { liveness_ms, ..Self::default() }
    }

    /// Checks the state that a coordinator starts from.
    pub(crate) fn coordinator_started(&mut self, at: usize, state: &Durable) -> Result<(), String> {
        let mut view = View::default();
        for session in &state.sessions {
            let ranks = session.ranks.iter().map(|rank| (rank.rank, (rank.acknowledged, rank.nonce)));
            for rank in &session.ranks {
                view.durable.insert((session.id, rank.rank), rank.acknowledged);
            }
            let known = ObservedSession {
                run: (session.job.clone(), session.run.clone()),
                world: session.world,
                start: session.start,
                launch: session.launch.clone(),
                ranks: ranks.collect(),
                heard_ms: session.ranks.iter().filter(|rank| rank.left).map(|rank| (rank.rank, None)).collect(),
            };
            view.known.insert(session.id, known);
        }
        self.views.insert(at, view);
        self.neighbour_views.remove(&at);
        let view = &self.views[&at];
        for (id, (run, ..)) in &self.adopted {
            // The oldest sessions of a run may be gone.
            let oldest = view.known.iter().find(|(_, known)| known.run == *run).map(|(oldest, _)| oldest);
            if !view.known.contains_key(id) && oldest.is_none_or(|oldest| id > oldest) {
                return Err(format!("session {} of {run:?} was answered and is not durable", id.0));
            }
        }
        for record in &state.jobs {
            let of_it = self.bad_acknowledged.iter().filter(|(job, _)| *job == record.job.name);
            let allowed = record.job.max_bad_fraction * record.job.samples as f64;
            if of_it.count() as f64 > allowed && record.failed.is_none() {
                return Err(format!("job `{}` has failed, and that is not durable", record.job.name));
            }
        }
        let kept: BTreeSet<(String, u64)> =
            state.bad_samples.iter().map(|bad| (bad.job.clone(), bad.sample.0)).collect();
        match self.bad_acknowledged.difference(&kept).next() {
            Some(lost) => Err(format!("bad sample {lost:?} was acknowledged and is not durable")),
            None => Ok(()),
        }
    }

    pub(crate) fn coordinator_wiped(&mut self) {
        self.era += 1;
        self.views.clear();
        self.kept.clear();
        self.adopted.clear();
        self.given.clear();
        self.bad_acknowledged.clear();
        self.stored.clear();
        self.decided.clear();
        self.confirmed.clear();
        for job in self.jobs.values_mut() {
            job.fate = Fate::Open;
            job.decisions += 1;
        }
    }

    /// Records the session that a rank was given; no other answer may describe the session differently.
    pub(crate) fn answered_join(&mut self, run: &RunKey, session: &Session, is_again: bool) -> Result<(), String> {
        let answer = (run.clone(), session.world, session.start);
        if matches!(self.fate(&run.0), Fate::Removed { .. }) {
            return Err(format!("session {} of {run:?} is joined, and its job was removed", session.id.0));
        }
        // A rank that joins again has the job that it had, and others may have one that a coordinator before knew.
        let is_earlier = |job: &Job| {
            job.samples_in_common(&session.job).is_some() && !session.job.comes_after(job.fingerprint()) && !is_again
        };
        if self.confirmed.get(&run.0).is_some_and(is_earlier) {
            let Job { stages, redactions, .. } = &session.job;
            return Err(format!("session {} has stages {stages:?} and {redactions:?}, not the latest", session.id.0));
        }
        if let Some(before) = self.given.get(&session.id).filter(|before| **before != answer) {
            return Err(format!("session {} is given twice: {before:?} and {answer:?}", session.id.0));
        }
        // If its removal was decided meanwhile, the session is not kept for long.
        if self.fate(&run.0) == Fate::There {
            self.adopted.insert(session.id, answer.clone());
        }
        self.given.insert(session.id, answer);
        Ok(())
    }

    /// Checks changes that were applied to the state at once: no older state may come back.
    pub(crate) fn applied(&mut self, changes: &[Change]) -> Result<(), String> {
        self.applied_to_sessions(changes);
        changes.iter().for_each(|change| self.applied_to_job(change));
        let last: BTreeMap<SessionId, &Change> = changes
            .iter()
            .filter_map(|change| match change {
                Change::PutSession(record) => Some((record.id, change)),
                Change::DeleteSession(id) => Some((*id, change)),
                _ => None,
            })
            .collect();
        for (id, change) in last {
            let kept = self.kept.entry(id).or_default();
            let Change::PutSession(record) = change else {
                kept.is_deleted = true;
                continue;
            };
            let is_superseded = record.superseded_by.is_some();
            if kept.is_deleted || (kept.is_superseded && !is_superseded) {
                return Err(format!("an older write of session {} came over a later one", id.0));
            }
            kept.is_superseded = is_superseded;
            kept.job.clone_from(&record.job);
            let before = kept.acknowledged.len();
            for rank in &record.ranks {
                let at = kept.acknowledged.entry(rank.rank).or_insert(rank.acknowledged);
                if *at > rank.acknowledged {
                    return Err(format!("what rank {} of session {} had acknowledged went back", rank.rank, id.0));
                }
                *at = rank.acknowledged;
                let samples = self.samples.get(&record.job).copied().unwrap_or(0);
                let reached = rank.acknowledged.epoch * samples + rank.acknowledged.offset;
                if kept.ends_before.is_some_and(|end| reached > end) {
                    let end = kept.ends_before.unwrap_or_default();
                    return Err(format!(
                        "session {} got to sample {reached}, and its job is another one from {end} on",
                        id.0
                    ));
                }
                let is_known = |receipt: &Receipt| {
                    let is_start = rank.acknowledged == record.start && *receipt == Receipt::default();
                    is_start || self.receipts.contains(&(rank.rank, rank.acknowledged, receipt.0))
                };
                if let Some(receipt) = rank.receipt.filter(|receipt| !is_known(receipt)) {
                    let (rank, at) = (rank.rank, rank.acknowledged);
                    return Err(format!("rank {rank} of session {} has never had receipt {receipt} at {at}", id.0));
                }
            }
            if record.ranks.len() < before {
                return Err(format!("a rank of session {} is missing from the state", id.0));
            }
        }
        Ok(())
    }

    /// Records which sessions take part no longer.
    fn applied_to_sessions(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::PutSession(record) => {
                    let kept = self.kept.entry(record.id).or_default();
                    kept.job.clone_from(&record.job);
                    kept.is_outdated |= record.is_outdated;
                }
                Change::DeleteJob(name) => {
                    self.kept.values_mut().filter(|kept| kept.job == *name).for_each(|kept| kept.is_outdated = true);
                }
                _ => {}
            }
        }
    }

    /// Records what a change makes of a job: the sessions that take no part in it any more end before.
    fn applied_to_job(&mut self, change: &Change) {
        match change {
            Change::PutJob(record) => {
                let name = &record.job.name;
                self.samples.insert(name.clone(), record.job.samples);
                let was_durable = !self.durable_versions.insert(record.job.fingerprint());
                let Some(before) = self.stored.insert(name.clone(), (*record.job).clone()) else { return };
                let Some(from) = before.samples_in_common(&record.job) else { return };
                // Ranks that have gone on by it while the coordinator had lost it may be in a session that it ends.
                if was_durable {
                    return;
                }
                for kept in self.kept.values_mut().filter(|kept| kept.job == *name && kept.is_outdated) {
                    kept.ends_before = Some(kept.ends_before.map_or(from, |end| end.min(from)));
                }
            }
            Change::DeleteJob(name) => _ = self.stored.remove(name),
            _ => {}
        }
    }

    /// Returns a job as it is in the durable state.
    pub(crate) fn stored_job(&self, name: &str) -> Option<&Job> {
        self.stored.get(name)
    }

    /// Records the jobs that a coordinator has decided on.
    fn decided_about_changes(&mut self, changes: &[Change]) {
        for change in changes {
            let Change::PutJob(record) = change else { continue };
            let name = &record.job.name;
            if self.confirmed.get(name).is_some_and(|job| job.samples_in_common(&record.job).is_some()) {
                self.confirmed.remove(name);
            }
            self.decided.insert(name.clone(), (*record.job).clone());
        }
    }

    /// Records that the admin got the answer that a job has changed. Another decision may have followed meanwhile.
    pub(crate) fn confirmed_changes(&mut self, name: &str) {
        let (Some(stored), Some(decided)) = (self.stored.get(name), self.decided.get(name)) else { return };
        if self.fate(name) == Fate::There && stored.samples_in_common(decided).is_none() {
            self.confirmed.insert(name.to_owned(), stored.clone());
        }
    }

    pub(crate) const fn era(&self) -> u32 {
        self.era
    }

    /// Records the bad samples that a coordinator confirmed, if its state and their jobs are unchanged since they were
    /// sent.
    pub(crate) fn bad_samples_acknowledged(&mut self, reported: Vec<ReportedBadSample>) {
        for ReportedBadSample { era, decisions, job, sample } in reported {
            let now = self.jobs.get(&job).map_or((Fate::There, 0), |job| (job.fate, job.decisions));
            if era == self.era && now == (Fate::There, decisions) {
                self.bad_acknowledged.insert((job, sample));
            }
        }
    }

    /// Describes a bad sample that a worker is about to report.
    pub(crate) fn reported_bad(&self, job: &str, sample: u64) -> ReportedBadSample {
        let decisions = self.jobs.get(job).map_or(0, |job| job.decisions);
        ReportedBadSample { era: self.era, decisions, job: job.to_owned(), sample }
    }

    /// Returns whether a job exists; jobs of the jobs directory always do.
    fn fate(&self, job: &str) -> Fate {
        self.jobs.get(job).map_or(Fate::There, |job| job.fate)
    }

    /// Records that a coordinator decided to create or remove a submitted job. Returns the number of the decision.
    pub(crate) fn decided_about_job(&mut self, at: usize, job: &str, is_removal: bool) -> u64 {
        let submitted = self.jobs.entry(job.to_owned()).or_default();
        submitted.fate = Fate::Open;
        submitted.decisions += 1;
        submitted.was_removed |= is_removal;
        let decision = submitted.decisions;
        self.confirmed.remove(job);
        if is_removal {
            self.adopted.retain(|_, (run, ..)| run.0 != job);
            self.bad_acknowledged.retain(|(of, _)| of != job);
            let View { known, lagging, .. } = self.views.entry(at).or_default();
            known.retain(|_, known| known.run.0 != job);
            lagging.retain(|(_, session, ..)| known.contains_key(session));
        }
        decision
    }

    /// Records that the admin got the answer that its request is done. Another decision may have followed meanwhile.
    pub(crate) fn answered_admin(&mut self, job: &str, is_removal: bool, decision: u64, now_us: u64) {
        let submitted = self.jobs.entry(job.to_owned()).or_default();
        if submitted.decisions == decision {
            submitted.fate = if is_removal { Fate::Removed { since_us: now_us } } else { Fate::There };
        }
    }

    /// Checks the answer to a rank that there is no such job.
    pub(crate) fn on_unknown(&self, job: &str) -> Result<(), String> {
        match self.fate(job) {
            Fate::There => Err(format!("a rank got the answer that there is no job `{job}`, and there is")),
            _ => Ok(()),
        }
    }

    /// Checks that a rank takes its batch from the newest session of its run, unless that session is recent or the calm
    /// phase has not settled yet.
    pub(crate) fn settled(
        &mut self,
        job: &str,
        run: &str,
        stream: (u32, SessionId),
        now_us: u64,
        calm_us: Option<u64>,
    ) -> Result<(), String> {
        let key = (job.to_owned(), run.to_owned());
        let newest = self.delivering.entry(key).or_insert((stream, now_us));
        if stream > newest.0 {
            *newest = (stream, now_us);
        }
        let ((_, newest), since_us) = *newest;
        let Some(calm_us) = calm_us else { return Ok(()) };
        let is_settled = |since_us: u64| now_us > since_us.max(calm_us) + SETTLED_US;
        if newest > stream.1 && is_settled(since_us) {
            return Err(format!("session {} goes on, and session {} took its place long ago", stream.1.0, newest.0));
        }
        match self.fate(job) {
            Fate::Removed { since_us } if is_settled(since_us) => {
                Err(format!("job `{job}` was removed long ago, and session {} goes on", stream.1.0))
            }
            _ => Ok(()),
        }
    }

    /// Records changes that the coordinator hands to its writer.
    pub(crate) fn persisting(&mut self, at: usize, changes: &[Change]) {
        self.decided_about_changes(changes);
        let View { lagging, durable, .. } = self.views.entry(at).or_default();
        for change in changes {
            let Change::PutSession(record) = change else { continue };
            for rank in &record.ranks {
                durable.insert((record.id, rank.rank), rank.acknowledged);
            }
            lagging.retain(|(_, session, rank, at)| durable.get(&(*session, *rank)).is_none_or(|is| is < at));
        }
    }

    /// Checks after a tick that no position acknowledged more than `persist_ms` ago is still missing from the writer.
    pub(crate) fn ticked(&self, at: usize, now_ms: u64, persist_ms: u64) -> Result<(), String> {
        let Some(view) = self.views.get(&at) else { return Ok(()) };
        let late = view.lagging.iter().find(|(since_ms, session, ..)| {
            now_ms.saturating_sub(*since_ms) > persist_ms && !view.is_superseded(*session)
        });
        late.map_or(Ok(()), |late| Err(format!("{late:?} is not made durable at {now_ms}")))
    }
}
