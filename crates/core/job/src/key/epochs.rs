//! How often the job goes through the dataset.

use super::{JobFile, PlainKey};

pub(super) const fn one() -> u64 {
    1
}

pub(super) struct Epochs;

impl PlainKey for Epochs {
    type Value = u64;

    fn value(file: &JobFile, _samples: u64) -> u64 {
        file.epochs
    }

    fn check(value: &u64) -> Result<(), String> {
        if *value == 0 { Err("must be at least 1".to_owned()) } else { Ok(()) }
    }
}
