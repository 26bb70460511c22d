//! The cause of a short resource: what stands out among the measurements of the worker.

use crate::Transport;
use spdl_types::Stage;

use super::{Limit, RankWindow, WorkerWindow};

/// Fraction of samples that do not decode above which bad samples are the cause: they take the time of the others.
const STORM: f64 = 0.1;
/// Fraction of the fetched bytes that caches keep above which they are still filling.
const FILLING: f64 = 0.5;
/// Fraction of the time of all requests above which the requests for one object delay the others.
const OBJECT_SHARE: f64 = 0.5;
/// Fraction of the possible requests in flight up to which the store has room for more.
const SATURATED: f64 = 0.9;
/// Ratio of the 99th percentile of decoding times to their median above which samples are uneven.
const UNEVEN: u64 = 8;
/// Uneven samples delay batches if a slow one takes longer than the trainer takes for this many samples.
const DELAYED_SAMPLES: f64 = 4.0;

/// Fraction of their work for which decoding threads have a core below which others take the CPU.
const CROWDED: f64 = 0.7;

/// Returns the cause of a limit: the resource itself, unless something stands out.
pub(super) fn cause(resource: Limit, rank: &RankWindow, worker: &WorkerWindow) -> Limit {
    let is_storm = worker.bad_fraction() > STORM;
    match resource {
        // Each bad sample costs a second one, which its batch waits for.
        Limit::Cpu | Limit::StoreLatency | Limit::StoreBandwidth | Limit::HandOver if is_storm => Limit::BadSamples,
        Limit::StoreLatency | Limit::StoreBandwidth if is_one_object(worker) => Limit::SlowObject,
        Limit::StoreLatency | Limit::StoreBandwidth if is_filling(worker) => Limit::ColdCache,
        Limit::HandOver if is_on_its_way(rank) => Limit::Network,
        // With one slot no batch is made while the trainer holds it, however even the samples are.
        Limit::HandOver if rank.slots == 1 => Limit::HandOver,
        Limit::HandOver if crowded(worker).is_some() => Limit::Cpu,
        Limit::HandOver if is_uneven(rank, worker) => Limit::UnevenSamples,
        resource => resource,
    }
}

/// Returns the fraction of their work for which the decoding threads had a core, if others take so much of the CPU that
/// the budget says little; `None` also where they wait for functions.
pub(super) fn crowded(worker: &WorkerWindow) -> Option<f64> {
    let decode = worker.stage(&Stage::Decode).filter(|_| worker.stage(&Stage::Transform).is_none())?;
    decode.core_share().filter(|share| *share < CROWDED)
}

/// Whether one object is the cause: its requests take most of the time of all requests, or the store has room for more.
fn is_one_object(worker: &WorkerWindow) -> bool {
    worker.slow_object.as_ref().is_some_and(|slow| {
        let time = |requests: u64, mean_ns: u64| requests as f64 * mean_ns as f64;
        let (own, others) = (time(slow.requests, slow.mean_ns), time(slow.other_requests, slow.other_mean_ns));
        own > OBJECT_SHARE * (own + others) || !is_saturated(worker)
    })
}

/// Whether as many requests are in flight as may be.
pub(super) fn is_saturated(worker: &WorkerWindow) -> bool {
    worker.requests_used() > SATURATED
}

/// Whether the caches have room for the datasets and keep what is fetched.
fn is_filling(worker: &WorkerWindow) -> bool {
    let cache = &worker.cache;
    let has_room = cache.used_bytes < cache.dataset_bytes && cache.dataset_bytes <= cache.limit_bytes;
    let fetched_bytes = worker.fetched_bytes_per_s() * worker.store_s;
    has_room && worker.cache_growth_bytes as f64 > FILLING * fetched_bytes
}

/// Whether the trainer is on another node, and all slots but one at most hold batches that it has not given back.
fn is_on_its_way(rank: &RankWindow) -> bool {
    rank.transport == Some(Transport::Quic) && rank.slots > 0 && rank.ready + 1 >= rank.slots
}

/// Whether some samples take much longer than most, and so long that the trainer waits for them.
fn is_uneven(rank: &RankWindow, worker: &WorkerWindow) -> bool {
    let [median_ns, slow_ns] = worker.decode_ns;
    // A thread pauses after a sample for as long as the budget demands.
    let slow_s = slow_ns as f64 / 1e9 / worker.cores.clamp(f64::MIN_POSITIVE, 1.0);
    slow_ns > UNEVEN * median_ns && slow_s * rank.samples as f64 > DELAYED_SAMPLES * rank.seconds
}
