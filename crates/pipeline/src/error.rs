//! The errors of a pipeline.

use std::{any::Any, time::Duration};

/// The error of an operation: any error type.
pub type OpError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a pipeline that returns no item.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum PipelineError {
    /// No item came in time. The pipeline is still running; the caller may try again.
    #[error("no item within {waited:?}: stage `{stage}` {doing}")]
    Timeout { stage: String, doing: String, waited: Duration },
    /// An operation failed, and the policy of its stage is to fail. The pipeline has stopped.
    #[error("stage `{stage}` failed: {source}")]
    Failed { stage: String, source: OpError },
    /// More items failed than the policy of the stage lets pass. The pipeline has stopped.
    #[error("more than {max} items failed in stage `{stage}`, the limit of its `max_failures`; the last: {last}")]
    TooManyFailures {
        stage: String,
        max: u64,
        #[source]
        last: Box<PipelineError>,
    },
    /// An operation or the source panicked. The pipeline has stopped.
    #[error("stage `{stage}` panicked: {message}")]
    Panicked { stage: String, message: String },
}

impl PipelineError {
    /// Returns whether trying again can help.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    pub(crate) fn panicked(stage: &str, payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let message = text.unwrap_or_else(|| "without a message".to_owned());
        Self::Panicked { stage: stage.to_owned(), message }
    }
}

/// The error of a pipeline that cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum BuildError {
    /// A number is zero that must be at least 1.
    #[error("{what} is 0; it must be at least 1")]
    Zero { what: String },
    /// Two stages have the same name; statistics and errors need distinct names.
    #[error("there are two stages `{stage}`")]
    NameTwice { stage: String },
    /// A stage gives results in the order of completion, in a branch whose results are put in the order of its inputs.
    #[error(
        "stage `{stage}` gives its results in the order of completion, but `{branches}` puts those of its branches in the \
         order of the inputs; give both the same order"
    )]
    BranchOrder { stage: String, branches: String },
    /// A stage merges branches or pipelines, but none is given.
    #[error("stage `{stage}` has nothing to merge; it must have at least one branch or pipeline")]
    NothingToMerge { stage: String },
    /// The system starts no thread.
    #[error("cannot start threads: {source}")]
    Threads { source: std::io::Error },
}

/// The error of a change of a stage's concurrency.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum ConcurrencyError {
    /// The concurrency must be at least 1.
    #[error("a concurrency of 0 would stop stage `{stage}`; it must be at least 1")]
    Zero { stage: String },
    /// The pipeline has no pipe of this name. Other stages have no concurrency.
    #[error("the pipeline has no pipe `{stage}`; it has {pipes}")]
    NoPipe { stage: String, pipes: String },
    /// The system starts no thread. The stage goes on with the threads that it has.
    #[error("cannot start threads for stage `{stage}`: {source}")]
    Threads { stage: String, source: std::io::Error },
}
