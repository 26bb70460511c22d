//! The two runs that are compared: read from files or from the coordinator, and whether they are alike.

use std::{collections::BTreeMap, path::Path};

use spdl_client::{REPORT_VERSION, ReportedBy, RunReport, report_content};
use spdl_control::coordinator::{JobStatus, RankStatus, SessionStatus, Status, WorkerStatus};
use spdl_insight::rates::StageRate;
use spdl_job::Job;
use spdl_types::Stage;

use super::report_file;
use crate::ctl::{CtlError, coordinator::Connection, job, named_run, status};

/// Reads both sides. What is the name of a file is that file, what ends with `.json` must be one, and all else is a run of the cluster.
pub(super) async fn read(names: [&str; 2], connection: &Connection) -> Result<[RunReport; 2], CtlError> {
    let [base, run] = names;
    Ok([read_one(base, connection).await?, read_one(run, connection).await?])
}

async fn read_one(name: &str, connection: &Connection) -> Result<RunReport, CtlError> {
    let path = Path::new(name);
    if path.is_file() || path.extension().is_some_and(|extension| extension == "json") {
        return report_file::read(path);
    }
    of_run(name, connection).await
}

/// Returns the report of a run of the cluster.
pub(crate) async fn of_run(name: &str, connection: &Connection) -> Result<RunReport, CtlError> {
    let (_, status) = status::ask(connection).await?;
    let (found, run) = named_run::find(&status, name)?;
    let session = status.sessions.iter().find(|session| session.session == run.session);
    let session = session.ok_or(CtlError::NoSession { session: run.session })?;
    let job = job::describe(connection, &found.name).await?;
    Ok(of_session(&status, found, session, &job))
}

/// Returns the report of a session, as the coordinator saw it.
fn of_session(status: &Status, of_job: &JobStatus, session: &SessionStatus, job: &Job) -> RunReport {
    let (dataset, columns) = report_content(job);
    let global_batch = f64::from(session.global_batch.max(1));
    let samples_per_s = session.progress.mean_samples_per_s;
    let of_run = of_job.runs.iter().find(|run| run.name == session.run);
    let served = served(status, session);
    let decoded_per_s: f64 =
        served.iter().filter_map(|worker| rate(worker, &Stage::Decode)).map(|rate| rate.items_per_s).sum();
    let per_sample = |value: f64| (decoded_per_s > 0.0 && value > 0.0).then_some(value / decoded_per_s);
    let mut cpu = BTreeMap::new();
    for stage in served.iter().flat_map(|worker| lately(worker)) {
        *cpu.entry(stage.stage.name().to_owned()).or_insert(0.0) += stage.cpu;
    }
    let cpu_s_per_sample = cpu.into_iter().filter_map(|(stage, cpu)| Some((stage, per_sample(cpu)?))).collect();
    let waits = |rank: &&RankStatus| rank.waiting.unwrap_or_default();
    let worst = session.ranks.iter().max_by(|one, other| waits(one).total_cmp(&waits(other)));
    RunReport {
        spdl_report: REPORT_VERSION,
        reported_by: ReportedBy::Coordinator,
        job: session.job.clone(),
        run: session.run.clone(),
        dataset,
        columns,
        world: session.world,
        global_batch: session.global_batch,
        batches: session.progress.session_samples.div_ceil(u64::from(session.global_batch.max(1))),
        repeated_batches: 0,
        seconds: session.lasted_ms.map_or(0.0, |lasted_ms| lasted_ms as f64 / 1e3),
        batches_per_s: samples_per_s.map(|rate| rate / global_batch),
        samples_per_s,
        waiting: session.progress.waited,
        bytes_per_sample: None,
        cpu_s_per_sample,
        bad_fraction: of_job.bad_fraction,
        sources: of_run.map_or_else(Vec::new, |run| run.sources.clone()),
        limit: worst.and_then(|rank| rank.diagnosis.as_ref()?.limit),
        verdict: session.verdict.clone(),
    }
}

/// Returns the workers that serve ranks of this session and of no other, so that what they do is done for it.
fn served<'s>(status: &'s Status, session: &SessionStatus) -> Vec<&'s WorkerStatus> {
    let is_of_it = |worker: &&WorkerStatus| {
        !worker.ranks.is_empty() && worker.ranks.iter().all(|rank| rank.session == session.session)
    };
    status.workers.iter().filter(is_of_it).collect()
}

/// Returns what the stages of a worker did in the longest window.
fn lately(worker: &WorkerStatus) -> &[StageRate] {
    worker.windows.last().map_or(&[], |window| &window.stages)
}

fn rate<'w>(worker: &'w WorkerStatus, stage: &Stage) -> Option<&'w StageRate> {
    lately(worker).iter().find(|rate| rate.stage == *stage)
}

/// Returns in what two runs are not alike, so that a figure of one says nothing about the other.
pub(super) fn differences(base: &RunReport, run: &RunReport) -> Vec<String> {
    let mut differences = Vec::new();
    let names = base.columns.keys().chain(run.columns.keys());
    let mut columns: Vec<&str> =
        names.filter(|name| base.columns.get(*name) != run.columns.get(*name)).map(String::as_str).collect();
    columns.sort_unstable();
    columns.dedup();
    for name in columns {
        differences.push(match (base.columns.get(name), run.columns.get(name)) {
            (Some(_), Some(_)) => format!("column `{name}` is not made alike"),
            (Some(_), None) => format!("column `{name}` is only in the first"),
            _ => format!("column `{name}` is only in the second"),
        });
    }
    if base.dataset != run.dataset {
        differences.push("they read other datasets, or other views of one".to_owned());
    }
    for (what, one, other) in
        [("batches of {} samples", base.global_batch, run.global_batch), ("{} ranks", base.world, run.world)]
    {
        if one != other {
            let [one, other] = [one, other].map(|number| what.replace("{}", &number.to_string()));
            differences.push(format!("the first has {one}, and the second {other}"));
        }
    }
    if base.reported_by != run.reported_by {
        differences.push("one was measured by its loader, from its first batch on, and the other by the coordinator, from the first rank on".to_owned());
    }
    differences
}
