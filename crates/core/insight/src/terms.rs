//! The rate that each resource allows a rank.

use serde::{Deserialize, Serialize};

use crate::Transport;
use spdl_types::Stage;

use super::{Limit, RankWindow, WorkerWindow, diagnosis::NEGLIGIBLE_WAIT, window::share};

/// Decoding threads that wait for bytes for more of their time than this show that the store is the limit: where it is
/// not, blocks are there before they are needed.
const STARVING: f64 = 0.1;
/// A store that fails more of the requests than this is slow because it fails.
const FAILING: f64 = 0.02;
/// A function that is called for more than this part of decoding decides how long decoding takes.
const DOMINANT: f64 = 0.5;
/// A resource of which no more than this part is used has no term.
const UNUSED: f64 = 1e-3;

/// The rate that a resource allows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// The resource.
    pub limit: Limit,
    /// Samples per second of the rank.
    pub samples_per_s: f64,
}

/// Returns the terms of a rank that took samples, the smallest first. A resource that is used for a part `u` of what
/// there is of it allows the rate that was measured, divided by `u`.
pub(super) fn terms(rank: &RankWindow, worker: &WorkerWindow) -> Vec<Term> {
    let rate = rank.samples as f64 / rank.seconds;
    let used: Vec<(Limit, f64)> =
        [(Limit::Trainer, 1.0 - rank.waiting())].into_iter().chain(used_of(rank, worker)).collect();
    let is_waiting = rank.waiting() > STARVING;
    let mut terms: Vec<Term> = used
        .iter()
        .copied()
        .filter(|(_, used)| *used > UNUSED)
        // A trainer waits for what is used up, of which small parts are always lost.
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

/// Returns the resource that is used up, if there is one: what a rank waits for that took no sample.
pub(super) fn used_up(rank: &RankWindow, worker: &WorkerWindow) -> Option<Limit> {
    let most = used_of(rank, worker).into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
    most.filter(|(_, used)| *used > 1.0 - STARVING).map(|(limit, _)| limit)
}

/// Returns which part of each resource the worker uses.
fn used_of(rank: &RankWindow, worker: &WorkerWindow) -> [(Limit, f64); 4] {
    [
        (Limit::Cpu, cpu_used(worker)),
        (Limit::Function, functions_used(worker)),
        (store_kind(worker), store_used(rank, worker)),
        (Limit::Network, network_used(rank, worker)),
    ]
}

/// Returns which part of its CPU budget the worker uses. Threads that have work and do not get a core use it, too.
fn cpu_used(worker: &WorkerWindow) -> f64 {
    let cores = if worker.cores > 0.0 { worker.cores_used / worker.cores } else { 0.0 };
    if calls_dominate(worker) { cores } else { cores.max(threads_used(worker)) }
}

/// Returns which part of their time the decoding threads work or pause for the budget.
fn threads_used(worker: &WorkerWindow) -> f64 {
    worker.stage(&Stage::Decode).map_or(0.0, |decode| share(decode, decode.busy + decode.throttled))
}

/// Returns which part of the time the processes with the user's functions, or the threads that wait for them, are busy.
fn functions_used(worker: &WorkerWindow) -> f64 {
    let processes = worker.stage(&Stage::Transform).map_or(0.0, |calls| share(calls, calls.busy));
    if calls_dominate(worker) { processes.max(threads_used(worker)) } else { processes }
}

fn calls_dominate(worker: &WorkerWindow) -> bool {
    let busy = |stage| worker.stage(&stage).map_or(0.0, |rate| rate.busy);
    busy(Stage::Transform) > DOMINANT * busy(Stage::Decode)
}

/// Returns which part of what the store can give is used: all of it where decoding starves and the trainer waits for it,
/// and else as many of the requests as are in flight.
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

/// Returns for which part of the time a batch was on its way to a trainer on another node.
fn network_used(rank: &RankWindow, worker: &WorkerWindow) -> f64 {
    let is_remote = rank.transport == Some(Transport::Quic);
    let send = worker.stage(&Stage::Send).filter(|_| is_remote);
    send.map_or(0.0, |send| share(send, send.busy + send.output_wait))
}
