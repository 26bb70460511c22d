//! `spdl-ctl` for the tests of this package: cargo builds it before them, so that they never run an older one.

use std::process::ExitCode;

fn main() -> ExitCode {
    spdl_cli::main()
}
