//! The binary `spdl-worker`, which runs one worker process without functions in Rust; all of it is in the library.

use std::process::ExitCode;

use spdl_ops::FunctionRegistry;

fn main() -> ExitCode {
    spdl_worker::main(FunctionRegistry::new())
}
