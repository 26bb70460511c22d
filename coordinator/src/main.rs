//! `spdl-coord`: the coordinator as a process.

use std::{io::IsTerminal, process::ExitCode};

use clap::Parser;
use spdl_coordinator::{
    cli::{Args, run},
    error_text,
};
use tracing_subscriber::EnvFilter;

#[derive(Parser)]
#[command(version, about, name = "spdl-coord")]
struct Cli {
    #[command(flatten)]
    args: Args,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("SPDL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).init();
    match run(cli.args).await {
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
