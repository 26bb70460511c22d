//! Tests across crates, with real processes, sockets and files.

mod bad_input;
mod bad_samples;
mod certificates;
mod deliveries;
mod groups;
mod helpers;
mod kill;
mod large_pictures;
mod launches;
mod lying;
mod mix;
mod network_settings;
mod otlp;
mod packed_sources;
mod peers;
mod ragged_memory;
mod rust_function;
mod rust_trainer;
mod same_stream;
mod scale;
mod sequences;
mod sharing;
mod stage_times;
mod trace;
mod tuning;
mod view;
