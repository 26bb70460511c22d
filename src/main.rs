//! `spdl-ctl`: packs, plans, pulls, replays, audits and shows. Parses, sets up tracing, runs one command.
//! `spdl-ctl coord` and `spdl-ctl worker` are the front doors of `spdl-coord` and `spdl-worker`.

mod ctl;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = ctl::Cli::parse();
    if cli.die_with_parent {
        // Fails only on kernels without the call, where the parent's own clean-up has to do.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    }
    ctl::trace(cli.verbose);
    match cli.command.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}
