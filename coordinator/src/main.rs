//! `spdl-coord`: the coordinator as a process.

use std::{io::IsTerminal, process::ExitCode};

use clap::Parser;
use spdl_coordinator::{
    cli::{CoordArgs, run},
    error_text,
};
use tracing_subscriber::EnvFilter;

#[derive(Parser)]
#[command(version, about, name = "spdl-coord")]
struct CoordCli {
    #[command(flatten)]
    args: CoordArgs,
}

fn main() -> ExitCode {
    let cli = CoordCli::parse();
    let filter = EnvFilter::try_from_env("SPDL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::io::stderr().is_terminal();
    // A log whose reader is gone, or a full disk, must not end the process.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        .log_internal_errors(false)
        .init();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(run(cli.args));
    // Not waiting for blocking tasks: one that hangs on a name server or a disk would delay the exit.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error_text(&error));
            if let Some(hint) = error.hint() {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}
