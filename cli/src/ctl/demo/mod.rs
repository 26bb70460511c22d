//! `spdl-ctl demo`: the whole system on one machine, as real processes on loopback.
//!
//! Two of the four ranks report the first worker's node as theirs and get their batches through shared memory. The
//! other two report a node without a worker and get theirs over QUIC. Meanwhile one worker is killed.

mod ranks;

use std::{path::Path, process::ExitCode};

use indicatif::{MultiProgress, ProgressDrawTarget};
use serde::Serialize;
use spdl_control::Role;
use spdl_dataset::{PackOptions, PackSource};
use spdl_order::Receipt;
use spdl_types::Position;

use super::{
    CtlError, CtlResult,
    interrupt::Interrupt,
    job, job_file,
    output::outln,
    pictures,
    progress::samples_bar,
    report,
    servers::{ANY_PORT, LocalCluster, ServerLogs},
};
use crate::ctl::tally::{PullReport, transport_name};
use futures::future::try_join;
use ranks::{Failover, RanksProgress};

const WORLD: u32 = 4;
const JOB: &str = "demo";
/// The worker that is killed; the ranks on its node pull from it through shared memory.
const VICTIM: &str = "worker-0";
/// Memory of one worker: slots and block cache.
const WORKER_MEMORY: &str = "192MiB";
/// Smaller than the default, so that a small dataset has some blocks to shuffle.
const BLOCK_BYTES: u64 = 2 << 20;

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Pictures to make.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    images: u64,
    /// Epochs to run.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,
    /// Samples per step over all four ranks.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(4..))]
    global_batch: u32,
    /// Prints the statistics as one line of JSON, and no progress bars.
    #[arg(long)]
    json: bool,
}

/// The last line of `demo --json`.
#[derive(Debug, Serialize)]
struct DemoReport {
    samples: u64,
    images_per_s: f64,
    first_batch_s: f64,
    receipt: Receipt,
    plan_receipt: Receipt,
    /// `null` if the ranks had ended before a worker could be killed.
    failover: Option<Failover>,
    ranks: Vec<PullReport>,
}

/// Runs `demo`.
pub(crate) fn run(args: &DemoArgs) -> CtlResult {
    // One thread: children that end with their parent end with the thread that started them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CtlError::Runtime)?;
    runtime.block_on(demo(args, Interrupt::listen()?))
}

async fn demo(args: &DemoArgs, mut interrupt: Interrupt) -> CtlResult {
    let folder = tempfile::Builder::new().prefix("spdl-demo-").tempdir().map_err(CtlError::Runtime)?;
    make_dataset(args, folder.path(), &interrupt).await?;
    let mut cluster = None;
    let shown = tokio::select! {
        shown = show(args, folder.path(), &mut cluster) => shown,
        () = interrupt.asked() => Err(CtlError::Interrupted),
    };
    // Stop the servers before their folder is removed, however the demo ended.
    if let Some(cluster) = cluster {
        cluster.stop().await;
    }
    drop(folder);
    let summary = shown?;
    if args.json {
        report::json(&summary)?;
    } else {
        print(&summary)?;
    }
    Ok(if summary.receipt == summary.plan_receipt { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts the processes and runs the ranks to their end.
async fn show(args: &DemoArgs, folder: &Path, cluster: &mut Option<LocalCluster>) -> Result<DemoReport, CtlError> {
    let say = |text: String| if args.json { Ok(()) } else { outln!("{text}") };
    let job_path = folder.join("demo.toml");
    write(&job_path, &job_text(args, folder))?;
    let open = job_file::open(&job_path).await?;
    let batches = open.batches(None);
    open.plan.check(&batches)?;

    let started = LocalCluster::start_coordinator(folder, ServerLogs::Inherited, "demo", ANY_PORT).await?;
    let cluster = cluster.insert(started);
    say(format!("coordinator on {}", cluster.coordinator_addr()))?;
    for (name, node) in [(VICTIM, "demo-node-a"), ("worker-1", "demo-node-b")] {
        let set = |command: &mut tokio::process::Command| {
            command.args(["--cores", "1", "--memory", WORKER_MEMORY]).env("SPDL_NODE", node);
        };
        let ready = cluster.start_worker(name, set).await?;
        say(format!("{name} on {} and {}", ready.quic, ready.socket.unwrap_or_default()))?;
    }
    job::submit(&cluster.connection(Role::Admin), &job_path, None).await?;

    let bars = MultiProgress::new();
    if args.json {
        bars.set_draw_target(ProgressDrawTarget::hidden());
    }
    let (samples, ranks) = (ranks::samples(&open.plan, &batches), RanksProgress::default());
    let killing = ranks::kill(cluster, VICTIM, samples / 3, &bars, &ranks);
    let pulling = ranks::run(cluster, samples / u64::from(WORLD), &bars, &ranks);
    let (reports, failover) = try_join(pulling, killing).await?;
    Ok(summarise(reports, failover, open.plan.receipt(Position::START, None, &batches)))
}

fn summarise(ranks: Vec<PullReport>, failover: Option<Failover>, plan_receipt: Receipt) -> DemoReport {
    let mut receipt = Receipt::default();
    for rank in &ranks {
        receipt += rank.receipt;
    }
    let seconds = ranks.iter().map(|rank| rank.seconds).fold(f64::MIN_POSITIVE, f64::max);
    let samples: u64 = ranks.iter().map(|rank| rank.samples).sum();
    DemoReport {
        samples,
        images_per_s: samples as f64 / seconds,
        first_batch_s: ranks.iter().map(|rank| rank.first_batch_s).fold(0.0, f64::max),
        receipt,
        plan_receipt,
        failover,
        ranks,
    }
}

fn print(report: &DemoReport) -> Result<(), CtlError> {
    outln!()?;
    outln!("rank  transport  samples  images/s  first batch  waiting (p50 / p99)")?;
    for (rank, stats) in report.ranks.iter().enumerate() {
        outln!(
            "{rank:>4}  {:<9}  {:>7}  {:>8.0}  {:>9.2} s  {:>6.1} ms / {:.1} ms",
            transport_name(stats.transport),
            stats.samples,
            stats.images_per_s,
            stats.first_batch_s,
            stats.wait_ms_p50,
            stats.wait_ms_p99,
        )?;
    }
    outln!()?;
    outln!("{} samples, {:.0} images/s", report.samples, report.images_per_s)?;
    if let Some(Failover { worker, at_samples, ranks, seconds }) = &report.failover {
        let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
        outln!(
            "{worker} was killed after {at_samples} samples; rank {} pulled from another worker {seconds:.1} s later",
            ranks.join(" and rank ")
        )?;
    }
    outln!("receipt of the ranks  {}", report.receipt)?;
    outln!("receipt of the plan   {}", report.plan_receipt)?;
    outln!("{}", if report.receipt == report.plan_receipt { "equal: every sample once" } else { "DIFFERENT" })
}

/// Makes pictures in class folders, packs them, and removes the folders.
async fn make_dataset(args: &DemoArgs, folder: &Path, interrupt: &Interrupt) -> Result<(), CtlError> {
    let source = folder.join("pictures");
    let dataset = folder.join("dataset");
    let bar = samples_bar(args.json, args.images, "making pictures");
    {
        let (source, images, bar, interrupt) = (source.clone(), args.images, bar.clone(), interrupt.clone());
        let making = move || pictures::write(&source, images, 1, &bar, &interrupt);
        tokio::task::spawn_blocking(making).await.expect("making pictures does not panic")?;
    }
    bar.finish();
    let options = PackOptions { block_bytes: BLOCK_BYTES, ..PackOptions::new(PackSource::ImageFolder(source.clone())) };
    super::pack::write(&dataset.display().to_string(), &options, args.json, interrupt.clone()).await?;
    std::fs::remove_dir_all(&source).map_err(|error| CtlError::WriteFile { path: source, source: error })
}

fn job_text(args: &DemoArgs, folder: &Path) -> String {
    let dataset = toml::Value::String(folder.join("dataset").display().to_string());
    format!(
        r#"name = "{JOB}"
dataset = {dataset}
seed = 17
global_batch = {batch}
epochs = {epochs}

[[column]]
name = "image"
from = "jpg"
decode = "image"
ops = [{{ random_resized_crop = {{ size = 224 }} }}, {{ random_flip = {{}} }}]

[[column]]
name = "label"
from = "cls"
decode = "int"
"#,
        batch = args.global_batch,
        epochs = args.epochs,
    )
}

fn write(path: &Path, text: &str) -> Result<(), CtlError> {
    std::fs::write(path, text).map_err(|source| CtlError::WriteFile { path: path.to_owned(), source })
}
