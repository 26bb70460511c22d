//! What tests of several kinds of columns share.

use spdl_order::DatasetFacts;
use spdl_types::Fingerprint;

use crate::{Job, JobError, JobFile};

/// Returns a job with one column of this kind, which has these keys besides.
pub(crate) fn job_of(kind: &str, keys: &str) -> Result<Job, JobError> {
    job_with(&format!("name = \"c\"\nfrom = \"npy\"\ndecode = \"{kind}\"\n{keys}"))
}

/// Returns a job with columns, of which the first one has these keys; others follow them.
pub(crate) fn job_with(columns: &str) -> Result<Job, JobError> {
    let text = format!("name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n[[column]]\n{columns}");
    let facts = DatasetFacts::new(Fingerprint(7), 100, 10);
    JobFile::parse(&text, "job.toml").and_then(|file| file.freeze(&facts))
}
