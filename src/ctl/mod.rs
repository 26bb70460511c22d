//! The command line: its subcommands, a file each, and what they share.

mod audit;
mod cert;
mod coordinator;
mod demo;
mod error;
mod examples;
mod index;
mod interrupt;
mod job;
mod job_file;
mod manual;
mod output;
mod pack;
mod pictures;
mod plan;
mod progress;
mod pull;
mod replay;
mod report;
mod run;
mod status;
mod table;
mod tally;
mod unpack;
mod verify;

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

pub(crate) use error::CtlError;

/// What every subcommand returns: the exit code, or an error for standard error.
pub(crate) type Outcome = Result<ExitCode, CtlError>;

/// Feeds GPUs in multi-node training: packs datasets, runs and asks the cluster, proves what was delivered.
#[derive(Debug, Parser)]
#[command(name = "spdl-ctl", version, propagate_version = true)]
pub(crate) struct CtlCli {
    /// Ends this process when the one that started it ends.
    #[arg(long, global = true, hide = true)]
    pub(crate) die_with_parent: bool,
    /// Logs more to standard error; twice for everything. SPDL_LOG takes filters (`spdl_client=debug`).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: CtlCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum CtlCommand {
    /// Shows all of it: makes pictures, packs them, starts a cluster of real processes on loopback and trains nothing with them.
    #[command(after_help = examples::DEMO)]
    Demo(demo::DemoArgs),
    /// Writes the demo's pictures, for trying the other commands.
    #[command(after_help = examples::PICTURES)]
    Pictures(pictures::PicturesArgs),
    /// Writes shards from a folder of class folders, or from a text file that lists files.
    #[command(after_help = examples::PACK)]
    Pack(pack::PackArgs),
    /// Makes a manifest for WebDataset shards that exist, without rewriting them.
    #[command(after_help = examples::INDEX)]
    Index(index::IndexArgs),
    /// Reads a whole dataset and checks every byte against its manifest, and every picture against its original.
    #[command(after_help = examples::VERIFY)]
    Verify(verify::VerifyArgs),
    /// Writes the records of a dataset back as files.
    #[command(after_help = examples::UNPACK)]
    Unpack(unpack::UnpackArgs),
    /// Shows which samples come when, and what that costs in cache and downloads.
    #[command(after_help = examples::PLAN)]
    Plan(plan::PlanArgs),
    /// A trainer that trains nothing: pulls batches and shows figures.
    #[command(after_help = examples::PULL)]
    Pull(pull::PullArgs),
    /// Writes the exact batches of a position to files, with no cluster.
    #[command(after_help = examples::REPLAY)]
    Replay(replay::ReplayArgs),
    /// Recomputes a receipt from the plan: every sample once, or it names where they part.
    #[command(after_help = examples::AUDIT)]
    Audit(audit::AuditArgs),
    /// Shows the state of a running cluster.
    #[command(after_help = examples::STATUS)]
    Status(status::StatusArgs),
    /// Submits, lists, shows and removes jobs.
    #[command(after_help = examples::JOB)]
    Job(job::JobArgs),
    /// Lists runs, and has one begin again at the beginning.
    #[command(after_help = examples::RUN)]
    Run(run::RunArgs),
    /// Issues certificates from the cluster's CA.
    #[command(after_help = examples::CERT)]
    Cert(cert::CertArgs),
    /// Prints a script that completes this program's commands in a shell.
    #[command(after_help = examples::COMPLETIONS)]
    Completions(manual::CompletionArgs),
    /// Writes man pages, one for each subcommand.
    #[command(after_help = examples::MAN)]
    Man(manual::ManArgs),
    /// Runs the coordinator; the same as `spdl-coord`.
    #[command(after_help = examples::COORD)]
    Coord(spdl_coordinator::cli::CoordArgs),
    /// Runs a worker; the same as `spdl-worker`.
    #[command(after_help = examples::WORKER)]
    Worker(spdl_worker::cli::WorkerArgs),
}

impl CtlCli {
    /// The command line, or the exit code of one that only asks for help, or cannot be read.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        Self::try_parse().map_err(|error| match error.print() {
            Ok(()) => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1)),
            Err(error) => fail(&CtlError::Output(error)),
        })
    }

    /// Runs the command, and says why it failed.
    pub(crate) fn run(self) -> ExitCode {
        self.command.run(self.verbose).unwrap_or_else(|error| fail(&error))
    }
}

/// Says on standard error why a command failed; returns its exit code.
fn fail(error: &CtlError) -> ExitCode {
    if matches!(error, CtlError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
        return output::BROKEN_PIPE.into();
    }
    // Standard error may be gone, too; then the exit code says it all.
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "error: {error}");
    if let Some(hint) = error.hint() {
        let _ = writeln!(stderr, "hint: {hint}");
    }
    interrupt::exit_code().map_or(ExitCode::FAILURE, ExitCode::from)
}

impl CtlCommand {
    /// Runs the subcommand.
    pub(crate) fn run(self, verbose: u8) -> Outcome {
        match self {
            Self::Demo(args) => demo::run(&args),
            Self::Pictures(args) => pictures::run(&args),
            Self::Pack(args) => pack::run(args),
            Self::Index(args) => index::run(args),
            Self::Verify(args) => verify::run(&args),
            Self::Unpack(args) => unpack::run(&args),
            Self::Plan(args) => plan::run(&args),
            Self::Pull(args) => pull::run(args),
            Self::Replay(args) => replay::run(&args),
            Self::Audit(args) => audit::run(&args),
            Self::Status(args) => status::run(&args, verbose > 0),
            Self::Job(args) => job::run(args),
            Self::Run(args) => run::run(args),
            Self::Cert(args) => cert::run(&args),
            Self::Completions(args) => manual::completions(&args),
            Self::Man(args) => manual::man(&args),
            Self::Coord(args) => {
                let runtime = runtime()?;
                let result = runtime.block_on(spdl_coordinator::cli::run(args));
                // A name server or a disk that hangs holds nobody up.
                runtime.shutdown_background();
                result?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Worker(args) => {
                runtime()?.block_on(spdl_worker::cli::run(args))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Logs go to standard error: warnings, or what `-v` and `SPDL_LOG` ask for.
pub(crate) fn trace(verbose: u8) {
    let default = ["warn", "info", "debug"][usize::from(verbose.min(2))];
    let filter = tracing_subscriber::EnvFilter::try_from_env("SPDL_LOG").unwrap_or_else(|_| default.into());
    // Colours are for people: a file or a pipe gets none.
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .log_internal_errors(false)
        .init();
}

/// A runtime for commands that only wait for one thing at a time.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, CtlError> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(CtlError::Runtime)
}
