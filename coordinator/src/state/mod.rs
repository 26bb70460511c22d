//! Where the coordinator's durable state is kept: jobs, sessions with their acknowledged positions, bad samples.
//!
//! A store only keeps what the core says; it decides nothing. One conformance suite runs on every implementation.

#[cfg(test)]
mod conformance;
mod embedded;
mod memory;

use std::path::PathBuf;

pub use embedded::EmbeddedState;
pub use memory::MemoryState;

use crate::core::{Change, Durable};

/// Keeps the durable state.
pub trait StateStore: Send {
    /// All that is kept.
    ///
    /// # Errors
    /// When it cannot be read, or is not what this program wrote.
    fn load(&self) -> Result<Durable, StateError>;

    /// Makes changes durable, in order and all or none: when this returns, they survive a crash.
    ///
    /// # Errors
    /// When they could not be written; none of them is then kept.
    fn apply(&mut self, changes: &[Change]) -> Result<(), StateError>;
}

/// The state cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Another coordinator has it.
    #[error("state `{}` is in use by another process; stop that one, or give this one its own directory", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Another version of this program wrote it.
    #[error("state `{}` has format {actual}; this program reads format {expected}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What it has.
        actual: u64,
        /// What this program reads.
        expected: u64,
    },
    /// Something in it does not read back as it was written.
    #[error("state `{}`: {subject} is damaged: {cause}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What.
        subject: String,
        /// How.
        cause: String,
    },
    /// The disk does not do what it should.
    #[error("state `{}` cannot be {action}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted: `opened`, `read` or `written`.
        action: &'static str,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StateError {
    /// Whether the same may work later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Locked { .. } | Self::Io { .. })
    }
}
