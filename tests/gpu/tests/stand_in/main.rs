//! Tests of the loader on a device, with a stand-in for the driver: the same code as with a real driver, and every
//! fault that a real one can have. Each test runs in its own process, which loads the stand-in as `libcuda.so.1`.

mod errors;
mod faults;
mod harness;
mod memory;
mod model;
mod programs;
mod releases;
mod right;
mod runner;
