//! What the status of a job says of its sources.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use spdl_job::JobSource;
use spdl_types::Position;

use super::jobs::JobState;

/// What a source of a job has given up to a position of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SourceStatus {
    pub name: String,
    /// The samples that it has given, over all epochs: to less than one for each stage of the job.
    pub samples: u64,
    /// How often it has gone through its samples.
    pub times: f64,
    /// Its distinct bad samples.
    pub bad_sample_count: u64,
}

impl SourceStatus {
    /// Returns those of a job; none if it has one dataset.
    pub(super) fn of(JobState { job, ledger, .. }: &JobState, at: Position) -> Vec<Self> {
        let before = job.samples_before(at);
        let source = |(number, (source, ids)): (usize, (&JobSource, Range<u64>))| Self {
            name: source.name.clone(),
            samples: job.samples_given(number, before),
            times: job.times_read(number, before),
            bad_sample_count: ledger.count_in(ids),
        };
        job.source_ids().enumerate().map(source).collect()
    }
}
