//! spdl-coord: jobs, sessions, membership and placement.
//!
//! The [`core`] decides, [`state`] keeps what must outlive the process, and the shell around them talks QUIC and
//! HTTP. The coordinator never sees a sample; while it is away, running ranks keep getting batches.

pub mod cli;
pub mod core;
mod error;
mod shell;
pub mod state;

pub use error::error_text;
pub use shell::{Authority, CA_DIRECTORY, CoordinatorSettings, DatasetLimits, Server, StartError};
