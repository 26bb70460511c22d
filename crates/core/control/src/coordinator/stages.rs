//! The stages of a job's sources: other weights from a position on that no run has reached.

use crate::messages::{JobReplacement, Refusal};
use spdl_order::BlendStage;
use spdl_types::Position;

use super::{
    CoordinatorCore,
    jobs::{JobState, RunState},
};

impl CoordinatorCore {
    /// Gives the sources of a job other weights from a sample on, or from where its runs are.
    pub(super) fn set_weights(
        &mut self,
        name: &str,
        from: Option<u64>,
        weights: Vec<u32>,
    ) -> Result<JobReplacement, Refusal> {
        let state = self.job(name)?;
        let invalid = |cause: &str| Refusal::JobInvalid { job: name.to_owned(), cause: cause.to_owned() };
        if state.job.sources.is_empty() {
            return Err(invalid("it has one `dataset`, and no sources with weights"));
        }
        let reached = self.reached(state).map(|(at, _)| state.job.samples_before(at));
        let from = from.or(reached).ok_or_else(|| {
            invalid("no run of it has got anywhere: change `weight` in its file, or name the sample to begin at")
        })?;
        let mut job = state.job.clone();
        job.stages.retain(|stage| stage.from < from);
        job.stages.push(BlendStage { from, weights });
        job.check().and_then(|()| job.check_max_epochs()).map_err(|error| invalid(&error.to_string()))?;
        self.replace_job(job)
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
}
