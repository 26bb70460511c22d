//! The bytes of blocks in use: holds of blocks in memory, and memory for what is fetched for one use.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use parking_lot::Mutex;
use spdl_feed::cache::{BlockKey, FirstCome, MemoryCache, Released};
use spdl_shard::format::DecodedBlock;
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    task::AbortHandle,
};

use super::{error::FetchError, pieces::Pieces};

pub(super) const KIB: u64 = 1 << 10;

/// The blocks in memory.
pub(super) type BlockMemory = Mutex<BlockCache>;
type BlockCache = MemoryCache<BlockKey, Arc<BlockLoad>, FirstCome>;

/// A block that is in memory, or on its way there.
#[derive(Debug)]
pub(super) struct BlockLoad {
    pub(super) state: watch::Sender<LoadState>,
    pub(super) task: OnceLock<AbortHandle>,
}

/// What has become of a load.
#[derive(Clone, Debug)]
pub(super) enum LoadState {
    Pending,
    Ready(BlockContent),
    Failed(FetchError),
    /// There is no room for the block.
    NoRoom,
}

/// Keeps a block in memory, or keeps its load going. A load is cancelled when its last hold is dropped.
#[derive(Debug)]
pub struct BlockHold {
    pub(super) memory: Arc<BlockMemory>,
    pub(super) key: BlockKey,
    pub(super) id: u64,
    pub(super) load: Arc<BlockLoad>,
}

/// Holds a block that is in memory, or on its way there; `locked` is the memory.
pub(super) fn hold(memory: &Arc<BlockMemory>, locked: &mut BlockCache, key: BlockKey) -> Option<BlockHold> {
    let (id, load) = locked.hold(&key)?;
    Some(BlockHold { memory: memory.clone(), key, id, load: load.clone() })
}

impl Drop for BlockHold {
    fn drop(&mut self) {
        let mut memory = self.memory.lock();
        let released = memory.release(self.id);
        if released == Released::Idle && !matches!(*self.load.state.borrow(), LoadState::Ready(_)) {
            memory.retire_entry(&self.key, self.id);
            if let Some(task) = self.load.task.get() {
                task.abort();
            }
        }
    }
}

impl BlockHold {
    /// Waits for the bytes of the block; `None` if there is no room for it.
    pub(super) async fn bytes(self) -> Result<Option<BlockBytes>, FetchError> {
        let mut state = self.load.state.subscribe();
        let state = state.wait_for(|state| !matches!(state, LoadState::Pending)).await;
        let state = state.expect("the sender is held").clone();
        match state {
            LoadState::Ready(content) => Ok(Some(BlockBytes { content, _guard: Guard::Held(self) })),
            LoadState::Failed(error) => Err(error),
            LoadState::NoRoom => Ok(None),
            LoadState::Pending => unreachable!("waited for another state"),
        }
    }
}

/// The content of a block, or of the requested parts of it. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) enum BlockContent {
    /// The bytes as they lie in the shard.
    Stored(Pieces),
    /// The decoded records.
    Decoded(Arc<dyn DecodedBlock>),
}

/// The bytes of a block, or the requested parts of it. They count against the budget until this value is dropped, so
/// slices must not outlive it.
#[derive(Debug)]
pub struct BlockBytes {
    pub(super) content: BlockContent,
    pub(super) _guard: Guard,
}

/// What keeps the bytes within the budget.
#[derive(Debug)]
#[allow(dead_code, reason = "guards are held to be dropped")]
pub(super) enum Guard {
    Held(BlockHold),
    Transit(Transit),
}

/// Memory for what is fetched for one use. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Transit(pub(super) OwnedSemaphorePermit);

impl Transit {
    pub(super) fn bytes(&self) -> u64 {
        self.0.num_permits() as u64 * KIB
    }

    /// Keeps `bytes`, as far as there are so many, and returns the rest.
    pub(super) fn split_at(&mut self, bytes: u64) -> Option<Self> {
        let kib = usize::try_from(bytes.div_ceil(KIB)).unwrap_or(usize::MAX).max(1);
        let rest = self.0.num_permits().saturating_sub(kib);
        self.0.split(rest).filter(|_| rest > 0).map(Self)
    }

    /// Gives back what is more than `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let kib = usize::try_from(bytes.div_ceil(KIB)).unwrap_or(usize::MAX).max(1);
        drop(self.0.split(self.0.num_permits().saturating_sub(kib)));
    }
}

impl BlockBytes {
    /// Bytes that were fetched for one use.
    pub(crate) const fn of_transit(pieces: Pieces, transit: Transit) -> Self {
        Self { content: BlockContent::Stored(pieces), _guard: Guard::Transit(transit) }
    }

    /// Returns whether the bytes belong to a block in the cache. Otherwise they were fetched for one use, for which
    /// there is little memory.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        matches!(self._guard, Guard::Held(_))
    }

    /// Returns the bytes of `range` of the shard; `None` if they were not requested, or not kept because their records
    /// were decoded.
    #[must_use]
    pub fn slice(&self, range: Range<u64>) -> Option<Bytes> {
        match &self.content {
            BlockContent::Stored(pieces) => pieces.slice(range),
            BlockContent::Decoded(_) => None,
        }
    }

    /// Returns the decoded records, if the format's records are decoded as they arrive.
    pub(crate) fn decoded(&self) -> Option<&dyn DecodedBlock> {
        match &self.content {
            BlockContent::Stored(_) => None,
            BlockContent::Decoded(records) => Some(&**records),
        }
    }
}

/// What is wanted of a block.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Ranges of the shard, which lie inside the block.
    pub(crate) ranges: Vec<Range<u64>>,
    /// The numbers of the records in the shard whose fields lie there, sorted.
    pub(crate) records: Arc<[u32]>,
}
