//! What random choices depend on.

use super::{JobFile, PlainKey};

pub(super) struct Seed;

impl PlainKey for Seed {
    type Value = u64;

    fn value(file: &JobFile, _samples: u64) -> u64 {
        file.seed
    }
}
