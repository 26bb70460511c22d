//! Measurements of a worker and of a rank over some seconds.

use serde::{Deserialize, Serialize};

use crate::{
    CacheStats, Limit, ReceiveRates, SlowObject, Stall, StoreStats, Transport,
    rates::{StageHistory, StageRate},
    recent::RecentEvents,
};
use spdl_types::{Stage, StageStats};

/// The window of stages that diagnoses use.
const WINDOW_MS: u64 = 10_000;
/// The fraction of its time below which a trainer's wait is negligible.
pub(super) const NEGLIGIBLE_WAIT: f64 = 0.02;
/// The factor by which another resource has to allow less than the resource that was named last to be named in its place, and
/// by which a trainer that set the pace has to wait longer than is negligible.
pub(super) const STAYS: f64 = 1.2;

/// What a worker did lately.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerWindow {
    /// The worker's name.
    pub name: String,
    /// The CPU budget, in cores.
    pub cores: f64,
    /// The cores that it kept busy.
    pub cores_used: f64,
    /// Part of a core that the busiest thread used of those that send batches over QUIC.
    pub sending_thread: f64,
    /// What its stages did per second.
    pub stages: Vec<StageRate>,
    /// The median and the 99th percentile of the time of decoding a sample since the worker started, in nanoseconds.
    pub decode_ns: [u64; 2],
    /// Seconds for which `store` and `cache_growth_bytes` were counted.
    pub store_s: f64,
    /// The requests to stores and their faults.
    pub store: StoreStats,
    /// What the caches hold now.
    pub cache: CacheStats,
    /// The bytes by which the content of the caches has grown.
    pub cache_growth_bytes: u64,
    /// The object of a store whose requests take much longer than all others, if there is one.
    pub slow_object: Option<SlowObject>,
}

impl WorkerWindow {
    pub(super) fn stage(&self, stage: &Stage) -> Option<&StageRate> {
        self.stages.iter().find(|rate| rate.stage == *stage)
    }

    /// Returns the bytes of batches per second that the worker sends to all its ranks.
    pub(super) fn sent_bytes_per_s(&self) -> f64 {
        self.stage(&Stage::Send).map_or(0.0, |send| send.bytes_per_s)
    }

    /// Returns the mean time of a request to a store until its answer was complete, in seconds.
    pub(super) fn request_s(&self) -> f64 {
        self.stage(&Stage::Fetch).map_or(0.0, item_s)
    }

    /// Returns the mean time of a request to a store until the first byte of its answer, in seconds.
    pub(super) fn first_byte_s(&self) -> f64 {
        self.store.first_byte_ns as f64 / 1e9 / (self.store.answers as f64).max(1.0)
    }

    /// Returns how many requests the store failed.
    pub(super) const fn store_faults(&self) -> u64 {
        self.store.retries + self.store.timeouts + self.store.refusals
    }

    /// Returns the bytes per second that came from stores.
    pub(super) fn fetched_bytes_per_s(&self) -> f64 {
        self.stage(&Stage::Fetch).map_or(0.0, |fetch| fetch.bytes_per_s)
    }

    /// Returns the mean number of requests in flight, as a fraction of those that are possible.
    pub(super) fn requests_used(&self) -> f64 {
        let possible = self.requests_possible();
        self.stage(&Stage::Fetch).filter(|_| possible > 0.0).map_or(0.0, |fetch| (fetch.busy / possible).min(1.0))
    }

    /// Returns how many requests can be in flight: as many as are allowed and as the memory for them has room for.
    pub(super) fn requests_possible(&self) -> f64 {
        self.stage(&Stage::Fetch).map_or(0.0, StageRate::units).min(self.requests_in_memory())
    }

    /// Returns whether memory allows fewer requests in flight than the limit does.
    pub(super) fn is_short_of_transit(&self) -> bool {
        self.stage(&Stage::Fetch).is_some_and(|fetch| self.requests_in_memory() < fetch.units())
    }

    /// Returns how many requests can be in flight before the bytes for a single use fill the memory for them. Blocks
    /// that are kept take other memory.
    pub(super) fn requests_in_memory(&self) -> f64 {
        let fetched_bytes = self.fetched_bytes_per_s() * self.store_s;
        let (true, Some(fetch)) = (fetched_bytes > 0.0, self.stage(&Stage::Fetch)) else { return f64::INFINITY };
        let request_bytes = fetch.bytes_per_s / fetch.items_per_s;
        let single_use = (self.store.single_use_bytes as f64 / fetched_bytes).min(1.0);
        if single_use == 0.0 {
            return f64::INFINITY;
        }
        (self.cache.transit_bytes as f64 / (request_bytes * single_use)).max(1.0)
    }

    /// Returns the part of the samples that did not decode.
    pub(super) fn bad_fraction(&self) -> f64 {
        let Some(decode) = self.stage(&Stage::Decode) else { return 0.0 };
        let all = decode.items_per_s + decode.failures_per_s;
        if all > 0.0 { decode.failures_per_s / all } else { 0.0 }
    }
}

pub(super) fn megabytes(bytes: f64) -> f64 {
    bytes / 1e6
}

/// Returns the mean time of an item of a stage, in seconds.
pub(super) fn item_s(stage: &StageRate) -> f64 {
    if stage.items_per_s > 0.0 { stage.busy / stage.items_per_s } else { 0.0 }
}

/// Returns `units` as a fraction of the units of the stage.
pub(super) fn share(stage: &StageRate, units: f64) -> f64 {
    if stage.units() > 0.0 { units / stage.units() } else { 0.0 }
}

/// What a worker has counted since its start.
#[derive(Clone, Copy, Debug)]
pub struct WorkerTotals<'t> {
    /// Its stages.
    pub stages: &'t [StageStats],
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
    /// CPU time of the thread that sends most batches over QUIC, as [`ReceiveStats::thread_ns`](crate::ReceiveStats), in nanoseconds.
    pub sending_thread_ns: u64,
    /// The requests to stores and their faults.
    pub store: StoreStats,
    /// What the caches hold.
    pub cache: CacheStats,
    /// The object of a store whose requests take much longer than all others, if there is one.
    pub slow_object: Option<&'t SlowObject>,
}

/// Keeps earlier totals of a worker, for its window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerTotalsHistory {
    /// The stages.
    pub stages: StageHistory,
    /// The store, the bytes in the caches, the CPU time and that of the busiest sending thread a few seconds ago.
    recent: RecentEvents<(StoreStats, u64, u64, u64)>,
}

impl WorkerTotalsHistory {
    /// Records the totals of `at_ms`, by the worker's clock.
    pub fn note(&mut self, at_ms: u64, totals: &WorkerTotals<'_>) {
        self.stages.note(at_ms, &totals.stages.to_vec());
        let WorkerTotals { store, cache, cpu_ns, sending_thread_ns, .. } = *totals;
        self.recent.note(at_ms, &(store, cache.used_bytes, cpu_ns, sending_thread_ns));
    }

    /// Returns what a worker with `cores` in its budget did lately, when its totals at `at_ms` are `totals`; `None`
    /// while there is too little history.
    #[must_use]
    pub fn window(&self, name: &str, cores: f64, at_ms: u64, totals: &WorkerTotals<'_>) -> Option<WorkerWindow> {
        let (store_s, (store, cached_bytes, cpu_ns, sending_thread_ns)) = self.recent.before(at_ms)?;
        let used = |now_ns: u64, before_ns: u64| now_ns.saturating_sub(before_ns) as f64 / 1e9 / store_s;
        let decode = totals.stages.iter().find(|stage| stage.stage == Stage::Decode);
        Some(WorkerWindow {
            name: name.to_owned(),
            cores,
            cores_used: used(totals.cpu_ns, *cpu_ns),
            sending_thread: used(totals.sending_thread_ns, *sending_thread_ns),
            stages: self.stages.window(WINDOW_MS, at_ms, totals.stages)?.stages,
            decode_ns: decode.map_or([0; 2], |decode| [decode.p50_ns, decode.p99_ns]),
            store_s,
            store: totals.store.since(store),
            cache: totals.cache,
            cache_growth_bytes: totals.cache.used_bytes.saturating_sub(*cached_bytes),
            slow_object: totals.slow_object.cloned(),
        })
    }
}

/// Whether a rank takes part in its session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Presence {
    /// It was heard of lately.
    #[default]
    Alive,
    /// It was not heard of for this long.
    Silent {
        /// Milliseconds.
        for_ms: u64,
    },
    /// A newer launch has taken its place.
    Superseded {
        /// The session of that launch, and the client that opened it.
        by: String,
    },
}

/// What a rank got lately.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankWindow {
    /// The rank, r in the specification of the order.
    pub rank: u32,
    /// Seconds that the window lasted.
    pub seconds: f64,
    /// Samples that the trainer took.
    pub samples: u64,
    /// Seconds in which the trainer waited for a batch.
    pub waited_s: f64,
    /// What the next batch waits for, if the worker knows it.
    pub stall: Option<Stall>,
    /// Whether it takes part.
    pub presence: Presence,
    /// How batches reach it.
    pub transport: Option<Transport>,
    /// What it received over QUIC.
    pub received: ReceiveRates,
    /// Its slots; 0 if no worker serves it.
    pub slots: u32,
    /// Slots that hold a batch which the trainer has not given back.
    pub ready: u32,
    /// The resource that was named last as the short one: it is named again while none is much shorter.
    #[serde(skip)]
    pub named_before: Option<Limit>,
}

impl RankWindow {
    /// Whether its trainer sets the pace, since it hardly waited.
    pub(super) fn hardly_waits(&self) -> bool {
        let factor = if self.named_before == Some(Limit::Trainer) { STAYS } else { 1.0 };
        self.waiting() < factor * NEGLIGIBLE_WAIT
    }

    /// Returns the fraction of the window in which the trainer waited.
    #[must_use]
    pub fn waiting(&self) -> f64 {
        if self.seconds > 0.0 { (self.waited_s / self.seconds).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// What was measured of a rank and its home.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The rank.
    pub rank: RankWindow,
    /// Its home; `None` if it has none.
    pub worker: Option<WorkerWindow>,
}
