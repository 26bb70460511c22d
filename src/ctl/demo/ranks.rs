//! The demo's ranks: four `spdl-ctl pull` processes, their progress and their reports.

use futures::future::try_join_all;
use indicatif::{MultiProgress, ProgressBar};
use serde::Deserialize;
use spdl_shard::{
    Position,
    order::{BatchParams, Plan},
};
use spdl_wire::certs::Role;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{
    JOB, WORLD,
    cluster::{self, Cluster},
};
use crate::ctl::{CtlError, progress::samples_bar, tally::PullReport};

/// Nodes the ranks say they are on: the first worker's for two of them, one without a worker for the others.
const NODES: [&str; WORLD as usize] = ["demo-node-a", "demo-node-a", "demo-node-c", "demo-node-c"];
const LABELS: [&str; WORLD as usize] = ["rank 0", "rank 1", "rank 2", "rank 3"];

/// A line of `pull --json --progress`: figures on the way, or the report at the end.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Progress { progress: u64 },
    Report(Box<PullReport>),
}

/// Runs all ranks to the end.
pub(super) async fn run(
    cluster: &Cluster,
    plan: &Plan,
    batches: &BatchParams,
    quiet: bool,
) -> Result<Vec<PullReport>, CtlError> {
    let bars = MultiProgress::new();
    let per_rank = samples(plan, batches) / u64::from(WORLD);
    let ranks = (0..WORLD).map(|rank| {
        let bar = samples_bar(quiet, per_rank, LABELS[rank as usize]);
        let bar = if quiet { bar } else { bars.add(bar) };
        pull(cluster, rank, bar)
    });
    try_join_all(ranks).await
}

/// Samples that all epochs deliver.
fn samples(plan: &Plan, batches: &BatchParams) -> u64 {
    let steps = std::iter::successors(plan.step(Position::START, batches), |step| plan.step(step.next, batches));
    steps.count() as u64 * u64::from(batches.global_batch)
}

async fn pull(cluster: &Cluster, rank: u32, bar: ProgressBar) -> Result<PullReport, CtlError> {
    let failed = |cause: String| CtlError::Start { name: format!("rank {rank}"), cause };
    let mut command = cluster::program()?;
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
        match serde_json::from_str(&line).map_err(|error| failed(format!("it said `{line}`: {error}")))? {
            Line::Progress { progress } => bar.set_position(progress),
            Line::Report(figures) => report = Some(*figures),
        }
    }
    child.wait().await.map_err(|error| failed(error.to_string()))?;
    bar.finish();
    report.ok_or_else(|| failed("it ended without a report; see its messages above".to_owned()))
}
