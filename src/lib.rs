//! Distributed data loading that keeps GPUs busy in multi-node training.
//!
//! This crate combines the parts: [`local`] is the whole loader in one process, and the program `spdl-ctl` is here too.
//! The parts are `spdl_shard` (datasets and their order), `spdl_wire` (how processes talk), `spdl_coordinator`,
//! `spdl_worker` and `spdl_client`.

pub mod local;
pub mod pictures;
