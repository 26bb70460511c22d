//! Operations on whole runs: resetting one, and listing the bad samples that an audit of its receipts needs.

use crate::messages::{BAD_SAMPLES_PAGE, FromCoordinator, Refusal, RunName};
use spdl_types::SampleId;

use super::{ClusterNote, CoordinatorCore, rank_state::RankState};

/// The number of runs that a refusal names.
const NAMED_RUNS: usize = 10;

impl CoordinatorCore {
    /// Makes the run's next launch start at the beginning. The newest session stays, marked as reset: its ranks are
    /// refused if they were only silent and come back, and its id prevents ranks of earlier sessions from continuing.
    pub(super) fn reset_run(&mut self, name: RunName) -> Result<FromCoordinator, Refusal> {
        let runs = &self.job_or_failed(&name.job)?.runs;
        let Some(id) = runs.get(&name.run).and_then(|run| run.sessions.last().copied()) else {
            let mut known: Vec<&str> = runs.keys().take(NAMED_RUNS).map(String::as_str).collect();
            if runs.len() > known.len() {
                known.push("...");
            }
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Refusal::UnknownRun { job: name.job, run: name.run, known });
        };
        let session = &self.sessions[&id];
        if !session.is_over(self.now_ms, self.config.liveness_ms) {
            return Err(self.in_use(session));
        }
        if session.is_reset {
            return Ok(FromCoordinator::Done);
        }
        let acknowledged = session.acknowledged();
        let session = self.sessions.get_mut(&id).expect("it was just found");
        session.is_reset = true;
        session.ranks.values_mut().for_each(RankState::leave_home);
        self.uncount_session(id);
        self.home_changes += 1;
        self.persist_session(id);
        self.log(ClusterNote::RunReset { run: name, session: id, acknowledged });
        Ok(FromCoordinator::Done)
    }

    /// Returns a page of the ids of a job's bad samples, from the first id above `after`.
    pub(super) fn bad_samples(&self, job: &str, after: Option<SampleId>) -> Result<FromCoordinator, Refusal> {
        let mut samples = self.job_or_failed(job)?.ledger.page(after, BAD_SAMPLES_PAGE + 1);
        let is_last = samples.len() <= BAD_SAMPLES_PAGE;
        samples.truncate(BAD_SAMPLES_PAGE);
        Ok(FromCoordinator::BadSamples { samples, is_last })
    }
}
