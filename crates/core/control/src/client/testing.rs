//! A job for tests, also of the crates above. It has no feature of its own, so that all builds share one `spdl-control`.

use spdl_job::{Column, ColumnKind, IntColumn, Job, testing};
use spdl_types::DType;

/// Returns a job of 100 samples with one column.
#[must_use]
pub fn job() -> Job {
    let columns = vec![Column::new("label", "cls", ColumnKind::Int(IntColumn), DType::I64)];
    Job { epochs: 2, ..testing::job(100, 24, columns) }
}
