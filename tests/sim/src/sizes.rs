//! The sizes of samples: what they cost, and how those of like size come in one batch.

use std::sync::Arc;

use spdl_job::Job;
use spdl_order::{BucketParams, EpochEnd, Plan};
use spdl_types::{SampleId, mix::splitmix64};

/// Returns the size of a sample.
pub(crate) fn size_of(SampleId(id): SampleId) -> u32 {
    1 + (splitmix64(id) % 100) as u32
}

/// Returns the stream of a job of one dataset, in which some jobs have samples of like size in one batch.
pub(crate) fn bucketed(plan: Plan, job: &Job) -> Plan {
    if !job.seed.is_multiple_of(6) || !job.order.shuffle {
        return plan;
    }
    let (batch, batches) = (job.global_batch, 1 + (job.seed / 6 % 5) as u32);
    let is_continuous = job.epoch_end == EpochEnd::Continuous;
    plan.bucketed(BucketParams { window: batches * batch, batch, is_continuous }, job.seed, Arc::new(size_of))
}
