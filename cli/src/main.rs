//! The program `spdl-ctl`; all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    spdl_cli::main()
}
