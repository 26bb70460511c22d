//! Jobs for tests, also of the crates above. It has no feature of its own, so that all builds share one `spdl-job`.

use crate::{Column, Job, JobFile};
use spdl_order::OrderParams;
use spdl_types::Fingerprint;

/// Returns a job of one epoch with these columns, in one lane, with the defaults of all other keys. A thousandth of the samples may
/// be bad.
///
/// # Panics
/// Panics if a key has no default.
#[must_use]
pub fn job(samples: u64, global_batch: u32, columns: Vec<Column>) -> Job {
    let file = file(&format!("global_batch = {global_batch}\nmax_bad_fraction = 0.001"));
    let order = OrderParams { version: 1, lanes: 1, window: 10, shuffle: true };
    Job { columns, ..file.job(Fingerprint(1), samples, order) }
}

/// Returns a job file with these keys.
pub(crate) fn file(keys: &str) -> JobFile {
    JobFile::parse(&format!("name = \"train\"\ndataset = \"data\"\n{keys}"), "job.toml").expect("valid keys")
}

/// The table of a column that holds numbers.
#[cfg(test)]
pub(crate) const LABEL: &str = "[[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n";

/// Returns an order of one lane.
#[cfg(test)]
pub(crate) const fn order() -> OrderParams {
    OrderParams { version: 1, lanes: 1, window: 10, shuffle: true }
}

/// Returns the job of a file with these keys and columns, for a dataset of 100 samples.
#[cfg(test)]
pub(crate) fn job_of(keys: &str) -> Result<Job, crate::JobError> {
    let text = format!("name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n{keys}");
    let facts = spdl_order::DatasetFacts::new(Fingerprint(7), 100, 10);
    JobFile::parse(&text, "job.toml").and_then(|file| file.freeze(&facts))
}

/// Returns the job of a file with these keys, for a dataset of so many samples. Its one column holds numbers.
#[cfg(test)]
pub(crate) fn frozen(keys: &str, samples: u64) -> Job {
    let file = file(&format!("{keys}\n[[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\""));
    file.freeze(&spdl_order::DatasetFacts::new(Fingerprint(7), samples, samples.div_ceil(100))).expect("a valid job")
}
