//! Feeds GPUs in multi-node training.
//!
//! This crate puts the parts together: [`local`] is the whole loader in one process. The parts themselves are
//! `spdl_shard` (datasets and their order), `spdl_wire` (how processes talk), `spdl_coordinator`,
//! `spdl_worker` and `spdl_client`. The program `spdl-ctl` is in this crate too.

pub mod local;
pub mod pictures;
