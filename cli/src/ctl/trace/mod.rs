//! `spdl-ctl trace`: records for some seconds what the workers and trainers of a job do, and writes it for Perfetto.

mod chrome;

use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use serde::Serialize;
use spdl_control::{
    coordinator::Status,
    messages::{FromCoordinator, ToCoordinator},
    trace::{MAX_TRACE_MS, TracePart, TraceProgress, TraceSource},
};

use self::chrome::TraceCounts;
use super::{CtlError, CtlResult, coordinator::Connection, output::outln, report, status};

/// How long processes may take to send their recordings: they send them after the reply to a heartbeat.
const GRACE: Duration = Duration::from_secs(10);
/// Time between two requests for a part that has not come yet.
const PAUSE: Duration = Duration::from_millis(200);

/// Arguments of `trace`.
#[derive(Debug, clap::Args)]
pub(crate) struct TraceArgs {
    /// Its name; not needed if only one job has ranks alive.
    #[arg(long)]
    job: Option<String>,
    /// How long to record, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=(MAX_TRACE_MS / 1_000)))]
    seconds: u64,
    /// The file to write, in the trace event format that Perfetto and Chrome open.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    connection: Connection,
    /// Prints a summary as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// The parts of a trace that were gathered.
struct Gathered {
    parts: Vec<TracePart>,
    /// The processes whose recordings are incomplete.
    missing: Vec<TraceSource>,
}

#[derive(Debug, Serialize)]
struct Summary<'a> {
    file: &'a Path,
    job: &'a str,
    seconds: u64,
    processes: usize,
    #[serde(flatten)]
    written: &'a TraceCounts,
    /// By how much the clock of a process may differ from the coordinator's, at worst.
    clock_accuracy_us: u64,
    /// Number of intervals that were lost for lack of room.
    lost: u64,
    missing: Vec<String>,
}

/// Runs `trace`.
pub(crate) fn run(args: &TraceArgs) -> CtlResult {
    // Created first, so that a file that cannot be written is an error before the recording.
    let write_error = |source| CtlError::WriteFile { path: args.out.clone(), source };
    let file = File::create(&args.out).map_err(write_error)?;
    let (job, status, gathered) = super::runtime()?.block_on(async {
        let (_, status) = status::ask(&args.connection).await?;
        let job = args.job.clone().map_or_else(|| only_job(&status), Ok)?;
        let gathered = gather(&args.connection, &job, args.seconds).await?;
        Ok::<_, CtlError>((job, status, gathered))
    })?;
    let written = chrome::write(&gathered.parts, BufWriter::new(file)).map_err(write_error)?;
    let accuracy_us = |part: &TracePart| part.accuracy_us;
    let summary = Summary {
        file: &args.out,
        job: &job,
        seconds: args.seconds,
        processes: gathered.parts.iter().filter(|part| part.is_last).count(),
        written: &written,
        clock_accuracy_us: gathered.parts.iter().map(accuracy_us).max().unwrap_or(0),
        lost: gathered.parts.iter().map(|part| part.lost).sum(),
        missing: gathered.missing.iter().map(|source| name(&status, source)).collect(),
    };
    if args.json {
        report::json(&summary)?
    } else {
        print(&summary)?
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the job that has ranks alive, if there is only one.
fn only_job(status: &Status) -> Result<String, CtlError> {
    let is_live = |job: &str| {
        let mut sessions = status.sessions.iter().filter(|session| session.job == job);
        sessions.any(|session| session.ranks.iter().any(|rank| rank.is_alive))
    };
    let mut live = status.jobs.iter().map(|job| job.name.as_str()).filter(|job| is_live(job));
    match (live.next(), live.next()) {
        (Some(job), None) => Ok(job.to_owned()),
        (None, _) => Err(CtlError::NoneToTrace),
        (Some(first), Some(second)) => {
            let names: Vec<&str> = [first, second].into_iter().chain(live).collect();
            Err(CtlError::ManyToTrace { jobs: names.join(", ") })
        }
    }
}

/// Starts a recording at the coordinator, and reads all parts as they come.
async fn gather(connection: &Connection, job: &str, seconds: u64) -> Result<Gathered, CtlError> {
    let start = ToCoordinator::StartTrace { job: job.to_owned(), duration_ms: 1_000 * seconds };
    let TraceProgress { trace, remaining_ms, .. } = ask(connection, &start).await?;
    let deadline = Instant::now() + Duration::from_millis(remaining_ms) + GRACE;
    tokio::time::sleep(Duration::from_millis(remaining_ms)).await;
    let mut parts = Vec::new();
    loop {
        let number = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let progress = ask(connection, &ToCoordinator::ReadTrace { trace, part: number }).await?;
        match progress.part {
            Some(part) => parts.push(*part),
            None if progress.missing.is_empty() || Instant::now() > deadline => {
                return Ok(Gathered { parts, missing: progress.missing });
            }
            None => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn ask(connection: &Connection, request: &ToCoordinator) -> Result<TraceProgress, CtlError> {
    match connection.ask(request).await? {
        FromCoordinator::Trace(progress) => Ok(*progress),
        _ => Err(CtlError::Reply { request: "a trace" }),
    }
}

/// Returns the name of a process for people.
fn name(status: &Status, source: &TraceSource) -> String {
    match source {
        TraceSource::Rank { session, rank } => format!("rank {rank} of {session}"),
        TraceSource::Worker(id) => {
            let id = format!("{:016x}", id.0);
            let worker = status.workers.iter().find(|worker| worker.worker == id);
            format!("worker {}", worker.map_or(&id, |worker| &worker.name))
        }
    }
}

fn print(summary: &Summary<'_>) -> Result<(), CtlError> {
    let Summary { file, job, seconds, processes, written, clock_accuracy_us, lost, missing } = summary;
    outln!(
        "{}: {seconds} s of job `{job}`: {}, {}, {}; open it in https://ui.perfetto.dev",
        file.display(),
        report::count(*processes as u64, "process", "processes"),
        report::count(written.intervals, "interval", "intervals"),
        report::count(written.batches, "batch", "batches"),
    )?;
    outln!("clocks agree within {:.1} ms", *clock_accuracy_us as f64 / 1e3)?;
    if *lost > 0 {
        outln!("{} had no room: the beginning is missing", report::count(*lost, "interval", "intervals"))?;
    }
    for process in missing {
        outln!("{process} has sent nothing, or not all")?;
    }
    Ok(())
}
