//! Others' software: the Python package `webdataset`, the S3 protocol.

mod s3_server;
#[path = "../support/mod.rs"]
mod support;
