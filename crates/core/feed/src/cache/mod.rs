//! Caches of blocks: what they hold within a budget of bytes, and what they evict first. No I/O; the caches see no
//! bytes.

mod eviction;
mod memory;

pub use eviction::{Demand, Eviction, FirstCome, IdleValue, LeastRecentlyUsed};
pub use memory::{MemoryCache, Released};

use spdl_types::Fingerprint;

/// The identity of a block: its dataset and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// Fingerprint of the dataset's manifest.
    pub dataset: Fingerprint,
    /// Number of the block in the manifest.
    pub block: u32,
}
