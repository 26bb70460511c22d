//! A run of a cluster by its name.

use spdl_control::coordinator::{JobStatus, RunStatus, Status};

use super::CtlError;

/// The most runs that an error names.
const NAMED_RUNS: usize = 10;

/// Finds a run by its name, or by JOB/RUN.
pub(crate) fn find<'a>(status: &'a Status, name: &str) -> Result<(&'a JobStatus, &'a RunStatus), CtlError> {
    let (of_job, run) = name.split_once('/').map_or((None, name), |(job, run)| (Some(job), run));
    let all = || status.jobs.iter().flat_map(|job| job.runs.iter().map(move |run| (job, run)));
    let found: Vec<_> =
        all().filter(|(job, known)| known.name == run && of_job.is_none_or(|name| job.name == name)).collect();
    let named = |runs: &mut dyn Iterator<Item = (&JobStatus, &RunStatus)>| {
        let names: Vec<_> = runs.take(NAMED_RUNS).map(|(job, run)| format!("{}/{}", job.name, run.name)).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    match found[..] {
        [found] => Ok(found),
        [] => Err(CtlError::NoRun { run: name.to_owned(), known: named(&mut all()) }),
        _ => Err(CtlError::ManyRuns { run: name.to_owned(), known: named(&mut found.into_iter()) }),
    }
}
