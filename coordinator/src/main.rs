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
    // A log that nobody reads any more, or a full disk, ends nothing.
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
    // A name server or a disk that hangs holds nobody up.
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
