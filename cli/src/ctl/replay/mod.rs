//! `spdl-ctl replay`: makes the exact batches of a position again, in this process and without a cluster.

mod files;

use std::{path::PathBuf, process::ExitCode, time::Instant};

use crate::local;
use spdl_types::{Position, size::parse_bytes};
use spdl_worker::{budget::Budget, transform::TransformSettings};

use super::{
    CtlError, CtlResult, interrupt,
    job_file::{self, JobFileArg},
    machine,
    output::outln,
    progress::ProgressLine,
    record_names::RecordNames,
    report,
    tally::PullTally,
};

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    job: JobFileArg,
    /// Position of the first batch, as a checkpoint or `pull` gives it.
    #[arg(long, visible_alias = "position", default_value = "0:0", value_name = "EPOCH:OFFSET")]
    from: Position,
    /// Number of steps to replay.
    #[arg(long, default_value_t = 1, conflicts_with = "all")]
    steps: u64,
    /// Replays to the end of the job.
    #[arg(long)]
    all: bool,
    /// Rank whose batches are replayed.
    #[arg(long, default_value_t = 0)]
    rank: u32,
    /// Number of ranks; 1 gives the whole global batch.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    world: u32,
    /// Samples of a step over all ranks; the job's when not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    global_batch: Option<u32>,
    /// Folder for the batches: `step-00000/` and so on, with NumPy arrays, pictures and a description of each entry.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Writes the sample ids of each batch, as `pull --trace` does.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Number of processor cores to use; all when not given.
    #[arg(long)]
    cores: Option<f64>,
    /// Memory for batches, cached blocks and decoding; three quarters of the machine's free memory when not given.
    /// Where a whole batch does not fit, replay parts of it with `--rank` and `--world`.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Python interpreter for the job's functions (`transform`), with numpy and the functions' modules; default:
    /// python3.
    #[arg(long, env = "SPDL_PYTHON", value_name = "PATH")]
    python: Option<PathBuf>,
    /// Prints the statistics, the receipt and the content digest as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `replay`.
pub(crate) fn run(args: &ReplayArgs) -> CtlResult {
    interrupt::run_or_drop(replay(args))
}

async fn replay(args: &ReplayArgs) -> CtlResult {
    let file = job_file::read(&args.job.job)?;
    let mut builder = local::builder(file).rank(args.rank, args.world).start(args.from);
    if let Some(global_batch) = args.global_batch {
        builder = builder.global_batch(global_batch);
    }
    if let Some(python) = &args.python {
        builder = builder.transforms(TransformSettings { python: python.clone(), ..TransformSettings::default() });
    }
    let cores = args.cores.unwrap_or_else(|| machine::cores() as f64);
    let steps = if args.all { u64::MAX } else { args.steps };
    // Two slots, so that the next batch is made while one is written.
    let slots = if steps == 1 { 1 } else { 2 };
    let memory_bytes = args.memory.unwrap_or_else(machine::spare_bytes);
    let builder = builder.budget(Budget { cores, memory_bytes, disk: None }).slots(slots);
    let (mut loader, datasets) = builder.open_with_datasets().await?;
    let mut tally = PullTally::new(true, args.trace.as_deref())?;
    let mut progress = if args.json { ProgressLine::Quiet } else { ProgressLine::bar(None, "replaying") };
    let mut names: Option<RecordNames> = None;
    let mut done = 0;
    let mut waiting = Instant::now();
    while done < steps
        && let Some(batch) = loader.next().await?
    {
        tally.batch(&batch, waiting.elapsed())?;
        if let Some(folder) = &args.out {
            let columns = loader.job().columns.clone();
            let names = match &mut names {
                Some(names) => names,
                None => names.insert(RecordNames::new(loader.job(), datasets.clone())?),
            };
            let records = files::records(&batch.view(), names).await?;
            files::write(&batch.view(), &columns, records, &folder.join(format!("step-{done:05}")))?;
        }
        done += 1;
        progress.at(loader.stats().samples, || None)?;
        drop(batch);
        waiting = Instant::now();
    }
    progress.finish();
    let report = tally.finish(&loader, &loader.job().name).await;
    loader.close().await;
    if args.json {
        report::json(&report)?;
    } else {
        report.print()?;
        if let Some(folder) = &args.out {
            outln!("{} in {}", report::count(done, "batch", "batches"), folder.display())?;
        }
    }
    Ok::<_, CtlError>(ExitCode::SUCCESS)
}
