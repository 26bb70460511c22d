//! Batches on a CUDA device: copied by the device itself, from page-locked slabs, on streams of their own.
//!
//! [`driver`] calls the driver, [`flight`] keeps a slot until its copy is done, [`lane`] puts copies and kernels on streams,
//! [`pump`] decides when.

pub(crate) mod driver;
mod flight;
mod kernel;
mod lane;
mod launch;
mod pump;

pub(crate) use driver::Context;
pub(crate) use lane::Held;
pub(crate) use pump::Pump;
