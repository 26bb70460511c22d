//! The crate of `spdl-worker`: fetching, decoding, batching and serving samples.

pub mod budget;
pub mod cli;
pub mod decode;
pub mod feed;
pub mod fetch;
mod frames;
mod help;
mod http;
mod metrics;
mod rust_functions;
pub mod serve;
pub mod size;
pub mod transform;
mod tuning;

pub use cli::main;
pub use frames::{FrameAccess, NoFramesError, frame_child, own_frame_decoders};
pub use rust_functions::RustFunctionError;
