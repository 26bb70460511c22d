//! Checks of streams that end before their epochs do, and of sources that come only so often.

use spdl_job::Job;
use spdl_order::WhenDone;
use spdl_types::SampleId;

use crate::{coverage::Coverage, scenario::JobDataset};

/// Returns the number of samples, over all epochs, after which the stream of a job ends.
pub(super) fn end_of(job: &Job) -> u64 {
    let of_sources = job.stages.last().filter(|stage| stage.weights.is_empty()).map(|stage| stage.from);
    let ends = [of_sources, job.total_samples, Some(job.samples * job.epochs)];
    ends.into_iter().flatten().min().expect("there is one")
}

/// Counts the samples of each source one by one, up to the end of the stream: none may give more than it may, and the stream ends where a
/// source would that ends it, or where all have given what they may.
pub(super) fn check(dataset: &JobDataset, coverage: &mut Coverage) -> Result<(), String> {
    let job = &dataset.job;
    let limits: Vec<Option<(u64, WhenDone)>> = job
        .sources
        .iter()
        .map(|source| Some((source.samples * u64::from(source.max_epochs?), source.when_done?)))
        .collect();
    let end = end_of(job);
    let mut given = vec![0_u64; limits.len()];
    if !given.is_empty() {
        for number in 0..end {
            let at = job.position_of(number);
            let SampleId(id) = dataset.plan.at(at.epoch, at.offset).id;
            let source = job.source_ids().position(|(_, ids)| ids.contains(&id));
            let source = source.ok_or_else(|| format!("sample {id} at {at} is of no source"))?;
            given[source] += 1;
            match limits[source] {
                Some((most, when_done)) if given[source] > most && when_done != WhenDone::Repeat => {
                    return Err(format!("source number {source} gives a sample at {at}, and has given all {most}"));
                }
                _ => {}
            }
        }
    }
    let is_used_up = |source: &usize| limits[*source].is_some_and(|(most, _)| given[*source] >= most);
    let used_up: Vec<usize> = (0..limits.len()).filter(is_used_up).collect();
    let is = |source: &usize, which: WhenDone| limits[*source].is_some_and(|(_, when_done)| when_done == which);
    if end < job.samples * job.epochs && job.total_samples.is_none() {
        let has_stopped = used_up.iter().any(|source| is(source, WhenDone::Stop));
        if !has_stopped && used_up.len() < limits.len() {
            return Err(format!("the stream ends after {end} samples, and its sources have given {given:?}"));
        }
        coverage.count(if has_stopped { "source_ended_the_stream" } else { "all_sources_used_up" });
    }
    if used_up.iter().any(|source| is(source, WhenDone::Reweight)) && used_up.len() < limits.len() {
        coverage.count("source_used_up_and_left_out");
    }
    if used_up.iter().any(|source| is(source, WhenDone::Repeat)) {
        coverage.count("source_began_again");
    }
    if job.stages.len() > 1 && !job.redactions.is_empty() {
        coverage.count("weights_changed_twice_and_samples_redacted");
    }
    if job.total_samples.is_some() {
        coverage.count("run_ended_after_its_samples");
    }
    Ok(())
}
