//! The loader on a device, driven through a stand-in for the driver: the same code as with a real one, and every fault
//! that a real one can have. Each test runs in a process of its own, which loads the stand-in as `libcuda.so.1`.

mod errors;
mod faults;
mod programs;
mod right;
mod scene;
