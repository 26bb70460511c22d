//! Where the bytes of blocks lie, and who may be asked for them.

use std::{fmt, ops::Range, sync::Arc, time::Instant};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use spdl_feed::cache::BlockKey;
use spdl_order::Plan;
use spdl_sequence::Pools;
use spdl_types::SessionId;
use spdl_wire::spans;
use tracing::Span;

use super::{client::StoreClient, error::FetchError, hold::BlockContent, pieces::Pieces};

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

/// Blocks of a session that this worker reads.
pub(crate) trait BlockSource: fmt::Debug + Send + Sync {
    /// Returns where a block lies; `None` if there is no such block.
    fn place(&self, block: u32) -> Option<BlockPlace>;
}

/// The facts by which the workers that are asked for a block are chosen.
#[derive(Clone, Debug)]
pub(crate) struct BlockPeers {
    pub(crate) session: SessionId,
    pub(super) plan: Plan,
    planned: PlannedBlocks,
    /// When the rank began to read.
    pub(super) since: Instant,
    /// Whether this worker fetches the block as its owner, and so must not ask another owner.
    pub(super) is_owner: bool,
}

/// The numbers that the blocks of a dataset have in the plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedBlocks {
    /// The blocks of which each block of the plan consists, if it is a pool of them.
    pub(crate) pools: Option<Arc<Pools>>,
    /// The number of the first of them, if the dataset is that of a source among several.
    pub(crate) first: u32,
}

impl BlockPeers {
    /// Creates the facts for a rank that begins to read now.
    pub(crate) fn new(session: SessionId, plan: Plan, planned: PlannedBlocks) -> Self {
        Self { session, plan, planned, since: Instant::now(), is_owner: false }
    }

    /// Returns the number that a block of the dataset has in the plan.
    pub(super) fn planned(&self, block: u32) -> u32 {
        let PlannedBlocks { pools, first } = &self.planned;
        first + pools.as_ref().and_then(|pools| pools.of_block(block)).unwrap_or(block)
    }
}

/// Where the bytes of a shard are read from.
pub(crate) trait ShardSource: fmt::Debug + Send + Sync {
    /// Returns the URL of the shard.
    fn url(&self) -> &str;

    /// Ranges of the shard with a gap of at most this many bytes are read by one request.
    fn merge_gap_bytes(&self) -> u64;

    /// Returns whether all of the shard is read, whatever the ranges.
    fn is_read_whole(&self) -> bool {
        false
    }

    /// Returns the parts of `range` of the shard that are read, in order; the range is that of a block.
    fn parts(&self, range: Range<u64>) -> BoxFuture<'_, Result<Vec<Range<u64>>, FetchError>> {
        ready(Ok(vec![range])).boxed()
    }

    /// Converts the bytes of a block to the content that is kept of it.
    fn decode(&self, block: FetchedBlock) -> BoxFuture<'_, Result<BlockContent, FetchError>> {
        ready(Ok(BlockContent::Stored(block.pieces))).boxed()
    }

    /// Reads ranges of the shard.
    fn read<'r>(
        &'r self,
        ranges: &'r [Range<u64>],
        requests: &'r StoreClient,
    ) -> BoxFuture<'r, Result<Pieces, FetchError>>;
}

/// The bytes of a block, or of parts of it.
#[derive(Debug)]
pub(crate) struct FetchedBlock {
    pub(crate) key: BlockKey,
    /// The ranges of the shard that the bytes come from.
    pub(crate) ranges: Vec<Range<u64>>,
    pub(crate) pieces: Pieces,
    /// The decoded records to keep; `None` for all.
    pub(crate) only: Option<Arc<[u32]>>,
    /// Bytes of memory that are reserved for this block.
    pub(crate) room_bytes: u64,
}
