//! `spdl-coord`: the coordinator as a process.

use std::process::ExitCode;

use clap::Parser;
use spdl_coordinator::{
    cli::{CoordArgs, run},
    error_text,
};

#[derive(Parser)]
#[command(version, about, name = "spdl-coord")]
struct CoordCli {
    #[command(flatten)]
    args: CoordArgs,
}

fn main() -> ExitCode {
    let cli = CoordCli::parse();
    spdl_process::log_to_stderr("info");
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return spdl_process::fail(format!("cannot start the runtime: {error}"), None::<&str>),
    };
    let result = runtime.block_on(run(cli.args));
    // Not waiting for blocking tasks: one that hangs on a name server or a disk would delay the exit.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => spdl_process::fail(error_text(&error), error.hint()),
    }
}
