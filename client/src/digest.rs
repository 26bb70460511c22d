//! The digest of the contents of delivered batches.

use std::{fmt, ops::AddAssign, str::FromStr};

use serde::{Deserialize, Serialize};
use spdl_job::layout::BatchView;
use xxhash_rust::xxh3::Xxh3Default;

/// The sum, modulo 2^128, of one XXH3-128 per delivered entry, over the entry's epoch, offset, id and flags, and then
/// the length and the bytes of each column. Like a receipt, it depends neither on the order of delivery nor on the
/// number of ranks; unlike a receipt, it also proves the contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContentDigest(#[serde(with = "spdl_types::hex128")] pub u128);

impl ContentDigest {
    /// Returns the digest of one batch. Reads every byte, at about 10 GB/s per core.
    #[must_use]
    pub fn of(batch: &BatchView<'_>) -> Self {
        let mut sum = Self::default();
        for (index, entry) in batch.entries().enumerate().filter(|(_, entry)| entry.is_delivery()) {
            let mut hash = Xxh3Default::new();
            hash.update(&entry.epoch.to_le_bytes());
            hash.update(&entry.offset.to_le_bytes());
            hash.update(&entry.id.to_le_bytes());
            hash.update(&entry.flags.to_le_bytes());
            for column in 0..batch.layout().columns().len() {
                let bytes = batch.sample_bytes(column, index);
                hash.update(&(bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            }
            sum += Self(hash.digest128());
        }
        sum
    }
}

impl AddAssign for ContentDigest {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for ContentDigest {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}
