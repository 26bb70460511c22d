//! Changes of a job from a position of its stream on: other weights of its sources, and redactions.
//!
//! While ranks are alive, a change waits for their promises. The coordinator proposes a position that lies ahead of all ranks. A rank that
//! has handed its trainer nothing past it promises, with its next heartbeat, to hand over nothing past it before it has heard of the
//! outcome. Once all ranks have promised, the change is made durable, and only then do ranks learn of it: each one fetches the job, and
//! has all from its own position on made again by its home. If a rank was already past the position, another one is proposed. So no
//! rank goes past a change by the job as it was before, whatever process or message is lost meanwhile, and nothing is taken back. What
//! is lost with the coordinator is a proposal: the ranks then go on, and the admin proposes again. If more is lost, with its disk, the
//! coordinator learns that from ranks: see [`later_jobs`](super::later_jobs).

use crate::messages::{FromCoordinator, JobHold, JobNotice, JobReplacement, RankHeartbeat, Refusal};
use serde::{Deserialize, Serialize};
use spdl_job::Job;
use spdl_order::BLEND_PERIOD;
use spdl_types::{
    Position, SessionId,
    mutations::{Mutation, mutated},
};

use super::{
    Change, ClusterNote, CoordinatorCore, Effect,
    jobs::{JobState, RunState, differences, position_reached},
    proposed_change::{JobChange, ProposedChange},
    session::SessionState,
};

/// The least number of global batches between the rank that is furthest ahead and a change that is proposed.
const LEAST_BATCHES_AHEAD: u64 = 2;
/// The number of heartbeats whose progress lies between that rank and a change: one brings the proposal to a rank and one its promise
/// back.
const HEARTBEATS_AHEAD: f64 = 3.0;
/// The interval of heartbeats of ranks while a change is proposed, in milliseconds.
const PROPOSAL_HEARTBEAT_MS: u64 = 50;

/// A position from which on a job is another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobChangeStatus {
    /// Where it begins.
    pub at: Position,
    /// The same as the number of samples before, over all epochs.
    pub from: u64,
    /// The share of each source from there on, by its name, if the weights change. If neither they nor redactions do, the stream ends.
    pub shares: Vec<(String, f64)>,
    /// The number of samples that are redacted from there on, beside those that already are.
    pub redacted: u64,
    /// Whether it waits for ranks.
    pub is_proposed: bool,
}

impl ProposedChange {
    /// Returns where the change begins.
    fn at(&self) -> Position {
        self.job.position_of(self.from)
    }
}

impl JobChange {
    /// Returns the job with the change from a sample on, and where it begins; `None` if the job is so already.
    fn apply(&self, job: &Job, from: u64) -> Result<Option<(Job, u64)>, Refusal> {
        let invalid = |cause: String| Refusal::JobInvalid { job: job.name.clone(), cause };
        let changed = match self {
            Self::Weights(weights) => {
                let changed = job.with_weights(from, weights).map_err(|error| invalid(error.to_string()))?;
                (changed.stages != job.stages).then_some((changed, from))
            }
            Self::Redaction(samples) => job.redacting(from, samples).map_err(|error| invalid(error.to_string()))?,
        };
        if let Some((changed, _)) = &changed {
            changed.check_max_epochs().map_err(|error| invalid(error.to_string()))?;
        }
        Ok(changed)
    }

    /// Returns whether the job ends with this change, so that it need not be made once more at whatever position is the next.
    fn is_last_of(&self, job: &Job) -> bool {
        match self {
            Self::Weights(weights) => job.weights_since(weights).is_some(),
            Self::Redaction(samples) => {
                let all: Vec<_> = job.redactions.iter().map(|redaction| &redaction.samples).collect();
                samples.without(&all).is_empty()
            }
        }
    }
}

impl CoordinatorCore {
    /// Changes a job from a sample on, or from where its runs are.
    pub(super) fn change_job(
        &mut self,
        name: &str,
        named: Option<u64>,
        change: JobChange,
    ) -> Result<FromCoordinator, Refusal> {
        let state = self.job(name)?;
        let invalid = |cause: &str| Refusal::JobInvalid { job: name.to_owned(), cause: cause.to_owned() };
        if matches!(change, JobChange::Weights(_)) && state.job.sources.is_empty() {
            return Err(invalid("it has one `dataset`, and no sources with weights"));
        }
        let is_made = match named {
            None => change.is_last_of(&state.job),
            Some(named) => change.apply(&state.job, named)?.is_none(),
        };
        if is_made && state.proposed.is_none() {
            return Ok(FromCoordinator::Replaced(JobReplacement::Unchanged));
        }
        if let Some(proposed) = &state.proposed {
            return match proposed.change.as_ref() == Some(&change) && proposed.named == named {
                true => Ok(self.changing(state, proposed)),
                false => {
                    Err(invalid("another change of it waits for the promises of its ranks; try again when it is made"))
                }
            };
        }
        if self.living(state).next().is_some() {
            return self.propose(name, named, LEAST_BATCHES_AHEAD, change);
        }
        self.change_at_rest(name, named, &change).map(FromCoordinator::Replaced)
    }

    /// Changes a job of which no rank is alive.
    fn change_at_rest(
        &mut self,
        name: &str,
        named: Option<u64>,
        change: &JobChange,
    ) -> Result<JobReplacement, Refusal> {
        let state = self.job(name)?;
        let reached = self.reached(state).map(|(at, _)| state.job.samples_before(at));
        let first = matches!(change, JobChange::Redaction(_)).then_some(0);
        let from = named.or(reached).or(first).ok_or_else(|| Refusal::JobInvalid {
            job: name.to_owned(),
            cause: "no run of it has got anywhere: change `weight` in its file, or name the sample to begin at"
                .to_owned(),
        })?;
        match change.apply(&state.job, from)? {
            Some((job, _)) => self.replace_job_as_it_is(job),
            None => Ok(JobReplacement::Unchanged),
        }
    }

    /// Proposes a change to the ranks that are alive.
    fn propose(
        &mut self,
        name: &str,
        named: Option<u64>,
        batches_ahead: u64,
        change: JobChange,
    ) -> Result<FromCoordinator, Refusal> {
        let state = self.job(name)?;
        let (furthest, run) = self.furthest_of_living(state);
        let from = match named {
            Some(named) if named < furthest => {
                return Err(position_reached(&state.job, state.job.position_of(furthest), &run));
            }
            Some(named) => named,
            None => furthest.saturating_add(self.ahead(state, batches_ahead)),
        };
        let Some((job, from)) = change.apply(&state.job, from)? else {
            return Ok(FromCoordinator::Replaced(JobReplacement::Unchanged));
        };
        let job = job.after(&state.job);
        let fingerprint = job.fingerprint();
        let proposed = ProposedChange { change: Some(change), named, from, batches_ahead, job, fingerprint };
        let note = ClusterNote::JobChangeProposed {
            job: name.to_owned(),
            differences: differences(&state.job, &proposed.job),
            at: proposed.at(),
        };
        let state = self.jobs.get_mut(name).expect("it was just found");
        state.proposed = Some(Box::new(proposed));
        self.log(note);
        self.advance_change(name);
        let state = self.job(name)?;
        Ok(match &state.proposed {
            Some(proposed) => self.changing(state, proposed),
            None => FromCoordinator::Replaced(JobReplacement::Unchanged),
        })
    }

    /// Returns the answer to the admin while a change waits.
    fn changing(&self, state: &JobState, proposed: &ProposedChange) -> FromCoordinator {
        let missing = self.living(state).flat_map(|session| {
            let late = |rank: &u32| (session.run.as_str(), *rank);
            session.unpromised(proposed.fingerprint).map(late).collect::<Vec<_>>()
        });
        let missing: Vec<(&str, u32)> = missing.collect();
        let absent = self.living(state).find(|session| !session.has_all_ranks());
        let waiting = match missing.first() {
            Some((run, rank)) if missing.len() > 1 => {
                format!("rank {rank} of run `{run}` and {} more", missing.len() - 1)
            }
            Some((run, rank)) => format!("rank {rank} of run `{run}`"),
            None => absent
                .map_or_else(|| "nothing".to_owned(), |of| format!("ranks of run `{}` that are to join again", of.run)),
        };
        FromCoordinator::Changing { at: proposed.at(), waiting }
    }

    /// Goes on with the change that is proposed for a job: makes it if nothing stands in the way any more, proposes another position if a
    /// rank is past this one, or gives it up if the admin has named the position.
    pub(super) fn advance_change(&mut self, name: &str) {
        let Some(state) = self.jobs.get(name) else { return };
        let Some(proposed) = state.proposed.clone() else { return };
        if state.failed.is_some() {
            return self.drop_change(name, "the job has failed");
        }
        let is_at_rest = self.living(state).next().is_none();
        let Some(change) = proposed.change.clone() else {
            if !is_at_rest && self.end_divided(name, &proposed) {
                return self.advance_change(name);
            }
            if self.is_promised(&self.jobs[name], &proposed) {
                self.make_change(name, *proposed);
            }
            return;
        };
        let (furthest, _) = self.furthest_of_living(state);
        let is_promised = self.is_promised(state, &proposed);
        if is_at_rest {
            self.withdraw(name);
            if let Err(refusal) = self.change_at_rest(name, proposed.named, &change) {
                self.drop_change(name, &refusal.to_string());
            }
            return;
        }
        if furthest > proposed.from {
            self.withdraw(name);
            let batches_ahead = proposed.batches_ahead.saturating_mul(2);
            if let Err(refusal) = self.propose(name, proposed.named, batches_ahead, change) {
                self.drop_change(name, &refusal.to_string());
            }
            return;
        }
        if is_promised || mutated(Mutation::ChangeUnpromised) {
            self.make_change(name, *proposed);
        }
    }

    fn withdraw(&mut self, name: &str) {
        if let Some(state) = self.jobs.get_mut(name) {
            state.proposed = None;
        }
    }

    pub(super) fn drop_change(&mut self, name: &str, cause: &str) {
        self.withdraw(name);
        self.log(ClusterNote::JobChangeDropped { job: name.to_owned(), cause: cause.to_owned() });
    }

    /// Makes a change that the ranks of all living sessions wait for. All other sessions are over for good: a rank of them that was only
    /// silent has promised nothing.
    fn make_change(&mut self, name: &str, proposed: ProposedChange) {
        let state = &self.jobs[name];
        let living: Vec<SessionId> = self.living(state).map(|session| session.id).collect();
        let others: Vec<SessionId> =
            state.runs.values().flat_map(|run| run.sessions.clone()).filter(|id| !living.contains(id)).collect();
        let differences = differences(&state.job, &proposed.job);
        others.into_iter().for_each(|id| self.outdate(id));
        let state = self.jobs.get_mut(name).expect("it was just found");
        state.proposed = None;
        (state.fingerprint, state.job) = (proposed.fingerprint, proposed.job);
        let record = state.record();
        if !mutated(Mutation::ForgetStages) {
            self.effects.push_back(Effect::Persist(Change::PutJob(record)));
        }
        self.log(ClusterNote::JobReplaced { job: name.to_owned(), differences });
    }

    /// Records what a rank's heartbeat says of changes, and returns what the rank has to know of them.
    pub(super) fn notice(&mut self, heartbeat: &RankHeartbeat) -> JobNotice {
        let theirs = heartbeat.fingerprint;
        let state = self.jobs.get_mut(&heartbeat.job).expect("a session's job is there");
        if let Some(proposed) = &mut state.proposed {
            let has_it = theirs == proposed.fingerprint;
            if has_it {
                // It was made before the coordinator lost it, and is proposed once more.
                proposed.change = None;
            }
            let is_past = !has_it && state.job.samples_before(heartbeat.handed) > proposed.from;
            let promises = has_it || heartbeat.promise.is_some_and(|hold| hold.change == proposed.fingerprint);
            // Of many ranks, most have no say in it: one that has not promised yet is found soon.
            let state = &self.jobs[&heartbeat.job];
            let is_promised = |proposed: &ProposedChange| promises && self.is_promised(state, proposed);
            if is_past || state.proposed.as_deref().is_some_and(is_promised) {
                self.advance_change(&heartbeat.job);
            }
        }
        let unknown = self.unknown_promise(heartbeat);
        let state = &self.jobs[&heartbeat.job];
        let fingerprint = state.fingerprint;
        let Some(proposed) = &state.proposed else { return JobNotice { fingerprint, hold: unknown } };
        if theirs == proposed.fingerprint {
            return JobNotice { fingerprint: theirs, hold: None };
        }
        let hold = Some(JobHold { change: proposed.fingerprint, from: proposed.from });
        if !proposed.is_known() {
            return JobNotice { fingerprint, hold: unknown.or(hold) };
        }
        // A version between the two stays until the later one is made.
        JobNotice { fingerprint: if state.is_or_was(theirs) { fingerprint } else { theirs }, hold }
    }

    /// Returns the interval of the heartbeats of a session's ranks: many ranks report no more often than they do otherwise.
    pub(super) fn rank_heartbeat_ms(&self, session: SessionId, notice: &JobNotice) -> u64 {
        let heartbeat_ms = self.config.heartbeat_ms;
        let ranks = self.sessions.get(&session).map_or(0, |session| session.ranks.len() as u64);
        let often_ms = PROPOSAL_HEARTBEAT_MS.max(ranks / 8);
        if notice.hold.is_some() { heartbeat_ms.min(often_ms) } else { heartbeat_ms }
    }

    /// Returns whether all ranks of living sessions have promised to wait for a change, or go by the changed job.
    fn is_promised(&self, state: &JobState, proposed: &ProposedChange) -> bool {
        let change = proposed.fingerprint;
        let has_it = |session: &SessionState| session.ranks.values().all(|rank| rank.job == Some(change));
        self.living(state)
            .all(|session| has_it(session) || (session.has_all_ranks() && session.unpromised(change).next().is_none()))
    }

    /// Returns the job of a session as it is now, for a rank that has heard that it changed.
    pub(super) fn session_job(
        &mut self,
        session: SessionId,
        name: &str,
        (rank, nonce): (u32, u64),
    ) -> Result<FromCoordinator, Refusal> {
        let found = self.sessions.get_mut(&session).filter(|found| found.job == name);
        let found = found.ok_or(Refusal::UnknownSession { session })?;
        found.superseded()?;
        let rank = found.ranks.get_mut(&rank).filter(|rank| rank.nonce == nonce);
        rank.ok_or(Refusal::UnknownSession { session })?.heard_ms = self.now_ms;
        let epochs = found.epochs;
        Ok(FromCoordinator::Job(Box::new(Job { epochs, ..self.job(name)?.job.clone() })))
    }

    /// Returns the furthest position that a rank of a run of the job has reached, and the run; `None` if none has got anywhere. Launches
    /// before a reset of their run do not count.
    pub(super) fn reached<'j>(&self, state: &'j JobState) -> Option<(Position, &'j str)> {
        let of_run = |(name, run): (&'j String, &RunState)| {
            let since_reset = run.sessions.rsplit(|id| self.sessions[id].is_reset).next()?;
            let reached = since_reset.iter().map(|id| self.sessions[id].furthest()).max();
            reached.map(|at| (at, name.as_str()))
        };
        state.runs.iter().filter_map(of_run).max().filter(|(at, _)| *at > Position::START)
    }

    /// Iterates over the sessions of a job with ranks that are alive.
    pub(super) fn living<'c>(&'c self, state: &'c JobState) -> impl Iterator<Item = &'c SessionState> {
        let newest = state.runs.values().filter_map(|run| run.sessions.last());
        let sessions = newest.filter_map(|id| self.sessions.get(id));
        sessions.filter(|session| !session.is_over(self.now_ms, self.config.liveness_ms))
    }

    /// Returns the furthest sample that any rank has reached, or that was handed to the trainer of one in a living session, and its run.
    fn furthest_of_living(&self, state: &JobState) -> (u64, String) {
        let living = self.living(state).map(|session| (session.furthest_handed(), session.run.as_str()));
        let furthest = living.chain(self.reached(state)).max();
        furthest.map_or((0, String::new()), |(at, run)| (state.job.samples_before(at), run.to_owned()))
    }

    /// Returns the number of samples between the furthest rank and a change.
    fn ahead(&self, state: &JobState, batches: u64) -> u64 {
        let batch = self.living(state).map(|session| u64::from(session.global_batch)).max().unwrap_or(1);
        let ranks = self.living(state).flat_map(|session| session.ranks.values());
        let rates = ranks.filter_map(|rank| rank.progress(state.job.samples));
        let rate = rates.map(|progress| progress.samples as f64 / progress.seconds).fold(0.0, f64::max);
        let samples = rate * HEARTBEATS_AHEAD * self.config.heartbeat_ms as f64 / 1e3;
        batch.saturating_mul(batches.max((samples / batch as f64).ceil() as u64))
    }

    /// Returns the positions from which on a job is another one, beginning with its start.
    pub(super) fn job_changes(&self, state: &JobState) -> Vec<JobChangeStatus> {
        let job = &state.job;
        let shares = |weights: &[u32]| {
            let share = |weight: &u32| f64::from(*weight) / f64::from(BLEND_PERIOD);
            job.sources.iter().map(|source| source.name.clone()).zip(weights.iter().map(share)).collect::<Vec<_>>()
        };
        let change = |from: u64, weights: &[u32], redacted: u64, is_proposed: bool| JobChangeStatus {
            at: job.position_of(from),
            from,
            shares: shares(weights),
            redacted,
            is_proposed,
        };
        let first: Vec<u32> = job.sources.iter().map(|source| source.weight).collect();
        let mut changes = vec![change(0, &first, 0, false)];
        changes.extend(job.stages.iter().map(|stage| change(stage.from, &stage.weights, 0, false)));
        changes.extend(job.redactions.iter().map(|of| change(of.from, &[], of.samples.len(), false)));
        changes.sort_by_key(|change| change.from);
        if let Some(proposed) = &state.proposed {
            let stage = proposed.job.stages.iter().find(|stage| stage.from == proposed.from);
            let redaction = proposed.job.redactions.iter().find(|of| of.from == proposed.from);
            let weights = stage.map_or(&[][..], |stage| &stage.weights);
            changes.push(change(proposed.from, weights, redaction.map_or(0, |of| of.samples.len()), true));
        }
        if changes.len() == 1 { Vec::new() } else { changes }
    }
}
