//! The binary `spdl-worker`, which runs one worker process without functions in Rust; all of it is in the library.

use std::process::ExitCode;

use spdl_functions::FunctionRegistry;

fn main() -> ExitCode {
    spdl_worker::main(FunctionRegistry::new())
}
