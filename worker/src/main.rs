//! The binary `spdl-worker`, which runs one worker process.

use std::process::ExitCode;

use clap::Parser;
use spdl_wire::process;
use spdl_worker::cli::{WorkerArgs, run};

#[derive(Parser)]
#[command(version, about, name = "spdl-worker")]
struct WorkerCli {
    #[command(flatten)]
    args: WorkerArgs,
}

/// Starts tokio with two threads, which only move bytes; decoding has threads of its own, within the budget.
#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let cli = WorkerCli::parse();
    process::log_to_stderr("info");
    match run(cli.args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => process::fail(&error, error.hint()),
    }
}
