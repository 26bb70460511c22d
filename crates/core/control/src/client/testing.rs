//! A job for tests, also of the crates above. It has no feature of its own, so that all builds share one `spdl-control`.

use spdl_job::{BadSamples, Column, ColumnKind, IntColumn, Job};
use spdl_order::{EpochEnd, OrderParams};
use spdl_types::{DType, Fingerprint};

/// Returns a job of 100 samples with one column.
#[must_use]
pub fn job() -> Job {
    Job {
        name: "train".into(),
        dataset: "data".into(),
        dataset_fingerprint: Fingerprint(1),
        view: None,
        mix: None,
        samples: 100,
        seed: 0,
        global_batch: 24,
        epochs: 2,
        epoch_end: EpochEnd::Drop,
        bad_samples: BadSamples::Substitute,
        max_bad_fraction: 0.001,
        order: OrderParams { version: 1, lanes: 1, window: 10, shuffle: true },
        columns: vec![Column::new("label", "cls", ColumnKind::Int(IntColumn), DType::I64)],
    }
}
