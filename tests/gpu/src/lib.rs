//! Checks and measurements that need a GPU. The program of this package runs them on a real one. The ordinary tests run
//! the same on a stand-in for the driver, where timings mean nothing and only correctness is checked.
//!
//! [`steps`] lists them, [`runner`] runs each as a process of its own, and [`report`] is what a step returns.

pub mod bandwidth;
pub mod busy;
pub mod checks;
pub mod contexts;
pub mod driver;
pub mod environment;
pub mod faults;
pub mod feed;
pub mod graphs;
pub mod growth;
pub mod kernel;
pub mod launches;
pub mod overlap;
pub mod plan;
pub mod processes;
pub mod raw;
pub mod report;
pub mod runner;
pub mod steps;
pub mod torn;
