//! The program `spdl-ctl`: packs datasets, shows plans, pulls and replays batches, audits runs and shows the cluster's
//! state. One file for each subcommand, and what they share. `spdl-ctl coord` and `spdl-ctl worker` run the same code as
//! `spdl-coord` and `spdl-worker`.

mod audit;
mod cert;
mod chats;
mod class_args;
mod compare;
mod coordinator;
mod costs;
mod dealt;
mod demo;
mod dev;
mod error;
mod examples;
mod html;
mod index;
mod info;
mod inspect;
mod interrupt;
mod job;
mod job_file;
mod look;
mod machine;
mod manual;
mod merge;
mod model;
mod named_run;
mod new_dataset;
mod output;
mod pack;
mod pack_tokens;
mod pictures;
mod plan;
mod plan_balance;
mod plan_classes;
mod plan_sequences;
mod profile;
mod progress;
mod pull;
mod record_names;
mod replay;
mod report;
mod run;
mod scale;
mod servers;
mod shown;
mod status;
mod table;
mod tally;
mod token_part;
mod tokenize;
mod top;
mod trace;
mod unpack;
mod verify;
mod warm;
mod working_set;

use std::{io, process::ExitCode};

use clap::{Parser, Subcommand};
use spdl_functions::FunctionRegistry;

pub(crate) use error::CtlError;

/// The result of a subcommand: its exit code, or an error to print on standard error.
pub(crate) type CtlResult = Result<ExitCode, CtlError>;

/// A distributed data loader for multi-node training: packs datasets, runs and inspects the cluster, and proves what
/// was delivered.
#[derive(Debug, Parser)]
#[command(name = "spdl-ctl", bin_name = "spdl-ctl", version, propagate_version = true)]
pub(crate) struct CtlCli {
    /// Ends this process when its parent process ends.
    #[arg(long, global = true, hide = true)]
    pub(crate) die_with_parent: bool,
    /// Logs more to standard error: -v for info, -vv for debug. SPDL_LOG takes filters (`spdl_client=debug`).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: CtlCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum CtlCommand {
    /// Runs a complete example: makes pictures, packs them, starts a cluster of real processes on loopback and pulls
    /// all batches.
    #[command(after_help = examples::DEMO)]
    Demo(demo::DemoArgs),
    /// Starts a cluster on this machine that goes on in the background, and ends it.
    #[command(after_help = examples::DEV)]
    Dev(dev::DevArgs),
    /// Writes the demo's pictures, to try the other commands with.
    #[command(after_help = examples::PICTURES)]
    Pictures(pictures::PicturesArgs),
    /// Writes shards from a folder of class folders, or from a text file that lists files; or tokens as Megatron's files.
    #[command(after_help = examples::PACK)]
    Pack(pack::PackArgs),
    /// Writes files of tokens from text and chats: JSON lines, Parquet or plain text.
    #[command(after_help = examples::TOKENIZE)]
    Tokenize(tokenize::TokenizeArgs),
    /// Makes one dataset of the parts that `pack --part` or `tokenize --part` has made.
    #[command(after_help = examples::MERGE)]
    Merge(merge::MergeArgs),
    /// Makes a manifest for shards or loose files that exist, without rewriting them.
    #[command(after_help = examples::INDEX)]
    Index(index::IndexArgs),
    /// Shows what a dataset has: fields, classes, splits, keys, and a job that reads them.
    #[command(after_help = examples::INFO)]
    Info(info::InfoArgs),
    /// Reads a whole dataset and checks every byte against its manifest, and every picture against its original.
    #[command(after_help = examples::VERIFY)]
    Verify(verify::VerifyArgs),
    /// Writes the records of a dataset back as files.
    #[command(after_help = examples::UNPACK)]
    Unpack(unpack::UnpackArgs),
    /// Shows the order of the samples, and its cost in cache and downloads.
    #[command(after_help = examples::PLAN)]
    Plan(plan::PlanArgs),
    /// Measures what this machine makes of a job, part by part, and recommends cores, memory and cache for a rate.
    #[command(after_help = examples::PROFILE)]
    Profile(profile::ProfileArgs),
    /// Fills a node's cache on disk with what a job reads first, before a training starts.
    #[command(after_help = examples::WARM)]
    Warm(warm::WarmArgs),
    /// Pulls batches as a trainer does, without training, and shows statistics.
    #[command(after_help = examples::PULL)]
    Pull(pull::PullArgs),
    /// Makes the exact batches of a position again, without a cluster, and writes them to files.
    #[command(after_help = examples::REPLAY)]
    Replay(replay::ReplayArgs),
    /// Shows the sequences of tokens at a position as text: the documents of each, and what of them is learned.
    #[command(after_help = examples::INSPECT)]
    Inspect(inspect::InspectArgs),
    /// Checks that every sample was delivered once: recomputes receipts from the plan and names the first difference.
    #[command(after_help = examples::AUDIT)]
    Audit(audit::AuditArgs),
    /// Shows the state of a running cluster.
    #[command(after_help = examples::STATUS)]
    Status(status::StatusArgs),
    /// Shows the cluster live in a terminal: ranks and their waits, stages, and what limits them.
    #[command(after_help = examples::TOP)]
    Top(top::TopArgs),
    /// Prints how many workers the ranks need, and why, for a platform that starts and stops workers.
    #[command(after_help = examples::SCALE)]
    Scale(scale::ScaleArgs),
    /// Shows what two runs came to side by side, and fails where the second one is worse than allowed.
    #[command(after_help = examples::COMPARE)]
    Compare(compare::CompareArgs),
    /// Records for some seconds what the workers and trainers of a job do, for Perfetto.
    #[command(after_help = examples::TRACE)]
    Trace(trace::TraceArgs),
    /// Writes a first job for a dataset; submits, lists, shows and removes jobs.
    #[command(after_help = examples::JOB)]
    Job(job::JobArgs),
    /// Lists runs, shows what a run came to, and resets a run to the beginning.
    #[command(after_help = examples::RUN)]
    Run(run::RunArgs),
    /// Issues certificates from the cluster's CA.
    #[command(after_help = examples::CERT)]
    Cert(cert::CertArgs),
    /// Prints a completion script for a shell.
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

/// Runs the program `spdl-ctl`: parses the arguments, sets up logging and runs one subcommand.
pub fn main() -> ExitCode {
    if let Some(code) = spdl_worker::frame_child() {
        return code;
    }
    let cli = match CtlCli::read() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    if cli.die_with_parent {
        // Fails only on kernels without this call. There, only the parent's own clean-up ends this process.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    }
    match &cli.command {
        // `top` draws on the screen, so nothing else may write there.
        CtlCommand::Top(_) => spdl_process::log_to_stderr("off"),
        // Has a log of its own.
        CtlCommand::Worker(_) => {}
        _ => spdl_process::log_to_stderr(log_level(cli.verbose)),
    }
    cli.run()
}

impl CtlCli {
    /// Parses the command line. Prints help, the version or a usage error itself and then returns the exit code.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        Self::try_parse().map_err(|error| match error.print() {
            Ok(()) => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1)),
            Err(error) => fail(&CtlError::Output(error)),
        })
    }

    /// Runs the command and prints its error, if any.
    pub(crate) fn run(self) -> ExitCode {
        self.command.run(self.verbose).unwrap_or_else(|error| fail(&error))
    }
}

/// Prints on standard error why a command failed, and returns its exit code.
fn fail(error: &CtlError) -> ExitCode {
    if matches!(error, CtlError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
        return output::BROKEN_PIPE.into();
    }
    let code = spdl_process::fail(error, error.hint());
    interrupt::exit_code().map_or(code, ExitCode::from)
}

impl CtlCommand {
    /// Runs the subcommand.
    pub(crate) fn run(self, verbose: u8) -> CtlResult {
        match self {
            Self::Demo(args) => demo::run(&args),
            Self::Dev(args) => dev::run(args),
            Self::Pictures(args) => pictures::run(&args),
            Self::Pack(args) => pack::run(args),
            Self::Tokenize(args) => tokenize::run(args),
            Self::Merge(args) => merge::run(&args),
            Self::Index(args) => index::run(args),
            Self::Info(args) => info::run(&args),
            Self::Verify(args) => verify::run(&args),
            Self::Unpack(args) => unpack::run(&args),
            Self::Plan(args) => plan::run(&args),
            Self::Profile(args) => profile::run(&args),
            Self::Warm(args) => warm::run(&args),
            Self::Pull(args) => pull::run(args),
            Self::Replay(args) => replay::run(&args),
            Self::Inspect(args) => inspect::run(&args),
            Self::Audit(args) => audit::run(&args),
            Self::Status(args) => status::run(&args, verbose > 0),
            Self::Top(args) => top::run(&args),
            Self::Scale(args) => scale::run(&args),
            Self::Compare(args) => compare::run(&args),
            Self::Trace(args) => trace::run(&args),
            Self::Job(args) => job::run(args),
            Self::Run(args) => run::run(args),
            Self::Cert(args) => cert::run(&args),
            Self::Completions(args) => manual::completions(&args),
            Self::Man(args) => manual::man(&args),
            Self::Coord(args) => {
                let runtime = runtime()?;
                let result = runtime.block_on(spdl_coordinator::cli::run(args));
                // Do not wait for blocking calls: a name server or a disk may hang.
                runtime.shutdown_background();
                result?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Worker(args) => {
                let _log = args.log(log_level(verbose))?;
                runtime()?.block_on(spdl_worker::cli::run(args, FunctionRegistry::new()))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Returns the log level on standard error unless `SPDL_LOG` sets another: warnings, more with `-v`.
fn log_level(verbose: u8) -> &'static str {
    ["warn", "info", "debug"][usize::from(verbose.min(2))]
}

/// Creates a runtime of two threads: enough for commands that do one thing at a time.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, CtlError> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(CtlError::Runtime)
}
