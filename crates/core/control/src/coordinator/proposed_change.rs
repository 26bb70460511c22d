//! A change of a job that is proposed to its ranks.

use spdl_job::Job;
use spdl_order::RedactedSamples;
use spdl_types::Fingerprint;

/// What is to change in a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum JobChange {
    /// The sources have these weights.
    Weights(Vec<u32>),
    /// These samples do not come.
    Redaction(RedactedSamples),
}

/// A change that waits for the promises of ranks.
#[derive(Clone, Debug)]
pub(super) struct ProposedChange {
    /// What the admin asked for; `None` if ranks go by the changed job already, and the coordinator has lost it.
    pub(super) change: Option<JobChange>,
    /// The sample that the admin named.
    pub(super) named: Option<u64>,
    /// The number of samples before the change.
    pub(super) from: u64,
    /// The number of global batches between the furthest rank and the change.
    pub(super) batches_ahead: u64,
    /// The job with the change.
    pub(super) job: Job,
    pub(super) fingerprint: Fingerprint,
}
