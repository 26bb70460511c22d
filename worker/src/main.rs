//! The binary `spdl-worker`, which runs one worker process.

use std::{io::IsTerminal, process::ExitCode};

use clap::Parser;
use spdl_worker::cli::{WorkerArgs, run};
use tracing_subscriber::EnvFilter;

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
    let filter = EnvFilter::try_from_env("SPDL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::io::stderr().is_terminal();
    // A closed standard error or a full disk must not end the worker.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        .log_internal_errors(false)
        .init();
    match run(cli.args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}
