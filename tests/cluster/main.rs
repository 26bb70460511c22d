//! Tests across crates, with real processes, sockets and files.

mod bad_input;
mod bad_samples;
mod kill;
mod large_pictures;
mod launches;
mod otlp;
mod same_stream;
mod stage_times;
mod trace;
mod tuning;
mod view;
