//! The errors that prevent the calling of Python functions. The errors of single samples are in
//! [`BadSampleCause`](crate::decode::BadSampleCause).

use std::{fmt, io, path::PathBuf, sync::Arc};

use spdl_job::SourceDigest;

/// The error of Python functions that cannot be called.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum TransformError {
    #[error(
        "column `{column}` of job `{job}` calls the function `{function}` in Python, and this worker has no permission to: \
         start it with --allow-transforms, or with the interpreter as --python"
    )]
    Forbidden { job: String, column: String, function: String },
    #[error("Python `{python}` for the functions of jobs cannot be started: {source}")]
    Start { python: PathBuf, source: Arc<io::Error> },
    #[error("Python `{python}` cannot call the functions of jobs: {problem}")]
    Interpreter { python: PathBuf, problem: String },
    #[error("function `{function}` cannot be loaded in Python `{python}`: {problem}")]
    Load { function: String, python: PathBuf, problem: String },
    #[error(
        "job `{job}` was created with source {expected} of the function `{function}`, and worker `{worker}` has {found}: \
         install the version of the job on all workers, or create a new job"
    )]
    SourceDiffers { job: String, function: String, worker: String, expected: SourceDigest, found: Box<FoundSource> },
    #[error(
        "the function `{function}` of job `{job}` changed on worker `{worker}` while it was in use, from {before} to {now}: \
         launch the training again, so that one version makes all samples"
    )]
    SourceChanged { job: String, function: String, worker: String, before: Box<FoundSource>, now: Box<FoundSource> },
    #[error("memory for the functions of jobs: {problem}")]
    Memory { problem: String },
}

impl TransformError {
    /// Returns whether another version of a function is the reason.
    pub(super) const fn is_of_source(&self) -> bool {
        matches!(self, Self::SourceDiffers { .. } | Self::SourceChanged { .. })
    }
}

/// The source of a function where it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSource(pub Option<SourceDigest>);

impl fmt::Display for FoundSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(digest) => write!(f, "source {digest}"),
            None => f.write_str("no source that can be read"),
        }
    }
}
