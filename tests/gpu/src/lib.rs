//! Checks and measurements that need a GPU. The program of this package runs them on a real one. The ordinary tests run
//! the same on a stand-in for the driver, where timings mean nothing and only correctness is checked.

pub mod checks;
pub mod feed;
pub mod measurements;
pub mod raw;
