//! `spdl-ctl pull`: pulls batches as a trainer does, without training, as fast as possible or at a given rate, and
//! shows statistics.

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use spdl_client::{Builder, Client, Settings, StartFrom, State};
use spdl_control::{
    Role,
    client::{AllowedTransports, group::GroupMember},
};

use super::{
    CtlError, CtlResult,
    coordinator::find_dev_cluster,
    interrupt::{self, Interrupt},
    progress::ProgressLine,
    report,
    tally::{PullReport, PullTally},
};

/// Arguments of `pull`. Arguments that are not given come from the `SPDL_*` variables that `Client::connect` reads; without any, the
/// cluster is that of `dev up`.
#[derive(Debug, clap::Args)]
pub(crate) struct PullArgs {
    /// Address of the coordinator; several separated by commas. [env: SPDL_COORD]
    #[arg(long, value_name = "HOST:PORT")]
    coord: Option<String>,
    /// Name of the job. [env: SPDL_JOB]
    #[arg(long)]
    job: Option<String>,
    /// Name of the run; a job can have several runs at the same time. [env: SPDL_RUN] [default: the job's name]
    #[arg(long)]
    run: Option<String>,
    /// Takes the run over from the launch that holds it, whose ranks then fail. Without it, a run whose ranks are alive
    /// is refused. Give it to all ranks. [env: SPDL_TAKEOVER]
    #[arg(long)]
    takeover: bool,
    /// Folder with `ca.pem`, `cert.pem` and `key.pem` of a client. [env: SPDL_CERTS]
    #[arg(long, value_name = "DIR")]
    certs: Option<PathBuf>,
    /// Rank of this process.
    #[arg(long, env = "RANK", default_value_t = 0)]
    rank: u32,
    /// Number of ranks.
    #[arg(long, env = "WORLD_SIZE", default_value_t = 1)]
    world: u32,
    /// Which member of the group of processes that share the rank this is: 0/8 leads a group of 8 on this node, which all get the same
    /// batches. [env: SPDL_MEMBER] [default: 0/1]
    #[arg(long, value_name = "MEMBER/MEMBERS")]
    member: Option<GroupMember>,
    /// Number of steps to pull. [default: to the end of the job]
    #[arg(long)]
    steps: Option<u64>,
    /// Where to start: `beginning`, `resume` (at the last position that all ranks of the run have acknowledged), an
    /// epoch, or EPOCH:OFFSET. [env: SPDL_START] [default: beginning]
    #[arg(long, value_name = "START")]
    from: Option<StartFrom>,
    /// State to start from, as in a checkpoint: the `state` that `pull --json` reports. The state of another job,
    /// dataset or pipeline is refused.
    #[arg(long, value_name = "STATE", conflicts_with = "from")]
    state: Option<State>,
    /// Samples of a step over all ranks. [default: the job's]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    global_batch: Option<u32>,
    /// Number of epochs of the run from this launch on. [env: SPDL_EPOCHS] [default: the run's last value, or else the
    /// job's]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,
    /// The most samples per second to pull. [default: as fast as possible]
    #[arg(long, value_name = "SAMPLES_PER_S")]
    rate: Option<f64>,
    /// Transport of the batches: auto, local or quic. [env: SPDL_TRANSPORT] [default: auto]
    #[arg(long)]
    transport: Option<AllowedTransports>,
    /// Number of slots: batches that are being filled, are ready, or are in use. [env: SPDL_SLOTS] [default: 4]
    #[arg(long)]
    slots: Option<u32>,
    /// Seconds to wait for a batch before failing with the reason for the wait. [env: SPDL_TIMEOUT_S] [default: 300]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Computes a digest of all bytes.
    #[arg(long)]
    digest: bool,
    /// Writes a line of JSON for each batch: its sample ids, their positions in the stream, and the wait for the batch.
    /// `audit --trace` reads the file.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Prints the statistics as one line of JSON, and no progress bar.
    #[arg(long)]
    json: bool,
    /// With `--json`: prints lines of progress while it pulls.
    #[arg(long, requires = "json")]
    progress: bool,
}

/// How long leaving the session may take after the command is interrupted.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(1_000);

/// Runs `pull`. When interrupted, it reports the statistics so far and fails.
pub(crate) fn run(args: PullArgs) -> CtlResult {
    interrupt::run(async |mut interrupt| {
        let report = pull(&args, &mut interrupt).await?;
        if args.json {
            report::json(&report)?;
        } else {
            report.print()?;
        }
        if interrupt.is_asked() { Err(CtlError::Interrupted) } else { Ok(ExitCode::SUCCESS) }
    })
}

async fn pull(args: &PullArgs, interrupt: &mut Interrupt) -> Result<PullReport, CtlError> {
    let mut waiting = Instant::now();
    let (builder, run) = builder(args)?;
    let mut loader = tokio::select! {
        loader = builder.connect(args.rank, args.world) => loader?,
        () = interrupt.asked() => return Err(CtlError::Interrupted),
    };
    let global_batch = u64::from(loader.session().global_batch);
    let steps = args.steps.unwrap_or(u64::MAX).min(loader.steps_left());
    let mut progress = match (args.json, args.progress) {
        (false, _) => ProgressLine::bar(Some(steps * (global_batch / u64::from(args.world))), "pulling"),
        (true, true) => ProgressLine::lines(),
        (true, false) => ProgressLine::Quiet,
    };
    let mut tally = PullTally::new(args.digest, args.trace.as_deref())?;
    let started = Instant::now();
    let mut done = 0;
    // The end of a job can move while the command pulls.
    while done < args.steps.unwrap_or(u64::MAX) && loader.steps_left() > 0 {
        let batch = tokio::select! {
            batch = loader.next() => batch?,
            () = interrupt.asked() => None,
        };
        let Some(batch) = batch else { break };
        tally.batch(&batch, waiting.elapsed())?;
        done += 1;
        let samples = loader.stats().samples;
        progress.at(samples, || loader.stats().serving.home)?;
        if let Some(rate) = args.rate.filter(|rate| *rate > 0.0) {
            let due = started + Duration::from_secs_f64(samples as f64 / rate);
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {}
                () = interrupt.asked() => break,
            }
        }
        // A trainer has the batch until its step is done.
        drop(batch);
        waiting = Instant::now();
    }
    progress.finish();
    let report = tally.finish(&loader, run.as_deref().unwrap_or(&loader.job().name)).await;
    tokio::select! {
        () = loader.close() => {}
        () = async { interrupt.asked().await; tokio::time::sleep(LEAVE_TIMEOUT).await } => {}
    }
    Ok(report)
}

/// Returns the client, and the run's name if it is not the job's.
fn builder(args: &PullArgs) -> Result<(Builder, Option<String>), CtlError> {
    let mut settings = Settings::from_env()?;
    if let Some(coord) = &args.coord {
        settings.coordinators.clone_from(coord);
    }
    if let Some(job) = &args.job {
        settings.job.clone_from(job);
    }
    settings.run = args.run.clone().or(settings.run);
    settings.takeover |= args.takeover;
    settings.epochs = args.epochs.or(settings.epochs);
    settings.start = args.state.map(StartFrom::State).or(args.from).unwrap_or(settings.start);
    if let Some(certs) = &args.certs {
        settings.certs.clone_from(certs);
    }
    if settings.coordinators.is_empty() && settings.certs.as_os_str().is_empty() {
        let found = find_dev_cluster().ok_or(CtlError::NoCluster)?;
        settings.certs = found.certs(Role::Client);
        settings.coordinators = found.coordinator;
        if let [job] = &found.jobs[..]
            && settings.job.is_empty()
        {
            settings.job.clone_from(job);
        }
    }
    settings.member = args.member.unwrap_or(settings.member);
    settings.transports = args.transport.unwrap_or(settings.transports);
    settings.slots = args.slots.unwrap_or(settings.slots);
    settings.timeout = args.timeout.map_or(settings.timeout, Duration::from_secs);
    let run = settings.run.clone();
    let mut builder = Client::builder().settings(settings);
    if let Some(global_batch) = args.global_batch {
        builder = builder.global_batch(global_batch);
    }
    Ok((builder, run))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use spdl_client::Settings;

    use crate::ctl::CtlCli;

    #[test]
    fn the_help_shows_the_defaults_that_apply() {
        let settings = Settings::default();
        let defaults = [
            ("transport", format!("{:?}", settings.transports).to_lowercase()),
            ("slots", settings.slots.to_string()),
            ("timeout", settings.timeout.as_secs().to_string()),
        ];
        let cli = CtlCli::command();
        let pull = cli.find_subcommand("pull").expect("it is there");
        for (name, default) in defaults {
            let argument = pull.get_arguments().find(|argument| argument.get_id() == name).expect("it is there");
            let help = argument.get_help().expect("it has help").to_string();
            assert!(help.ends_with(&format!("[default: {default}]")), "{name}: {help}");
        }
    }
}
