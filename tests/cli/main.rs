//! The command line as a user meets it: the real program, and every text compared.

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
