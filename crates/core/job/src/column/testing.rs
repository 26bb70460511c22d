//! What tests of several kinds of columns share.

use crate::{Job, JobError, testing};

/// Returns a job with one column of this kind, which has these keys besides.
pub(crate) fn job_of(kind: &str, keys: &str) -> Result<Job, JobError> {
    job_with(&format!("name = \"c\"\nfrom = \"npy\"\ndecode = \"{kind}\"\n{keys}"))
}

/// Returns a job with columns, of which the first one has these keys; others follow them.
pub(crate) fn job_with(columns: &str) -> Result<Job, JobError> {
    testing::job_of(&format!("[[column]]\n{columns}"))
}
