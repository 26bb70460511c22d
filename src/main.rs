//! The program `spdl-ctl`: packs datasets, shows plans, pulls and replays batches, audits runs and shows the cluster's
//! state. `main` parses the arguments, sets up tracing and runs one subcommand. `spdl-ctl coord` and `spdl-ctl worker`
//! run the same code as `spdl-coord` and `spdl-worker`.
// Output goes through `ctl::output`, which returns an error where `println!` would panic.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod ctl;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match ctl::CtlCli::read() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    if cli.die_with_parent {
        // Fails only on kernels without this call. There, only the parent's own clean-up ends this process.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    }
    ctl::trace(cli.verbose);
    cli.run()
}
