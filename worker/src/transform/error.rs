//! The errors that prevent the calling of Python functions. The errors of single samples are in
//! [`BadSampleCause`](crate::decode::BadSampleCause).

use std::{io, path::PathBuf, sync::Arc};

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
    #[error("memory for the functions of jobs: {problem}")]
    Memory { problem: String },
}
