//! Tests across crates, with real processes, sockets and files.

mod bad_input;
mod bad_samples;
mod kill;
mod large_pictures;
mod launches;
#[path = "../support/processes.rs"]
#[allow(dead_code, reason = "the benches use the rest")]
mod processes;
mod same_stream;
