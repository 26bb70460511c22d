//! The command line: runs the real program and compares its texts.

mod audit;
mod jobs;
mod manual;
mod output;
#[path = "../support/processes.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod processes;
mod replaced;
mod runs;
mod status;
