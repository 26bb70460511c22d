//! spdl-coord: jobs, sessions, membership and placement.
//!
//! The state machine in [`spdl_control::coordinator`] decides, [`state`] stores what must outlive the process, and the shell around them serves QUIC and
//! HTTP. The coordinator never sees a sample; while it is down, running ranks keep receiving batches.

pub mod cli;
mod error;
mod shell;
pub mod state;

pub use error::error_text;
pub use shell::{AccessError, Authority, CA_DIRECTORY, CoordinatorSettings, DatasetLimits, Server, StartError};
