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

/// The most connections of a rank to its home.
pub const MAX_CONNECTIONS: u32 = 16;

/// What a rank has received over QUIC since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveStats {
    /// The connections that it makes to a home.
    pub connections: u32,
    /// Bytes of batches.
    pub bytes: u64,
    /// CPU time, in nanoseconds, of the thread that used most of it: between two heartbeats of those that receive batches, summed over all
    /// heartbeats.
    pub thread_ns: u64,
}

impl ReceiveStats {
    /// Returns what was received since `before`, `seconds` ago.
    #[must_use]
    pub fn rates(&self, before: &Self, seconds: f64) -> ReceiveRates {
        let per_s = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        ReceiveRates {
            connections: self.connections,
            bytes_per_s: per_s(self.bytes, before.bytes),
            thread: per_s(self.thread_ns, before.thread_ns) / 1e9,
        }
    }
}

/// What a rank received lately over QUIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiveRates {
    /// The connections to its home; 0 if that is not known.
    pub connections: u32,
    /// Bytes of batches per second.
    pub bytes_per_s: f64,
    /// Part of a core that the busiest receiving thread used.
    pub thread: f64,
}

/// A count as a metric: data that a process exports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountMetric {
    /// The name of the metric.
    pub name: &'static str,
    /// What it is, for people.
    pub help: &'static str,
    /// Its unit, by which its value is written.
    pub unit: CountUnit,
    /// The count.
    pub value: u64,
}

/// What a count counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountUnit {
    /// Things or bytes, since the start.
    Total,
    /// Nanoseconds, since the start.
    TotalNs,
    /// Milliseconds, at the moment.
    CurrentMs,
}

impl CountUnit {
    /// Returns what was counted since it was `before`. What is counted at the moment stays as it is.
    #[must_use]
    pub const fn since(self, value: u64, before: u64) -> u64 {
        match self {
            Self::Total | Self::TotalNs => value.saturating_sub(before),
            Self::CurrentMs => value,
        }
    }
}

/// Makes the statistics of a table of counts: the type that heartbeats and the status have, the difference of two, and the
/// metrics. Each line is a count: its unit, the name of its metric and what that is.
#[macro_export]
macro_rules! counts {
    ($(#[$doc:meta])* $Stats:ident { $($(#[$count_doc:meta])* $count:ident: $unit:ident = $metric:literal, $help:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $Stats {
            $($(#[$count_doc])* pub $count: u64,)*
        }

        impl $Stats {
            /// Number of counts.
            pub const LEN: usize = [$($metric),*].len();

            /// Returns what was counted since `before`.
            #[must_use]
            pub const fn since(&self, before: &Self) -> Self {
                Self { $($count: $crate::CountUnit::$unit.since(self.$count, before.$count),)* }
            }

            /// Returns the counts as metrics.
            #[must_use]
            pub const fn metrics(&self) -> [$crate::CountMetric; Self::LEN] {
                [$($crate::CountMetric { name: $metric, help: $help, unit: $crate::CountUnit::$unit, value: self.$count },)*]
            }
        }
    };
}

counts! {
    /// Counts a worker's requests to stores, and the faults of stores and disk cache that it recovered from, since it
    /// started.
    StoreStats {
        /// Requests, including hedges.
        requests: Total = "spdl_worker_store_requests", "Requests to stores, hedges among them";
        /// Requests that were answered in the end, by themselves or by a hedge.
        answers: Total = "spdl_worker_store_answers", "Requests to stores that were answered in the end";
        /// Time until the first byte of a reply, summed over `answers`, in nanoseconds.
        first_byte_ns: TotalNs = "spdl_worker_store_first_byte_seconds",
            "Time until the first byte of a reply, over all requests that were answered";
        /// Requests repeated because the previous one failed.
        retries: Total = "spdl_worker_store_retries", "Requests that were made again because the last one failed";
        /// Requests abandoned because the store was silent or took too long.
        timeouts: Total = "spdl_worker_store_timeouts", "Requests that timed out: the store did not answer or took too long";
        /// Answers that came so slowly that they were dropped and asked for again.
        drips: Total = "spdl_worker_store_drips", "Answers that came so slowly that they were asked for again";
        /// Requests that the store refused.
        refusals: Total = "spdl_worker_store_refusals", "Requests that the store refused";
        /// Hedges: second requests beside a slow first one.
        hedges: Total = "spdl_worker_store_hedges", "Second requests beside a slow first one";
        /// Hedges that were answered before the first request.
        hedge_wins: Total = "spdl_worker_store_hedge_wins", "Second requests that answered before the first";
        /// Blocks, indexes and manifests that came with wrong bytes.
        wrong_bytes: Total = "spdl_worker_store_wrong_bytes", "Blocks, indexes and manifests whose checksum was wrong";
        /// Entries of the disk cache that were damaged or could not be written.
        cache_faults: Total = "spdl_worker_cache_faults", "Entries of the disk cache that were damaged or not written";
        /// Bytes that were fetched for one use, because memory had no room for their block.
        single_use_bytes: Total = "spdl_worker_store_single_use_bytes",
            "Bytes fetched for one use because memory had no room for their block";
        /// The longest time over all objects for which requests for an object have been failing, in milliseconds; 0 if none
        /// fails.
        outage_ms: CurrentMs = "spdl_worker_store_outage_seconds",
            "How long requests for an object have failed, the longest of all objects";
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
