//! The settings of a [`Fetcher`](super::Fetcher), the places of blocks that it fetches, and the state of its caches.

use std::{ops::Range, sync::Arc};

use spdl_feed::cache::BlockKey;
use spdl_insight::tuning::Tunable;
use spdl_wire::spans;
use tracing::Span;

use super::{BlockPeers, RetrySettings, ShardSource};

/// A block and the place of its bytes.
#[derive(Clone, Debug)]
pub struct BlockPlace {
    /// The block's identity.
    pub key: BlockKey,
    /// Where the bytes of the block's shard are read from.
    pub(crate) shard: Arc<dyn ShardSource>,
    /// Byte range of the block in the shard.
    pub range: Range<u64>,
    /// Decides which other workers are asked for the block; `None` if no worker is asked.
    pub(crate) peers: Option<BlockPeers>,
}

impl BlockPlace {
    pub(super) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub(super) fn span(&self) -> Span {
        spans::fetch(self.shard.url(), self.key.block)
    }
}

/// The settings of a [`Fetcher`](super::Fetcher).
#[derive(Clone, Debug)]
pub struct FetchSettings {
    /// Maximum bytes of blocks in memory.
    pub memory_bytes: u64,
    /// Maximum bytes that are fetched for a single use because their block has no room in memory.
    pub transit_bytes: u64,
    /// Maximum concurrent requests at first. Default: 32.
    pub requests: u32,
    /// Retry policy of reads.
    pub retry: RetrySettings,
}

impl FetchSettings {
    /// Returns the default settings with these limits.
    #[must_use]
    pub fn new(memory_bytes: u64, transit_bytes: u64) -> Self {
        Self { memory_bytes, transit_bytes, requests: Tunable::Requests.initial(), retry: RetrySettings::default() }
    }
}

/// The state of a cache of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedBytes {
    /// Bytes of the blocks in it.
    pub used_bytes: u64,
    /// The most bytes of blocks that it may hold.
    pub limit_bytes: u64,
    /// Bytes of blocks that are in use, or that a plan uses soon.
    pub window_bytes: u64,
}

/// The state of a cache on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCacheState {
    /// Bytes of the blocks in it.
    pub used_bytes: u64,
    /// The most bytes of blocks in it.
    pub limit_bytes: u64,
    /// How many blocks had no room.
    pub refused: u64,
    /// Whether nothing is written because the disk failed.
    pub is_failing: bool,
    /// Blocks that are still to be written.
    pub to_write: usize,
}
