//! spdl-worker: the pipeline engine and the download, decode and batch path

pub mod budget;
pub mod cli;
pub mod decode;
pub mod engine;
pub mod feed;
pub mod fetch;
pub mod figures;
mod http;
mod metrics;
pub mod serve;
pub mod size;
pub mod transform;
