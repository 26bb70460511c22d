//! Batches on a CUDA device, which the device itself copies from page-locked slabs, on streams of the loader's own.
//!
//! [`driver`] calls the driver, [`pending_copy`] keeps a slot until its copy is done, [`copy_stream`] queues copies and kernels on
//! streams, and [`prefetcher`] decides when to start them.

mod copy_stream;
mod driver;
mod kernel;
mod launch;
mod pending_copy;
mod prefetcher;

pub(crate) use driver::Context;
pub(crate) use prefetcher::Prefetcher;
