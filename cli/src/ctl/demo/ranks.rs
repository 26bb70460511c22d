//! The demo's ranks: four `spdl-ctl pull` processes, their progress and their reports.

use std::time::Instant;

use futures::future::try_join_all;
use indicatif::{MultiProgress, ProgressBar};
use serde::{Deserialize, Serialize};
use spdl_control::Role;
use spdl_order::{BatchParams, Plan};
use spdl_types::Position;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::watch,
};

use super::{JOB, WORLD};
use crate::ctl::{
    CtlError,
    progress::samples_bar,
    servers::{self, LocalCluster},
    tally::PullReport,
};

/// The nodes that the ranks report as theirs: the first worker's for two of them, one without a worker for the others.
const NODES: [&str; WORLD as usize] = ["demo-node-a", "demo-node-a", "demo-node-c", "demo-node-c"];
const LABELS: [&str; WORLD as usize] = ["rank 0", "rank 1", "rank 2", "rank 3"];

/// A line of `pull --json --progress`: statistics on the way, or the report at the end.
#[derive(Deserialize)]
#[serde(untagged)]
enum RankLine {
    Progress { progress: u64, home: Option<String> },
    Report(Box<PullReport>),
}

/// How far a rank is.
#[derive(Clone, Debug, Default)]
pub(super) struct DemoRankProgress {
    samples: u64,
    home: Option<String>,
    is_done: bool,
}

/// How far each rank is.
pub(super) type RanksProgress = watch::Sender<[DemoRankProgress; WORLD as usize]>;

/// Runs all ranks to the end, draws their bars and publishes how far they are.
pub(super) async fn run(
    cluster: &LocalCluster,
    per_rank: u64,
    bars: &MultiProgress,
    ranks: &RanksProgress,
) -> Result<Vec<PullReport>, CtlError> {
    let pulls = (0..WORLD).map(|rank| {
        let bar = bars.add(samples_bar(bars.is_hidden(), per_rank, LABELS[rank as usize]));
        pull(cluster, rank, bar, ranks)
    });
    try_join_all(pulls).await
}

/// What the death of a worker cost the ranks that it served.
#[derive(Debug, Serialize)]
pub(super) struct Failover {
    /// The worker that was killed.
    pub(super) worker: &'static str,
    /// Samples that all ranks together had pulled when the worker was killed.
    pub(super) at_samples: u64,
    /// The ranks that the worker served.
    pub(super) ranks: Vec<usize>,
    /// Seconds until the last of these ranks had pulled a batch from another worker.
    pub(super) seconds: f64,
}

/// Kills `worker` with SIGKILL once all ranks together have pulled `at_samples`, and waits until each rank that it
/// served pulls from another worker. Returns `None` if the ranks ended before.
pub(super) async fn kill(
    cluster: &LocalCluster,
    worker: &'static str,
    at_samples: u64,
    bars: &MultiProgress,
    ranks: &RanksProgress,
) -> Result<Option<Failover>, CtlError> {
    let show = |text: String| bars.println(text).map_err(CtlError::Runtime);
    let is_at = |rank: &DemoRankProgress| !rank.is_done && rank.home.as_deref() == Some(worker);
    let mut progress = ranks.subscribe();
    let pulled = |ranks: &[DemoRankProgress; WORLD as usize]| ranks.iter().map(|rank| rank.samples).sum::<u64>();
    let (at_samples, served) = {
        let now = progress.wait_for(|ranks| pulled(ranks) >= at_samples).await.expect("the sender is here");
        (pulled(&now), (0..now.len()).filter(|rank| is_at(&now[*rank])).collect::<Vec<_>>())
    };
    if served.is_empty() {
        return Ok(None);
    }
    cluster.kill(worker)?;
    let killed = Instant::now();
    show(format!("{worker} was killed (SIGKILL) after {at_samples} samples"))?;
    let has_moved = |ranks: &[DemoRankProgress; WORLD as usize]| served.iter().all(|rank| !is_at(&ranks[*rank]));
    drop(progress.wait_for(|ranks| has_moved(ranks)).await.expect("the sender is here"));
    let seconds = killed.elapsed().as_secs_f64();
    show(format!("the ranks that it served go on at another worker after {seconds:.1} s"))?;
    Ok(Some(Failover { worker, at_samples, ranks: served, seconds }))
}

/// Samples that all epochs deliver.
pub(super) fn samples(plan: &Plan, batches: &BatchParams) -> u64 {
    batches.steps_left(plan.samples(), Position::START) * u64::from(batches.global_batch)
}

async fn pull(
    cluster: &LocalCluster,
    rank: u32,
    bar: ProgressBar,
    ranks: &RanksProgress,
) -> Result<PullReport, CtlError> {
    let failed = |cause: String| CtlError::Start { name: format!("rank {rank}"), cause };
    let mut command = servers::program()?;
    command.args([
        "pull",
        "--json",
        "--progress",
        "--from",
        "0:0",
        "--job",
        JOB,
        "--coord",
        cluster.coordinator_addr(),
    ]);
    command.args(["--rank", &rank.to_string(), "--world", &WORLD.to_string()]);
    command.arg("--certs").arg(cluster.certs(Role::Client));
    command.env("SPDL_NODE", NODES[rank as usize]);
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let mut output = BufReader::new(child.stdout.take().expect("standard output is a pipe")).lines();
    let mut report = None;
    while let Some(line) = output.next_line().await.map_err(|error| failed(error.to_string()))? {
        match serde_json::from_str(&line)
            .map_err(|error| failed(format!("its line `{line}` is not what was expected: {error}")))?
        {
            RankLine::Progress { progress, home } => {
                bar.set_position(progress);
                let now = DemoRankProgress { samples: progress, home, is_done: false };
                ranks.send_modify(|ranks| ranks[rank as usize] = now);
            }
            RankLine::Report(last) => report = Some(*last),
        }
    }
    child.wait().await.map_err(|error| failed(error.to_string()))?;
    bar.finish();
    let report = report.ok_or_else(|| failed("it ended without a report; see its messages above".to_owned()))?;
    let done = DemoRankProgress { samples: report.samples, home: None, is_done: true };
    ranks.send_modify(|ranks| ranks[rank as usize] = done);
    Ok(report)
}
