//! Runs all checks and measurements on a GPU: prints a table, and one line of JSON at the end.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, Subcommand};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde_json::{Map, Value, json};
use spdl_gpu::{Device, DeviceError};
use spdl_gpu_tests::{
    checks,
    plan::{RUNNER_VARIABLE, StepPrograms},
    processes,
    report::{Outcome, StepReport},
    runner::{HEADINGS, json_of, run_steps, summary},
    steps::{self, STEPS, StepArgs, StepKind},
};

/// Checks and measures the copy to a GPU.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Runs all steps, each as a process of its own, and prints a table and a line of JSON.
    Run(GpuRunArgs),
    /// Runs one step in this process.
    Step {
        /// The name of the step.
        name: String,
        #[command(flatten)]
        args: StepArgs,
    },
    /// Lists the names of the steps.
    List,
    /// Takes batches until it is killed.
    #[command(hide = true)]
    Train {
        #[command(flatten)]
        args: StepArgs,
    },
}

#[derive(clap::Args)]
struct GpuRunArgs {
    #[command(flatten)]
    args: StepArgs,
    /// The time for all steps together, in minutes. Each step has a share of it, and is killed at its end.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Fails where there is no device. Otherwise all steps are skipped there, with the reason.
    #[arg(long)]
    require: bool,
    /// Fails also if a measurement misses its target, and not only if a step fails.
    #[arg(long)]
    strict: bool,
    /// Runs only these steps, separated by commas; `list` lists them.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Writes the JSON to this file, too.
    #[arg(long)]
    json: Option<PathBuf>,
    /// The file of the steps in Python, `torch_check.py`.
    #[arg(long)]
    python_steps: Option<PathBuf>,
    /// The Python interpreter of these steps.
    #[arg(long, env = "SPDL_PYTHON", default_value = "python3")]
    python: PathBuf,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        CliCommand::Run(run_args) => run(&run_args).unwrap_or_else(|error| failure(&error)),
        CliCommand::Step { name, args } => step(&name, &args),
        CliCommand::List => {
            STEPS.iter().for_each(|step| println!("{}", step.name));
            ExitCode::SUCCESS
        }
        CliCommand::Train { args } => {
            processes::train_endlessly(&args).map_or_else(|error| failure(&error), |()| ExitCode::SUCCESS)
        }
    }
}

fn failure(error: &str) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Runs a step, and prints its report as the last line.
fn step(name: &str, args: &StepArgs) -> ExitCode {
    let Some(StepKind::Native(run)) = steps::find(name).map(|step| step.kind) else {
        return failure(&format!("there is no step `{name}` in this program; `list` lists the steps"));
    };
    end_with_runner();
    // The trainer's own calls panic when they fail.
    let result = catch_unwind(AssertUnwindSafe(|| run(args))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(text.unwrap_or("the step panicked").to_owned())
    });
    let report = StepReport::of(result);
    report.print();
    if report.outcome.is_failure() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Lets this process end with the runner, which may be killed: a step must not keep the device then. Under a program that
/// watches the step, that program is the parent, and the thread that started the step may be gone.
fn end_with_runner() {
    let parent = getppid().map(|parent| parent.to_string());
    if parent.is_some() && env::var(RUNNER_VARIABLE).ok() == parent {
        // This fails only for a signal that does not exist.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}

fn run(run_args: &GpuRunArgs) -> Result<ExitCode, String> {
    let GpuRunArgs { args, minutes, require, strict, only, .. } = run_args;
    if let Some(name) = only.iter().find(|name| steps::find(name).is_none()) {
        return Err(format!("there is no step `{name}`; `list` lists the steps"));
    }
    let budget = Duration::try_from_secs_f64(minutes * 60.0)
        .map_err(|_| format!("`--minutes {minutes}` is no length of time"))?;
    let about = || {
        let mut about = Map::new();
        about.insert("command".into(), json!(env::args().skip(1).collect::<Vec<_>>().join(" ")));
        about.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
        about
    };
    match Device::open(&args.device) {
        Ok(_) => {}
        Err(error @ (DeviceError::DriverMissing { .. } | DeviceError::Index { .. })) if !require => {
            println!("skipped: {error}");
            let mut about = about();
            about.insert("reason".into(), json!(error.to_string()));
            write_json(run_args, &json_of(&[], about))?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(checks::words(error)),
    }
    let scratch = env::temp_dir().join(format!("spdl-gpu-tests-{}", std::process::id()));
    fs::create_dir(&scratch).map_err(|error| format!("folder `{}`: {error}", scratch.display()))?;
    let programs = StepPrograms {
        program: env::current_exe().map_err(|error| format!("this program has no path: {error}"))?,
        python_steps: run_args.python_steps.clone(),
        python: run_args.python.clone(),
        scratch: scratch.clone(),
    };
    println!("{HEADINGS}");
    let finished = run_steps(programs.plan(args, only), budget, |step| println!("{}", step.row()));
    println!("{}", summary(&finished));
    // The files that steps leave there are of no use after them.
    let _ = fs::remove_dir_all(&scratch);
    let is_failed = finished.iter().any(|step| step.report.outcome.is_failure());
    let is_below = finished.iter().any(|step| step.report.outcome == Outcome::Below);
    write_json(run_args, &json_of(&finished, about()))?;
    Ok(if is_failed || (is_below && *strict) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn write_json(run_args: &GpuRunArgs, json: &Value) -> Result<(), String> {
    println!("{json}");
    match &run_args.json {
        None => Ok(()),
        Some(path) => {
            fs::write(path, format!("{json}\n")).map_err(|error| format!("file `{}`: {error}", path.display()))
        }
    }
}
