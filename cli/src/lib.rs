//! The command line of spdl-cluster, and the whole loader in one process.
//!
//! [`local`] is the loader without servers, [`dev_cluster`] finds the cluster of `spdl-ctl dev up`, [`kind`] recognises what a field
//! holds, [`sheet`] draws batches, [`suggest`] finds a job for a dataset, [`pictures`] makes the pictures of the demo and the tests, and
//! [`main`] is the program `spdl-ctl`. Their parts are in `spdl_shard` (datasets and their order), `spdl_wire` (how processes
//! talk), `spdl_coordinator`, `spdl_worker` and `spdl_client`.
// Output goes through `ctl::output`, which returns an error where `println!` would panic.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod ctl;
mod datasets;
pub mod dev_cluster;
mod evaluated;
pub mod kind;
pub mod local;
mod packed_documents;
pub mod sheet;
pub mod suggest;

pub use ctl::main;
pub use spdl_pictures as pictures;
