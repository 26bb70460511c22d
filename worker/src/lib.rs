//! The crate of `spdl-worker`: the pipeline engine, and fetching, decoding, batching and serving samples.

pub mod budget;
pub mod cli;
pub mod decode;
pub mod engine;
pub mod feed;
pub mod fetch;
mod http;
mod metrics;
pub mod serve;
pub mod size;
pub mod stats;
pub mod transform;
