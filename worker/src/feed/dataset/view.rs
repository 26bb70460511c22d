//! A dataset as the ranks of a job read it: the fields that they read, where its blocks lie, and how their bytes become records.

use std::{
    ops::{Deref, Range},
    sync::Arc,
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use spdl_order::Plan;
use spdl_shard::format::{Compressed, ObjectRange, ShardIndex};
use spdl_store::blocking;
use spdl_types::{Fingerprint, SessionId};

use super::OpenDataset;
use crate::fetch::{
    BlockContent, BlockKey, BlockPeers, BlockPlace, BlockSource, FetchError, FetchedBlock, MERGE_GAP_BYTES, ObjectRead,
    Peers, Pieces, PlannedBlocks, ShardSource, StoreClient, read_all,
};

/// Number of times that a compressed shard is read before a failure to decompress it is reported.
const MAX_DECOMPRESSIONS: u32 = 4;

/// A dataset as the ranks of a job read it: all of its fields, or those that the job names if the format is columnar.
#[derive(Clone, Debug)]
pub(crate) struct DatasetView {
    dataset: Arc<OpenDataset>,
    /// The fields that are read; `None` if these are all.
    fields: Option<Arc<[String]>>,
    /// Identifies the blocks with these fields in caches.
    key: Fingerprint,
    /// Decides which other workers are asked for blocks; `None` if no worker is asked.
    peers: Option<BlockPeers>,
}

impl Deref for DatasetView {
    type Target = OpenDataset;

    fn deref(&self) -> &OpenDataset {
        &self.dataset
    }
}

impl DatasetView {
    /// Creates the view of a job that reads `fields`.
    pub(crate) fn new(dataset: Arc<OpenDataset>, fields: &[String]) -> Self {
        if !dataset.manifest.format().is_columnar() {
            return Self { key: dataset.fingerprint, dataset, fields: None, peers: None };
        }
        let mut fields = fields.to_vec();
        fields.sort();
        // No name contains a control character, so two different lists of fields never give the same text.
        let key = Fingerprint::of(format!("{}\n{}", dataset.fingerprint, fields.join("\n")).as_bytes());
        Self { dataset, fields: Some(fields.into()), key, peers: None }
    }

    /// Exchanges blocks with other workers of a session, in both directions. A columnar format exchanges none, as the
    /// stored bytes of its blocks are not kept.
    pub(super) fn shared(self, session: SessionId, (plan, planned): (&Plan, PlannedBlocks), peers: &Peers) -> Self {
        if !peers.is_started() || self.fields.is_some() {
            return self;
        }
        Self { peers: Some(BlockPeers::new(session, plan.clone(), planned)), ..self }
    }

    /// Returns the session with which the blocks are shared, and the blocks' dataset in caches.
    pub(crate) fn shared_as(&self) -> Option<(SessionId, Fingerprint)> {
        Some((self.peers.as_ref()?.session, self.key))
    }

    /// Returns where the bytes of block `number` lie.
    pub(crate) fn place(&self, number: u32) -> BlockPlace {
        let block = self.manifest.block(number);
        let shard: Arc<dyn ShardSource> = match self.shard_object(block.shard) {
            Some(object) => Arc::new(object),
            None => Arc::new(IndexedShard { view: self.clone(), shard: block.shard }),
        };
        let (key, peers) = (self.block_key(number), self.peers.clone());
        BlockPlace { key, shard, range: block.offset..block.offset + block.bytes, peers }
    }

    /// Returns what identifies the blocks with the fields that are read in caches.
    pub(super) const fn key(&self) -> Fingerprint {
        self.key
    }

    /// Returns the cache key of block `number`.
    pub(crate) const fn block_key(&self, number: u32) -> BlockKey {
        BlockKey { dataset: self.key, block: number }
    }
}

impl BlockSource for DatasetView {
    fn place(&self, block: u32) -> Option<BlockPlace> {
        (block < self.manifest.block_count()).then(|| self.place(block))
    }
}

/// A shard whose index knows the objects that hold its bytes.
#[derive(Debug)]
struct IndexedShard {
    view: DatasetView,
    shard: u32,
}

impl IndexedShard {
    /// Returns whether `is_so` holds for the shard's index; false if the index is not in memory, where it stays while
    /// blocks of the shard are fetched.
    fn index_says(&self, is_so: impl FnOnce(&dyn ShardIndex) -> bool) -> bool {
        self.view.index_in_memory(self.shard).is_some_and(|index| is_so(&*index))
    }

    /// Makes the reads that hold these bytes.
    async fn read_pieces(
        &self,
        index: &dyn ShardIndex,
        ranges: &[Range<u64>],
        requests: &StoreClient,
    ) -> Result<Pieces, FetchError> {
        let plan = index.plan(&self.view.manifest.shard(self.shard), ranges);
        let read =
            |ObjectRange { object, range, at }| ObjectRead { object: self.view.object(object).into(), range, at };
        read_all(plan.into_iter().map(read).collect(), requests).await
    }

    /// Reads the object that becomes the shard when it is decompressed, and returns these ranges of the shard. What does
    /// not decompress is read again: the bytes may have been damaged on the way.
    async fn decompressed(
        &self,
        index: &dyn ShardIndex,
        compressed: &Compressed,
        ranges: &[Range<u64>],
        requests: &StoreClient,
    ) -> Result<Pieces, FetchError> {
        let backoff = requests.backoff();
        for attempt in 1.. {
            let pieces: Vec<Bytes> = self.read_pieces(index, ranges, requests).await?.iter().cloned().collect();
            let compressed = compressed.clone();
            let problem = match blocking(move || compressed.decompress(&pieces)).await {
                Ok(shard) => {
                    let slice =
                        |range: &Range<u64>| (range.start, shard.slice(range.start as usize..range.end as usize));
                    return Ok(Pieces::new(ranges.iter().map(slice).collect()));
                }
                Err(error) => error.to_string(),
            };
            requests.note_wrong_bytes();
            if attempt == MAX_DECOMPRESSIONS {
                let shard = self.url().to_owned();
                return Err(FetchError::Decompress { shard, problem, attempts: attempt });
            }
            tracing::warn!(shard = self.url(), problem, "reading it again");
            tokio::time::sleep(backoff.full_jitter(attempt, rand::random())).await;
        }
        unreachable!("the last attempt returns")
    }
}

impl ShardSource for IndexedShard {
    fn url(&self) -> &str {
        self.view.manifest.shard(self.shard).url
    }

    fn merge_gap_bytes(&self) -> u64 {
        // Nothing between two files that are wanted is worth a request of its own.
        let shard = self.view.manifest.shard(self.shard);
        if self.index_says(|index| index.object(&shard).is_some()) { MERGE_GAP_BYTES } else { 0 }
    }

    fn is_read_whole(&self) -> bool {
        self.index_says(|index| index.compressed().is_some())
    }

    fn read<'r>(
        &'r self,
        ranges: &'r [Range<u64>],
        requests: &'r StoreClient,
    ) -> BoxFuture<'r, Result<Pieces, FetchError>> {
        async move {
            let index = self.view.index(self.shard).await?;
            match index.compressed() {
                Some(compressed) => self.decompressed(&*index, compressed, ranges, requests).await,
                None => self.read_pieces(&*index, ranges, requests).await,
            }
        }
        .boxed()
    }

    fn parts(&self, range: Range<u64>) -> BoxFuture<'_, Result<Vec<Range<u64>>, FetchError>> {
        async move {
            let Some(fields) = &self.view.fields else { return Ok(vec![range]) };
            Ok(self.view.index(self.shard).await?.project(range, fields))
        }
        .boxed()
    }

    fn decode(&self, block: FetchedBlock) -> BoxFuture<'_, Result<BlockContent, FetchError>> {
        async move {
            if !self.view.manifest.format().is_columnar() {
                return Ok(BlockContent::Stored(block.pieces));
            }
            let index = self.view.index(self.shard).await?;
            Ok(self.view.decoding.decode(block, index).await)
        }
        .boxed()
    }
}
