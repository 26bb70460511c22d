//! The binary `spdl-worker`, which runs one worker process.

use std::process::ExitCode;

use clap::Parser;
use spdl_wire::process;
use spdl_worker::cli::{CliError, WorkerArgs, run};

#[derive(Parser)]
#[command(version, about, name = "spdl-worker")]
struct WorkerCli {
    #[command(flatten)]
    args: WorkerArgs,
}

fn main() -> ExitCode {
    match serve(WorkerCli::parse().args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => process::fail(&error, error.hint()),
    }
}

/// Starts tokio with two threads, which only move bytes; decoding has threads of its own, within the budget.
fn serve(args: WorkerArgs) -> Result<(), CliError> {
    let _log = args.log("info")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|source| CliError::Os { what: "runtime".to_owned(), source })?.block_on(run(args))
}
