//! How often the job goes through the dataset.

use super::{JobFile, PlainKey};

pub(super) const fn one() -> u64 {
    1
}

pub(super) struct Epochs;

impl PlainKey for Epochs {
    type Value = u64;

    /// Where the number of samples of the run is written, as many as it takes.
    fn value(file: &JobFile, samples: u64) -> u64 {
        file.run_samples().map_or(file.epochs, |total| total.div_ceil(samples.max(1)).max(1))
    }

    fn check(value: &u64) -> Result<(), String> {
        if *value == 0 { Err("must be at least 1".to_owned()) } else { Ok(()) }
    }
}
