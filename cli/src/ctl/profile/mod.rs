//! `spdl-ctl profile`: runs the pipeline of a job on this machine, whole and part by part, and recommends the resources
//! for a rate.

mod advice;
mod measure;
mod page;
mod report;
mod variants;

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::AtomicU64,
    time::Duration,
};

use indicatif::ProgressBar;
use serde::Serialize;
use spdl_insight::Diagnosis;
use spdl_job::Job;
use spdl_types::{Position, size::parse_bytes};
use spdl_worker::{feed::DEFAULT_SLOTS, size::parse_cores, transform::TransformSettings};

use super::{
    CtlError, CtlResult,
    costs::{CostTally, Costs, NodeRanks},
    dealt::DealtStep,
    interrupt,
    job_file::{self, JobFileArg, OpenJob},
    machine,
    progress::steps_bar,
};
use advice::{Advice, Facts};
use measure::{Measurement, ProfiledPart, Profiler};

/// Arguments of `profile`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    job: JobFileArg,
    /// Seconds that each measurement lasts. When raised, the figures vary less.
    #[arg(long, default_value_t = 2.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Cores to measure with, or a share of the machine's: the budget of a worker that does nothing but this. All when
    /// not given.
    #[arg(long, value_name = "N|N%")]
    cores: Option<String>,
    /// Memory to measure with; three quarters of the machine's free memory when not given.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// The rate to recommend settings for, in samples per second of this node.
    #[arg(long, value_name = "SAMPLES/S", value_parser = parse_positive, conflicts_with = "step_ms")]
    rate: Option<f64>,
    /// The time of a step of the trainer, to recommend settings for.
    #[arg(long, value_name = "MS", value_parser = parse_positive)]
    step_ms: Option<f64>,
    /// Number of ranks of the training, of which this node gets its share of each global batch.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    world: u32,
    /// Number of ranks that share a node and its worker.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_node: u32,
    /// Number of slots: batches that are being filled or wait for the trainer.
    #[arg(long, default_value_t = DEFAULT_SLOTS, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// Python interpreter for the job's functions (`transform`), with numpy and the functions' modules; default:
    /// python3.
    #[arg(long, env = "SPDL_PYTHON", value_name = "PATH")]
    python: Option<PathBuf>,
    /// Writes a page with the same, and the timeline of every thread: one file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Prints everything that was measured as one line of JSON.
    #[arg(long)]
    json: bool,
}

fn parse_positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err(format!("`{text}` is not above 0")) }
}

/// The longest measurement, in seconds.
const MAX_SECONDS: f64 = 600.0;

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = parse_positive(text)?;
    if (0.1..=MAX_SECONDS).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("`{text}` is not between 0.1 and {MAX_SECONDS} seconds"))
    }
}

/// The results of a profile.
#[derive(Debug, Serialize)]
struct Profile {
    job: String,
    samples: u64,
    dataset_bytes: u64,
    /// Samples of a batch of this node.
    batch_samples: u32,
    machine_cores: usize,
    machine_memory_bytes: Option<u64>,
    /// The cores and the memory that were measured with.
    cores: f64,
    memory_bytes: u64,
    measurements: Vec<Measurement>,
    /// The rate of all cores divided by that of one core.
    speed_up: f64,
    /// What limits the pipeline with all cores, and what would help.
    verdict: String,
    advice: Advice,
}

/// Runs `profile`.
pub(crate) fn run(args: &ProfileArgs) -> CtlResult {
    let (cores, memory_bytes) = (cores(args)?, memory(args)?);
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| CtlError::WriteFile { path, source }
    };
    // A file that cannot be written is an error before anything is measured.
    let page = args.html.as_ref().map(|path| File::create(path).map_err(failed(path)).map(|file| (file, path)));
    let page = page.transpose()?;
    let profile = interrupt::run_or_drop(profile(args, cores, memory_bytes))?;
    if let Some((mut file, path)) = page {
        file.write_all(page::html(&profile).as_bytes()).map_err(failed(path))?;
    }
    if args.json {
        super::report::json(&profile)?
    } else {
        report::print(&profile)?
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the cores to measure with: no more than there are, as the figures would be those of another machine.
fn cores(args: &ProfileArgs) -> Result<f64, CtlError> {
    let there = machine::cores();
    let Some(text) = &args.cores else { return Ok(there as f64) };
    let refused = |problem| CtlError::Flag { flag: "--cores", problem };
    let cores = parse_cores(text, there as f64).map_err(refused)?;
    if cores > there as f64 {
        return Err(refused(format!(
            "{cores} cores are more than the {there} of this machine; profile where they are"
        )));
    }
    Ok(cores)
}

/// Returns the memory to measure with: no more than there is.
fn memory(args: &ProfileArgs) -> Result<u64, CtlError> {
    let Some(bytes) = args.memory else { return Ok(machine::spare_bytes()) };
    match machine::memory_bytes() {
        Some(there) if bytes > there => {
            let (bytes, there) = (super::report::bytes(bytes), super::report::bytes(there));
            let problem = format!("{bytes} are more than the {there} of this machine; give at most what is free");
            Err(CtlError::Flag { flag: "--memory", problem })
        }
        _ => Ok(bytes),
    }
}

async fn profile(args: &ProfileArgs, cores: f64, memory_bytes: u64) -> Result<Profile, CtlError> {
    let open = job_file::open(&args.job.job).await?;
    if open.job.sequence.is_some() {
        return Err(CtlError::NotDecoded { job: open.job.name });
    }
    let nodes = args.world.div_ceil(args.ranks_per_node);
    let batches = open.batches(None);
    if nodes > batches.global_batch {
        return Err(CtlError::WorldTooLarge { world: nodes, global_batch: batches.global_batch });
    }
    open.plan.check(&batches)?;
    let transforms =
        TransformSettings { python: args.python.clone().unwrap_or("python3".into()), ..Default::default() };
    let seconds = Duration::from_secs_f64(args.seconds);
    let profiler = Profiler {
        job: open.job.clone(),
        stores: open.stores(),
        nodes,
        slots: args.slots,
        cores,
        memory_bytes,
        seconds,
        records: args.html.is_some(),
        transforms,
        batch_bytes: AtomicU64::new(0),
    };
    let variants = variants::of(&open.job);
    let bar = steps_bar(args.json, ProfiledPart::PIPELINES.len() as u64 + 1 + variants.len() as u64);
    let (measurements, parallel) = measure_all(&profiler, variants, &bar).await?;
    bar.finish_and_clear();
    let rate = |part| measurements.iter().find(|found| found.part == part).map_or(0.0, |found| found.samples_per_s);
    let speed_up = rate(ProfiledPart::Parallel) / rate(ProfiledPart::Serial).max(f64::MIN_POSITIVE);
    let advice = Advice::new(&facts(args, &open, &profiler, &measurements), |window| order_costs(&open, nodes, window));
    Ok(Profile {
        job: open.job.name.clone(),
        samples: open.plan.samples(),
        dataset_bytes: open.datasets.bytes(),
        batch_samples: batches.entries_per_rank(nodes),
        machine_cores: machine::cores(),
        machine_memory_bytes: machine::memory_bytes(),
        cores,
        memory_bytes,
        speed_up,
        verdict: parallel.verdict(),
        measurements,
        advice,
    })
}

/// Measures the whole pipeline, its parts, and each column and operation. Returns the diagnosis of the whole pipeline, too.
async fn measure_all(
    profiler: &Profiler,
    variants: Vec<variants::Variant>,
    bar: &ProgressBar,
) -> Result<(Vec<Measurement>, Diagnosis), CtlError> {
    let mut measurements = Vec::new();
    let mut whole = None;
    for part in ProfiledPart::PIPELINES {
        bar.set_message(part.name());
        let (measurement, diagnosis) = profiler.pipeline(part).await?;
        measurements.push(measurement);
        if part == ProfiledPart::Parallel {
            whole = Some(diagnosis);
        }
        bar.inc(1);
    }
    bar.set_message(ProfiledPart::Decode.name());
    let resources = profiler.resources(profiler.cores)?;
    let name = ProfiledPart::Decode.name().to_owned();
    measurements.push(profiler.decode(&resources, ProfiledPart::Decode, name, &profiler.job).await?);
    bar.inc(1);
    for variant in variants {
        bar.set_message(variant.name.clone());
        let job = Job { columns: variant.columns, mix: None, ..profiler.job.clone() };
        measurements.push(profiler.decode(&resources, variant.part, variant.name, &job).await?);
        bar.inc(1);
    }
    Ok((measurements, whole.expect("the whole pipeline is one of the parts")))
}

/// Computes what the order of the job would cost a node with another window.
fn order_costs(open: &OpenJob, nodes: u32, window: u64) -> Costs {
    let plan = open.plan_with_window(window).expect("a smaller window is valid");
    let steps = plan.steps(Position::START, &open.batches(None)).take_while(|step| step.from.epoch == 0);
    let mut tally = CostTally::new(NodeRanks { ranks: 0..1, ranks_per_node: 1 });
    for step in steps {
        if tally.is_full() {
            break;
        }
        tally.add(&DealtStep::Sliced { plan: &plan, step, world: nodes });
    }
    tally.costs(&open.datasets.block_bytes())
}

fn facts(args: &ProfileArgs, open: &OpenJob, profiler: &Profiler, measurements: &[Measurement]) -> Facts {
    let find = |part| measurements.iter().find(|found| found.part == part).expect("it was measured");
    let (parallel, decode, fetch) =
        (find(ProfiledPart::Parallel), find(ProfiledPart::Decode), find(ProfiledPart::Fetch));
    let share = f64::from(open.job.global_batch) / f64::from(profiler.nodes);
    let wanted = args.rate.or_else(|| args.step_ms.map(|step_ms| share / (step_ms / 1e3)));
    Facts {
        samples_per_s: wanted.unwrap_or(parallel.samples_per_s),
        is_given: wanted.is_some(),
        cpu_s: parallel.cpu_ms_per_sample / 1e3,
        call_s: decode.call_s_per_sample(),
        machine_cores: machine::cores(),
        memory_bytes: profiler.memory_bytes,
        slab_bytes: profiler.slab_bytes(),
        dataset_bytes: open.datasets.bytes(),
        samples: open.plan.samples(),
        store_bytes_per_s: fetch.store_bytes_per_s(),
        window: open.job.order.window,
    }
}
