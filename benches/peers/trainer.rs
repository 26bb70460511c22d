//! The trainer of `benches/peers/run` for our loader: takes batches as fast as they come and records when each came.
//! `worker.py` does the same with another loader's batches.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::{Parser, Subcommand};
use spdl_cli::local;
use spdl_client::{Batch, Client, ClientError, Loader, Settings, Source};
use spdl_job::JobFile;
use spdl_worker::budget::Budget;

type Failure = Box<dyn std::error::Error>;

#[derive(Parser)]
struct TrainerCli {
    /// File for the record.
    #[arg(long)]
    record: PathBuf,
    /// Seconds from the first batch that are not measured.
    #[arg(long)]
    warm_s: f64,
    /// Seconds that are measured after them.
    #[arg(long)]
    seconds: f64,
    /// How long a step takes, in milliseconds. It only sleeps.
    #[arg(long, default_value_t = 0.0)]
    step_ms: f64,
    /// Pictures in a batch.
    #[arg(long)]
    batch: usize,
    /// Width and height of the pictures in the column `image`, which have labels.
    #[arg(long, required_unless_present = "array")]
    size: Option<usize>,
    /// A column of arrays, in place of pictures.
    #[arg(long, requires = "elements", conflicts_with = "size")]
    array: Option<String>,
    /// Elements of one of its arrays.
    #[arg(long)]
    elements: Option<u64>,
    #[command(subcommand)]
    from: From,
}

#[derive(Subcommand)]
enum From {
    /// The loader in this process.
    Local {
        job: PathBuf,
        #[arg(long)]
        cores: f64,
        #[arg(long)]
        memory_bytes: u64,
    },
    /// The worker that the coordinator assigns; settings are in the environment.
    Cluster,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let cli = TrainerCli::parse();
    match &cli.from {
        From::Local { job, cores, memory_bytes } => {
            let file = JobFile::parse(&fs::read_to_string(job)?, &job.display().to_string())?;
            let budget = Budget { cores: *cores, memory_bytes: *memory_bytes, ..Budget::default() };
            take(&cli, local::builder(file).budget(budget).open().await?).await
        }
        From::Cluster => take(&cli, Client::builder().settings(Settings::from_env()?).connect(0, 1).await?).await,
    }
}

/// Takes batches until the time is over, and writes the record.
async fn take<S: Source<Batch = Batch, Error = ClientError>>(
    cli: &TrainerCli,
    mut loader: Loader<S>,
) -> Result<(), Failure> {
    let (mut times, mut waits) = (Vec::new(), Vec::new());
    let mut end = u128::MAX;
    while times.last().is_none_or(|last| *last < end) {
        let asked = clock_ns();
        let batch = loader.next().await?.ok_or("the job ended")?;
        let now = clock_ns();
        times.push(now);
        waits.push(now - asked);
        if end == u128::MAX {
            check(&batch, cli)?;
            end = now + Duration::from_secs_f64(cli.warm_s + cli.seconds).as_nanos();
        }
        if cli.step_ms > 0.0 {
            let due = now + Duration::from_secs_f64(cli.step_ms / 1000.0).as_nanos();
            let left = u64::try_from(due.saturating_sub(clock_ns()))?;
            // The timer of tokio is no finer than a millisecond, and a step may be shorter.
            thread::sleep(Duration::from_nanos(left));
        }
    }
    fs::write(&cli.record, serde_json::to_string(&serde_json::json!({ "times": times, "waits": waits }))?)?;
    loader.close().await;
    Ok(())
}

/// Checks that the batch is a full one.
fn check(batch: &Batch, cli: &TrainerCli) -> Result<(), Failure> {
    match (&cli.array, cli.size) {
        (Some(name), _) => check_arrays(batch, name, cli),
        (None, size) => check_pictures(batch, size.unwrap_or_default(), cli),
    }
}

/// Checks that a column has an array of the right size for each sample.
fn check_arrays(batch: &Batch, name: &str, cli: &TrainerCli) -> Result<(), Failure> {
    let shape = batch.column(name)?.shape();
    let elements = |shape: &[usize]| shape[1..].iter().product::<usize>() as u64;
    let is_right = |shape: &Vec<usize>| shape.first() == Some(&cli.batch) && Some(elements(shape)) == cli.elements;
    if shape.as_ref().is_some_and(is_right) { Ok(()) } else { Err(format!("a batch of {shape:?}").into()) }
}

/// Checks that the pictures are square and of bytes, with labels.
fn check_pictures(batch: &Batch, size: usize, cli: &TrainerCli) -> Result<(), Failure> {
    let (images, labels) = (batch.column("image")?, batch.column("label")?);
    let bytes: &[u8] = images.as_slice()?;
    let first = &bytes[..size * size * 3];
    let mean = first.iter().map(|&byte| f64::from(byte)).sum::<f64>() / first.len() as f64;
    let right = images.shape() == Some(vec![cli.batch, size, size, 3]) && labels.len() == cli.batch;
    if !right || !(1.0..254.0).contains(&mean) {
        return Err(format!("a batch of {:?}, mean {mean}", images.shape()).into());
    }
    Ok(())
}

/// Reads the system's clock, in nanoseconds.
fn clock_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set").as_nanos()
}
