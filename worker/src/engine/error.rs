//! What can go wrong with a pipeline.

use std::{any::Any, time::Duration};

/// What an operation fails with: any error.
pub type OpError = Box<dyn std::error::Error + Send + Sync>;

/// Why a pipeline gave no item.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// Nothing came in time. The pipeline goes on; ask again.
    #[error("no item within {waited:?}: stage `{stage}` {doing}")]
    Timeout {
        /// The stage that everything waits for.
        stage: String,
        /// What it is doing.
        doing: String,
        /// The time that was allowed.
        waited: Duration,
    },
    /// An operation failed and its stage does not allow that. The pipeline has stopped.
    #[error("stage `{stage}` failed: {source}")]
    Failed {
        /// The stage.
        stage: String,
        /// What the operation said.
        source: OpError,
    },
    /// An operation or the source panicked. The pipeline has stopped.
    #[error("stage `{stage}` panicked: {message}")]
    Panicked {
        /// The stage.
        stage: String,
        /// What it said.
        message: String,
    },
}

impl PipelineError {
    /// Whether asking again can help.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    pub(super) fn panicked(stage: &str, payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let message = text.unwrap_or_else(|| "without a message".to_owned());
        Self::Panicked { stage: stage.to_owned(), message }
    }
}

/// A pipeline that cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A number that must be at least 1.
    #[error("{what} is 0; it must be at least 1")]
    Zero {
        /// Which, and of which stage.
        what: String,
    },
    /// Figures and errors name stages, so names must differ.
    #[error("there are two stages `{stage}`")]
    NameTwice {
        /// The name.
        stage: String,
    },
    /// The system gives no thread.
    #[error("cannot start threads: {source}")]
    Threads {
        /// What it said.
        source: std::io::Error,
    },
}
