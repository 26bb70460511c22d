//! `spdl-ctl`: packs, plans, pulls, replays, audits and shows. Parses, sets up tracing, runs one command.
//! `spdl-ctl coord` and `spdl-ctl worker` are the front doors of `spdl-coord` and `spdl-worker`.
// A line that cannot be printed is an error of the command, never a panic: `ctl::output` prints.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod ctl;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match ctl::CtlCli::read() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    if cli.die_with_parent {
        // Fails only on kernels without the call, where the parent's own clean-up has to do.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    }
    ctl::trace(cli.verbose);
    cli.run()
}
