//! spdl-worker: the pipeline engine and the download, decode and batch path

pub mod budget;
pub mod fetch;
