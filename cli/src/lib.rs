//! The command line of spdl-cluster, and the whole loader in one process.
//!
//! [`local`] is the loader without servers, [`kind`] recognises what a field holds, [`sheet`] draws batches, [`pictures`] makes the pictures of the demo and the tests, and [`main`] is
//! the program `spdl-ctl`. Their parts are in `spdl_shard` (datasets and their order), `spdl_wire` (how processes
//! talk), `spdl_coordinator`, `spdl_worker` and `spdl_client`.
// Output goes through `ctl::output`, which returns an error where `println!` would panic.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod ctl;
pub mod kind;
pub mod local;
pub mod sheet;

pub use ctl::main;
pub use spdl_pictures as pictures;
