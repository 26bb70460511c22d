//! Batches on a CUDA device, which the device itself copies from page-locked slabs, on streams of the loader's own.
//!
//! [`driver`] calls the driver, [`flight`] keeps a slot until its copy is done, [`lane`] queues copies and kernels on
//! streams, and [`pump`] decides when to start them.

pub(crate) mod driver;
mod flight;
mod kernel;
mod lane;
mod launch;
mod pump;

pub(crate) use driver::Context;
pub(crate) use lane::Held;
pub(crate) use pump::Pump;
