//! The samples of one step.

use spdl_order::MAX_GLOBAL_BATCH;

use super::{JobFile, PlainKey};

pub(super) struct GlobalBatch;

impl PlainKey for GlobalBatch {
    type Value = u32;

    fn value(file: &JobFile, _samples: u64) -> u32 {
        file.global_batch
    }

    fn check(value: &u32) -> Result<(), String> {
        let most = MAX_GLOBAL_BATCH;
        if (1..=most).contains(value) { Ok(()) } else { Err(format!("is {value}; it must be 1 to {most}")) }
    }
}
