//! The command line: its subcommands, a file each, and what they share.

mod audit;
mod cert;
mod coordinator;
mod demo;
mod error;
mod index;
mod interrupt;
mod job;
mod job_file;
mod pack;
mod pictures;
mod plan;
mod progress;
mod pull;
mod replay;
mod report;
mod status;
mod tally;
mod unpack;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub(crate) use error::CtlError;

/// What every subcommand returns: the exit code, or an error for standard error.
pub(crate) type Outcome = Result<ExitCode, CtlError>;

/// Feeds GPUs in multi-node training: packs datasets, runs and asks the cluster, proves what was delivered.
#[derive(Debug, Parser)]
#[command(name = "spdl-ctl", version, propagate_version = true)]
pub(crate) struct Cli {
    /// Ends this process when the one that started it ends.
    #[arg(long, global = true, hide = true)]
    pub(crate) die_with_parent: bool,
    /// Logs more to standard error; twice for everything. SPDL_LOG takes filters (`spdl_client=debug`).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows all of it: makes pictures, packs them, starts a cluster of real processes on loopback and trains nothing with them.
    Demo(demo::Args),
    /// Writes the demo's pictures, for trying the other commands.
    Pictures(pictures::Args),
    /// Writes shards from a folder of class folders, or from a text file that lists files.
    Pack(pack::Args),
    /// Makes a manifest for WebDataset shards that exist, without rewriting them.
    Index(index::Args),
    /// Reads a whole dataset and checks every byte against its manifest, and every picture against its original.
    Verify(verify::Args),
    /// Writes the records of a dataset back as files.
    Unpack(unpack::Args),
    /// Shows which samples come when, and what that costs in cache and downloads.
    Plan(plan::Args),
    /// A trainer that trains nothing: pulls batches and shows figures.
    Pull(pull::Args),
    /// Writes the exact batches of a position to files, with no cluster.
    Replay(replay::Args),
    /// Recomputes a receipt from the plan: every sample once, or it names where they part.
    Audit(audit::Args),
    /// Shows the state of a running cluster.
    Status(status::Args),
    /// Submits, shows and removes jobs.
    Job(job::Args),
    /// Issues certificates from the cluster's CA.
    Cert(cert::Args),
    /// Runs the coordinator; the same as `spdl-coord`.
    Coord(spdl_coordinator::cli::Args),
    /// Runs a worker; the same as `spdl-worker`.
    Worker(spdl_worker::cli::Args),
}

impl Command {
    /// Runs the subcommand.
    pub(crate) fn run(self) -> Outcome {
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
            Self::Status(args) => status::run(&args),
            Self::Job(args) => job::run(args),
            Self::Cert(args) => cert::run(&args),
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
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// A runtime for commands that only wait for one thing at a time.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, CtlError> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(CtlError::Runtime)
}
