//! Interoperability with other software: the Python packages `webdataset` and `pillow`, and the S3 protocol.

mod crop_ready;
mod everyday;
mod foreign;
#[path = "../support/processes.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod processes;
mod quality;
mod quarantine;
mod s3_job;
mod s3_server;
#[path = "../support/mod.rs"]
mod support;
mod webdataset;
