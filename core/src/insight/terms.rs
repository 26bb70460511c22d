//! The rate that each resource allows a rank.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Stage;

use super::{RankWindow, WorkerWindow, window::share};

/// Decoding threads that wait for bytes for more of their time than this show that the store is the limit: where it is
/// not, blocks are there before they are needed.
const STARVING: f64 = 0.1;
/// A store that fails more of the requests than this is slow because it fails.
const FAILING: f64 = 0.02;
/// A function that is called for more than this part of decoding decides how long decoding takes.
const DOMINANT: f64 = 0.5;

/// A resource of which no more than this part is used has no term.
const UNUSED: f64 = 1e-3;

/// What limits a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The trainer: batches are there before it asks for them.
    Trainer,
    /// The CPU budget of its home, or what other processes of that node leave of it.
    Cpu,
    /// Functions of the user's in Python.
    Function,
    /// The time that a store takes until it answers, and the number of requests in flight.
    StoreLatency,
    /// The bytes per second of a store.
    StoreBandwidth,
    /// The requests that a store fails.
    StoreErrors,
    /// The way of a batch from its home to the trainer.
    HandOver,
    /// No worker serves the rank.
    NoWorker,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Self; 8] = [
        Self::Trainer,
        Self::Cpu,
        Self::Function,
        Self::StoreLatency,
        Self::StoreBandwidth,
        Self::StoreErrors,
        Self::HandOver,
        Self::NoWorker,
    ];

    /// Returns the name for metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trainer => "trainer",
            Self::Cpu => "cpu",
            Self::Function => "function",
            Self::StoreLatency => "store_latency",
            Self::StoreBandwidth => "store_bandwidth",
            Self::StoreErrors => "store_errors",
            Self::HandOver => "hand_over",
            Self::NoWorker => "no_worker",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

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
    let used: Vec<(Limit, f64)> = [(Limit::Trainer, 1.0 - rank.waiting())].into_iter().chain(used_of(worker)).collect();
    let mut terms: Vec<Term> = used
        .iter()
        .copied()
        .filter(|(_, used)| *used > UNUSED)
        .map(|(limit, used)| Term { limit, samples_per_s: rate / used.min(1.0) })
        .collect();
    let is_explained = used.iter().any(|(_, used)| *used > 1.0 - STARVING);
    if !is_explained {
        terms.push(Term { limit: Limit::HandOver, samples_per_s: rate });
    }
    terms.sort_by(|a, b| a.samples_per_s.total_cmp(&b.samples_per_s));
    terms
}

/// Returns the resource of the worker that is used up, if there is one: what a rank waits for that took no sample.
pub(super) fn used_up(worker: &WorkerWindow) -> Option<Limit> {
    let most = used_of(worker).into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
    most.filter(|(_, used)| *used > 1.0 - STARVING).map(|(limit, _)| limit)
}

/// Returns which part of each resource the worker uses.
fn used_of(worker: &WorkerWindow) -> [(Limit, f64); 3] {
    [
        (Limit::Cpu, cpu_used(worker)),
        (Limit::Function, functions_used(worker)),
        (store_kind(worker), store_used(worker)),
    ]
}

/// Returns which part of its CPU budget the worker uses. Threads that have work and do not get a core use it, too.
fn cpu_used(worker: &WorkerWindow) -> f64 {
    let cores = worker.cores_used / worker.cores;
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

/// Returns which part of what the store can give is used: all of it where decoding starves, and else as many of the
/// requests as are in flight.
fn store_used(worker: &WorkerWindow) -> f64 {
    let in_flight = worker.stage(&Stage::Fetch).map_or(0.0, |fetch| share(fetch, fetch.busy));
    let is_starving = worker
        .stage(&Stage::Decode)
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
