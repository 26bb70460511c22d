//! What a worker counts beside its stages, and sends with its heartbeats.

use serde::{Deserialize, Serialize};
use spdl_types::Stage;

/// How batches travel from a home to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Shared memory on one node.
    Local,
    /// A QUIC connection.
    Quic,
    /// The loader runs in the trainer's process.
    InProcess,
}

/// Counts a worker's requests to stores, and the faults of stores and disk cache that it recovered from, since it
/// started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStats {
    /// Requests, including hedges.
    pub requests: u64,
    /// Requests that were answered in the end, by themselves or by a hedge.
    pub answers: u64,
    /// Time until the first byte of a reply, summed over `answers`, in nanoseconds.
    pub first_byte_ns: u64,
    /// Requests repeated because the previous one failed.
    pub retries: u64,
    /// Requests abandoned because the store was silent or took too long.
    pub timeouts: u64,
    /// Answers that came so slowly that they were dropped and asked for again.
    pub drips: u64,
    /// Requests that the store refused.
    pub refusals: u64,
    /// Hedges: second requests beside a slow first one.
    pub hedges: u64,
    /// Hedges that were answered before the first request.
    pub hedge_wins: u64,
    /// Blocks, indexes and manifests that came with wrong bytes.
    pub wrong_bytes: u64,
    /// Entries of the disk cache that were damaged or could not be written.
    pub cache_faults: u64,
    /// Bytes that were fetched for one use, because memory had no room for their block.
    pub single_use_bytes: u64,
    /// The longest time over all objects for which requests for an object have been failing, in milliseconds; 0 if none
    /// fails.
    pub outage_ms: u64,
}

impl StoreStats {
    /// Returns what was counted since `before`. The outage is the current one.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            answers: self.answers.saturating_sub(before.answers),
            first_byte_ns: self.first_byte_ns.saturating_sub(before.first_byte_ns),
            retries: self.retries.saturating_sub(before.retries),
            timeouts: self.timeouts.saturating_sub(before.timeouts),
            drips: self.drips.saturating_sub(before.drips),
            refusals: self.refusals.saturating_sub(before.refusals),
            hedges: self.hedges.saturating_sub(before.hedges),
            hedge_wins: self.hedge_wins.saturating_sub(before.hedge_wins),
            wrong_bytes: self.wrong_bytes.saturating_sub(before.wrong_bytes),
            cache_faults: self.cache_faults.saturating_sub(before.cache_faults),
            single_use_bytes: self.single_use_bytes.saturating_sub(before.single_use_bytes),
            outage_ms: self.outage_ms,
        }
    }
}

/// What the block caches of a worker hold, in memory and on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStats {
    /// Bytes of blocks that the caches hold.
    pub used_bytes: u64,
    /// The most bytes of blocks that they hold.
    pub limit_bytes: u64,
    /// Bytes of the blocks that are in use or soon will be, which take their room from the others.
    pub window_bytes: u64,
    /// Bytes of all blocks of the datasets that are open.
    pub dataset_bytes: u64,
    /// Upper limit of the bytes that are held for a single use.
    pub transit_bytes: u64,
}

/// An object of a store whose requests take much longer than those for other objects, in the last seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowObject {
    /// Path of the object in its store.
    pub object: String,
    /// Requests for it.
    pub requests: u64,
    /// The mean time of one, in nanoseconds.
    pub mean_ns: u64,
    /// Requests for all other objects.
    pub other_requests: u64,
    /// The mean time of one of those, in nanoseconds.
    pub other_mean_ns: u64,
}

/// The reason why a batch is late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("stage `{stage}` of worker `{worker}` has waited {waited_ms} ms for {waiting_for}")]
pub struct Stall {
    /// The worker's name.
    pub worker: String,
    /// The stage.
    pub stage: Stage,
    /// What the stage waits for, with the shard if there is one.
    pub waiting_for: String,
    /// How long it has waited, in milliseconds.
    pub waited_ms: u64,
}
