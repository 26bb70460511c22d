//! The rate that each resource allows a rank.

use serde::{Deserialize, Serialize};

use crate::Transport;
use spdl_types::Stage;

use super::{
    Limit, RankWindow, WorkerWindow,
    window::{NEGLIGIBLE_WAIT, share},
};

/// Fraction of their time that decoding threads wait for bytes above which the store is the limit: where it is not,
/// blocks are there before they are needed.
const STARVING: f64 = 0.1;
/// Fraction of failed requests above which a store is slow because it fails.
const FAILING: f64 = 0.02;
/// Fraction of the time of decoding above which the user's function decides how long decoding takes.
const DOMINANT: f64 = 0.5;
/// Fraction of a resource up to which it counts as unused and has no term.
const UNUSED: f64 = 1e-3;

/// The rate that a resource allows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// The resource.
    pub limit: Limit,
    /// Samples per second of the rank.
    pub samples_per_s: f64,
}

/// Returns the terms of a rank that took samples, the smallest first. A resource of which the fraction `u` is used
/// allows the measured rate divided by `u`.
pub(super) fn terms(rank: &RankWindow, worker: &WorkerWindow) -> Vec<Term> {
    let rate = rank.samples as f64 / rank.seconds;
    let used: Vec<(Limit, f64)> =
        [(Limit::Trainer, 1.0 - rank.waiting())].into_iter().chain(used_of(rank, worker)).collect();
    let is_waiting = rank.waiting() > STARVING;
    let mut terms: Vec<Term> = used
        .iter()
        .copied()
        .filter(|(_, used)| *used > UNUSED)
        // While the trainer waits, a resource counts as used up even if a small part is unused: that much is always
        // lost.
        .map(|(limit, used)| (limit, if is_waiting && used > 1.0 - STARVING { 1.0 } else { used }))
        .map(|(limit, used)| Term { limit, samples_per_s: rate / used })
        .collect();
    let is_explained = used.iter().any(|(_, used)| *used > 1.0 - STARVING);
    if !is_explained {
        terms.push(Term { limit: Limit::HandOver, samples_per_s: rate });
    }
    terms.sort_by(|a, b| a.samples_per_s.total_cmp(&b.samples_per_s));
    terms
}

/// Returns the resource that is used up, if there is one. A rank that took no sample waits for it.
pub(super) fn used_up(rank: &RankWindow, worker: &WorkerWindow) -> Option<Limit> {
    let most = used_of(rank, worker).into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
    most.filter(|(_, used)| *used > 1.0 - STARVING).map(|(limit, _)| limit)
}

/// Returns the fraction of each resource that the worker uses.
fn used_of(rank: &RankWindow, worker: &WorkerWindow) -> [(Limit, f64); 4] {
    [
        (Limit::Cpu, cpu_used(worker)),
        (Limit::Function, functions_used(worker)),
        (store_kind(worker), store_used(rank, worker)),
        (Limit::Network, network_used(rank, worker)),
    ]
}

/// Returns the fraction of its CPU budget that the worker uses. Threads that have work but get no core count as use.
fn cpu_used(worker: &WorkerWindow) -> f64 {
    let cores = if worker.cores > 0.0 { worker.cores_used / worker.cores } else { 0.0 };
    if calls_dominate(worker) { cores } else { cores.max(threads_used(worker)) }
}

/// Returns the fraction of their time that the decoding threads work or pause for the budget.
fn threads_used(worker: &WorkerWindow) -> f64 {
    worker.stage(&Stage::Decode).map_or(0.0, |decode| share(decode, decode.busy + decode.throttled))
}

/// Returns the fraction of the time that the processes with the user's functions, or the threads that wait for them,
/// are busy.
fn functions_used(worker: &WorkerWindow) -> f64 {
    let processes = worker.stage(&Stage::Transform).map_or(0.0, |calls| share(calls, calls.busy));
    if calls_dominate(worker) { processes.max(threads_used(worker)) } else { processes }
}

fn calls_dominate(worker: &WorkerWindow) -> bool {
    let busy = |stage| worker.stage(&stage).map_or(0.0, |rate| rate.busy);
    busy(Stage::Transform) > DOMINANT * busy(Stage::Decode)
}

/// Returns the used fraction of what the store can give: all of it where decoding starves while the trainer waits, and
/// otherwise the fraction of the possible requests that is in flight.
fn store_used(rank: &RankWindow, worker: &WorkerWindow) -> f64 {
    let in_flight = worker.requests_used();
    let is_starving = worker
        .stage(&Stage::Decode)
        .filter(|_| rank.waiting() > NEGLIGIBLE_WAIT)
        .is_some_and(|decode| decode.input_wait > STARVING * (decode.units() - decode.output_wait));
    if is_starving && in_flight > UNUSED { 1.0 } else { in_flight }
}

/// Returns why the store is as slow as it is.
fn store_kind(worker: &WorkerWindow) -> Limit {
    if worker.store.outage_ms > 0 || worker.store_faults() as f64 > FAILING * worker.store.requests as f64 {
        Limit::StoreErrors
    } else if worker.first_byte_s() > 0.5 * worker.request_s() {
        Limit::StoreLatency
    } else {
        Limit::StoreBandwidth
    }
}

/// Returns the fraction of the time that a batch was on its way to a trainer on another node.
fn network_used(rank: &RankWindow, worker: &WorkerWindow) -> f64 {
    let is_remote = rank.transport == Some(Transport::Quic);
    let send = worker.stage(&Stage::Send).filter(|_| is_remote);
    send.map_or(0.0, |send| share(send, send.busy + send.output_wait))
}
