//! The admission policy of the memory cache: which blocks are fetched whole and kept.

use std::fmt;

/// A policy that decides about a block that is not in memory and not fetched ahead.
pub(crate) trait Admission: fmt::Debug + Send + Sync {
    /// Returns whether to fetch the whole block of `block_bytes` and to keep it, if there is room for it, where a batch
    /// wants `wanted_bytes` of it. Otherwise only the wanted bytes are fetched, for one use.
    fn admits(&self, block_bytes: u64, wanted_bytes: u64) -> bool;
}

/// Admits a block if at least a quarter of it is wanted: then the rest costs less than three times the bytes, and the
/// samples that other batches want of the block are in memory already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QuarterWanted;

impl Admission for QuarterWanted {
    fn admits(&self, block_bytes: u64, wanted_bytes: u64) -> bool {
        wanted_bytes.saturating_mul(4) >= block_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_fetched_whole_from_a_quarter_of_it_on() {
        assert!(!QuarterWanted.admits(4096, 1023));
        assert!(QuarterWanted.admits(4096, 1024));
        assert!(QuarterWanted.admits(4096, u64::MAX));
    }
}
