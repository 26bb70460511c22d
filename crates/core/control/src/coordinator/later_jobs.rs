//! Ranks that know a later version of their job than the coordinator, whose disk was lost or is an earlier copy.
//!
//! A rank only ever hears of a change after it was durable. So a job that a rank goes by was decided once, and the coordinator takes it
//! over if its own job is an earlier version of it. Until all ranks of its living sessions have promised to wait where the two versions
//! part, it is [proposed](super::changes), with two differences: ranks that go by it already count as promised, and its position stays. A
//! session with a rank that is past the position by the earlier version is over. Of two versions neither of which is the earlier one, the
//! coordinator keeps its own, and the ranks of the other end.
//!
//! A rank that waits for the outcome of a change of which the coordinator knows nothing goes on waiting until all ranks of its session
//! have said by which job they go: one that has learned that the change was made says so. A coordinator that was only killed hears all of
//! them within a heartbeat.

use crate::messages::{JobHold, Join, RankHeartbeat, Refusal, RunName, Start};
use spdl_job::Job;
use spdl_types::{Fingerprint, Position, SessionId};

use super::{
    ClusterNote, CoordinatorCore,
    jobs::{JobState, differences},
    proposed_change::ProposedChange,
    rank_state::RankState,
};

/// The version of its job that a rank goes by which joins.
pub(super) enum JobOfRank {
    /// The latest that the coordinator has heard of.
    Latest,
    /// The one that the coordinator has.
    Current,
    /// Another one.
    Brought(Box<Job>),
}

impl JobState {
    /// Returns the latest version of the job that the coordinator has heard of.
    fn latest(&self) -> (&Job, Fingerprint) {
        match self.proposed.as_deref().filter(|proposed| proposed.is_known()) {
            Some(proposed) => (&proposed.job, proposed.fingerprint),
            None => (&self.job, self.fingerprint),
        }
    }

    /// Returns a version of the job.
    pub(super) fn version(&self, of_rank: &JobOfRank) -> (Job, Fingerprint) {
        let (job, fingerprint) = match of_rank {
            JobOfRank::Latest => self.latest(),
            JobOfRank::Current => (&self.job, self.fingerprint),
            JobOfRank::Brought(job) => (&**job, job.fingerprint()),
        };
        (job.clone(), fingerprint)
    }

    /// Returns whether the coordinator has the job with this fingerprint, or a later version of it.
    pub(super) fn is_or_was(&self, fingerprint: Fingerprint) -> bool {
        fingerprint == self.fingerprint || self.job.comes_after(fingerprint)
    }

    /// Returns whether the coordinator has heard of the version with this fingerprint.
    pub(super) fn knows(&self, fingerprint: Fingerprint) -> bool {
        self.is_or_was(fingerprint) || self.proposed.as_ref().is_some_and(|proposed| proposed.knows(fingerprint))
    }
}

impl ProposedChange {
    /// Returns whether ranks go by it already.
    pub(super) const fn is_known(&self) -> bool {
        self.change.is_none()
    }

    /// Returns whether ranks may go by the version with this fingerprint, as this is the proposed one or an earlier one.
    fn knows(&self, fingerprint: Fingerprint) -> bool {
        fingerprint == self.fingerprint || (self.is_known() && self.job.comes_after(fingerprint))
    }
}

impl CoordinatorCore {
    /// Returns the version of the job that a rank goes by which joins: the version that it brings along if it joins again, and otherwise the
    /// latest.
    pub(super) fn job_of_rank(&self, join: &Join) -> Result<JobOfRank, Refusal> {
        let state = self.job(&join.job)?;
        let differs = |theirs: Fingerprint, ours: Fingerprint| Refusal::FingerprintDiffers {
            job: join.job.clone(),
            theirs,
            ours,
        };
        let (Some(session), Some(theirs)) = (join.session, join.fingerprint) else {
            let (job, fingerprint) = state.latest();
            let saved_at = match join.start {
                Start::At(at) if join.session.is_none() => at,
                _ => Position::START,
            };
            return match join.fingerprint {
                Some(theirs) if theirs != fingerprint && !job.continues(theirs, saved_at) => {
                    Err(differs(theirs, job.fingerprint_up_to(saved_at)))
                }
                _ => Ok(JobOfRank::Latest),
            };
        };
        if theirs == state.fingerprint || state.job.is_identified_by(theirs) {
            return Ok(JobOfRank::Current);
        }
        let Some(changes) = &join.changes else { return Err(differs(theirs, state.fingerprint)) };
        let (stages, redactions) = (changes.stages.clone(), changes.redactions.clone());
        let job = Job { stages, redactions, earlier: changes.earlier.clone(), ..state.job.clone() };
        if job.fingerprint() != theirs {
            return Err(differs(theirs, state.fingerprint));
        }
        job.check().map_err(|error| Refusal::JobInvalid { job: join.job.clone(), cause: error.to_string() })?;
        let is_later = job.comes_after(state.fingerprint)
            && match state.proposed.as_ref().filter(|proposed| proposed.is_known()) {
                Some(proposed) => proposed.knows(theirs) || job.comes_after(proposed.fingerprint),
                None => true,
            };
        // The change was made with its promise, and so with those of all ranks of its session.
        let is_promised = changes.hold.is_some_and(|hold| hold.change == state.fingerprint);
        if is_later || (is_promised && state.job.comes_after(theirs)) {
            return Ok(JobOfRank::Brought(Box::new(job)));
        }
        Err(self.outdated(join, session))
    }

    pub(super) fn outdated(&self, join: &Join, session: SessionId) -> Refusal {
        let run = RunName { job: join.job.clone(), run: join.run.clone() };
        Refusal::SessionOutdated { run: Box::new(run), session, rank: join.rank }
    }

    /// Takes over the version of a job that a rank goes by, if it is a later one.
    pub(super) fn learn(&mut self, join: &Join, job: Job) {
        let state = &self.jobs[&join.job];
        let fingerprint = job.fingerprint();
        if !job.comes_after(state.fingerprint) {
            return;
        }
        if let Some(proposed) = &state.proposed {
            if proposed.is_known() && proposed.knows(fingerprint) {
                return;
            }
            if !proposed.is_known() && fingerprint != proposed.fingerprint {
                self.drop_change(&join.job, "a rank knows of a change that the coordinator has lost");
            }
        }
        let state = self.jobs.get_mut(&join.job).expect("it was just found");
        let from = state.job.samples_in_common(&job).unwrap_or(0);
        let note = ClusterNote::JobChangeFound {
            job: join.job.clone(),
            differences: differences(&state.job, &job),
            at: job.position_of(from),
            rank: join.rank,
            run: join.run.clone(),
        };
        state.proposed = Some(Box::new(ProposedChange {
            change: None,
            named: Some(from),
            from,
            batches_ahead: 0,
            job,
            fingerprint,
        }));
        self.log(note);
        self.advance_change(&join.job);
    }

    /// Ends the sessions that cannot take part in a change that ranks know: one of their ranks is past it by the job as it was. Returns
    /// whether there was one.
    pub(super) fn end_divided(&mut self, name: &str, proposed: &ProposedChange) -> bool {
        let state = &self.jobs[name];
        let is_past = |rank: &RankState| {
            rank.job.is_some_and(|job| job != proposed.fingerprint && state.is_or_was(job))
                && state.job.samples_before(rank.furthest()) > proposed.from
        };
        let divided = self.living(state).filter(|session| session.ranks.values().any(is_past));
        let divided: Vec<SessionId> = divided.map(|session| session.id).collect();
        divided.iter().for_each(|id| self.outdate(*id));
        !divided.is_empty()
    }

    /// Ends a session whose job has changed without all of its ranks.
    pub(super) fn outdate(&mut self, id: SessionId) {
        self.sessions.get_mut(&id).expect("a run has its sessions").is_outdated = true;
        self.persist_session(id);
    }

    /// Returns the change for which a rank waits, if the coordinator does not know what has become of it.
    pub(super) fn unknown_promise(&self, heartbeat: &RankHeartbeat) -> Option<JobHold> {
        let state = &self.jobs[&heartbeat.job];
        let session = self.sessions.get(&heartbeat.session)?;
        let rank = session.ranks.get(&heartbeat.rank)?;
        let hold = heartbeat.promise.filter(|hold| rank.brought == Some(hold.change))?;
        let is_said = |rank: &RankState| rank.left || rank.job.is_some_and(|job| state.is_or_was(job));
        let is_settled = session.is_full() && session.ranks.values().all(is_said);
        let is_unknown = !state.is_or_was(hold.change) && !is_settled;
        is_unknown.then_some(hold)
    }
}
