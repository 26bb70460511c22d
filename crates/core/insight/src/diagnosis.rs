//! The diagnosis of one rank.

use std::sync::Arc;

use crate::rates::StageRate;
use spdl_types::Stage;

use super::{
    Limit, Measured, Presence, RankWindow, Term, WorkerWindow,
    cache::fetched_factor,
    cause::{cause, is_saturated},
    terms::{terms, used_up},
    window::STAYS,
};

/// A trainer that took no sample and waited for less than this part of the time did not ask for one.
pub(super) const STANDSTILL_WAIT: f64 = 0.5;

/// The exponent by which rates combine: the greater, the more the smallest rate decides. Two equal rates allow 0.84 of
/// each. Measured by the bench `insight`.
const SHARPNESS: i32 = 4;

/// What a rank's rate is limited by. [`what_if`](Self::what_if) predicts it under a change, and
/// [`verdict`](Self::verdict) returns it as a sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// What was measured of the rank.
    pub rank: RankWindow,
    /// What was measured of its home; `None` if it has none.
    pub worker: Option<Arc<WorkerWindow>>,
    /// The terms: that of the limit, then the others, the smallest first; empty if the rank took no sample.
    pub terms: Vec<Term>,
}

/// A change of the measured resources. The default changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceChange {
    /// Factor of the number of workers that are homes of the session's ranks. Each has the budgets, the cache and the
    /// requests in flight of the home; ranks that share a home are spread over more of them.
    pub workers: f64,
    /// Cores that the home's budget gets in addition; negative to take some away.
    pub cores: f64,
    /// Factor of the time of a call of the user's functions.
    pub call: f64,
    /// Factor of the number of requests in flight.
    pub requests: f64,
    /// Factor of the number of batches that are read ahead.
    pub ahead: f64,
    /// Factor of the time until the first byte of a reply.
    pub latency: f64,
    /// Factor of the store's bytes per second.
    pub bandwidth: f64,
    /// Factor of the bytes that come from the store and not from a cache.
    pub fetched: f64,
    /// Bytes that the home's cache may hold in addition; negative to take some away.
    pub memory_bytes: f64,
    /// Factor of the network's bytes per second to a trainer on another node.
    pub network: f64,
    /// Factor of the number of slots.
    pub slots: f64,
    /// Factor of the trainer's time per step.
    pub step: f64,
}

impl Default for ResourceChange {
    fn default() -> Self {
        Self {
            workers: 1.0,
            cores: 0.0,
            call: 1.0,
            requests: 1.0,
            ahead: 1.0,
            latency: 1.0,
            bandwidth: 1.0,
            fetched: 1.0,
            memory_bytes: 0.0,
            network: 1.0,
            slots: 1.0,
            step: 1.0,
        }
    }
}

/// The predicted rate of a rank under a change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Samples per second.
    pub samples_per_s: f64,
    /// The fraction of its time that the trainer would wait.
    pub waiting: f64,
}

/// Finds what limits a rank whose home is `worker`, if it has one.
#[must_use]
pub fn diagnose(rank: RankWindow, worker: Option<impl Into<Arc<WorkerWindow>>>) -> Diagnosis {
    let worker = worker.map(Into::into);
    let takes = rank.samples > 0 && rank.presence == Presence::Alive;
    let mut terms = worker.as_ref().filter(|_| takes).map_or_else(Vec::new, |worker| terms(&rank, worker));
    // A trainer that waits is short of something, however little it waits.
    let before = rank.named_before.filter(|limit| *limit != Limit::Trainer);
    let before = terms.iter().position(|term| Some(term.limit) == before);
    if let Some(at) = before.filter(|&at| terms[at].samples_per_s < STAYS * terms[0].samples_per_s) {
        terms[..=at].rotate_right(1);
    }
    Diagnosis { rank, worker, terms }
}

impl From<Measured> for Diagnosis {
    fn from(Measured { rank, worker }: Measured) -> Self {
        diagnose(rank, worker)
    }
}

impl From<&Diagnosis> for Measured {
    fn from(diagnosis: &Diagnosis) -> Self {
        Self { rank: diagnosis.rank.clone(), worker: diagnosis.worker.as_deref().cloned() }
    }
}

impl Diagnosis {
    /// Returns what limits the rank; `None` if it took no sample in the window and the measurements of its home show no
    /// reason.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        match self.rank.presence {
            Presence::Superseded { .. } => return Some(Limit::Superseded),
            Presence::Silent { .. } => return Some(Limit::Silent),
            Presence::Alive => {}
        }
        let Some(worker) = &self.worker else { return Some(Limit::NoWorker) };
        self.resource().map(|resource| cause(resource, &self.rank, worker))
    }

    /// Returns the resource that the rank has too little of; `None` if it has no home, or nothing explains why it took no
    /// sample.
    #[must_use]
    pub fn resource(&self) -> Option<Limit> {
        let worker = self.worker.as_ref()?;
        if self.rank.samples == 0 {
            return used_up(&self.rank, worker).filter(|_| self.rank.waiting() > STANDSTILL_WAIT);
        }
        let first = self.terms.first()?.limit;
        Some(if self.rank.hardly_waits() { Limit::Trainer } else { first })
    }

    /// Returns the smallest term of another resource than the limit.
    #[must_use]
    pub fn next(&self) -> Option<Term> {
        let resource = self.resource()?;
        self.terms.iter().copied().find(|term| term.limit != resource)
    }

    /// Returns the rate that was measured, in samples per second.
    #[must_use]
    pub fn samples_per_s(&self) -> f64 {
        if self.rank.seconds > 0.0 { self.rank.samples as f64 / self.rank.seconds } else { 0.0 }
    }

    /// Predicts the rate in samples per second under a change.
    #[must_use]
    pub fn what_if(&self, change: &ResourceChange) -> f64 {
        self.predict(change).samples_per_s
    }

    /// Predicts the rate, and the fraction of its time that the trainer waits, under a change. Nothing is predicted for
    /// a rank that took no sample.
    #[must_use]
    pub fn predict(&self, change: &ResourceChange) -> Prediction {
        let Some(worker) = self.worker.as_ref().filter(|_| !self.terms.is_empty()) else {
            return Prediction::default();
        };
        let part = part_of_home(&self.rank, worker, change);
        let changed = |term: &Term| term.samples_per_s * factor(worker, term.limit, change, part);
        let before = together(self.terms.iter().map(|term| term.samples_per_s));
        let after = together(self.terms.iter().map(changed));
        let samples_per_s = self.samples_per_s() * after / before;
        let wanted = self.terms.iter().find(|term| term.limit == Limit::Trainer).map_or(0.0, changed);
        let samples_per_s = if wanted > 0.0 { samples_per_s.min(wanted) } else { samples_per_s };
        let waiting = if wanted > 0.0 { 1.0 - samples_per_s / wanted } else { 1.0 };
        Prediction { samples_per_s, waiting: waiting.clamp(0.0, 1.0) }
    }
}

/// Returns the rate that resources allow together: nearly that of the smallest. The rate of each resource varies, so
/// one that is hardly faster than the smallest is the limit for a part of the time.
fn together(rates: impl Iterator<Item = f64>) -> f64 {
    rates.map(|rate| rate.powi(-SHARPNESS)).sum::<f64>().powf(-1.0 / f64::from(SHARPNESS))
}

/// Returns the factor by which a rank's part of its home changes when another number of ranks shares the home.
fn part_of_home(rank: &RankWindow, worker: &WorkerWindow, change: &ResourceChange) -> f64 {
    let slots = worker.stage(&Stage::HandOver).map_or(0.0, StageRate::units);
    let ranks = (slots / f64::from(rank.slots.max(1))).round().max(1.0);
    // A rank has one home. After the change, the ranks of the fullest home wait longest.
    if change.workers > 0.0 { ranks / (ranks / change.workers).ceil() } else { 0.0 }
}

/// Returns the factor by which a change moves the term of a resource, if the rank gets `part` times as much of its
/// home.
fn factor(worker: &WorkerWindow, resource: Limit, change: &ResourceChange, part: f64) -> f64 {
    let cores = (worker.cores + change.cores).max(0.0);
    match resource {
        Limit::Trainer => 1.0 / change.step,
        Limit::Cpu => part * cores / worker.cores,
        // Each decoding thread has a process, and each core of the budget, rounded up, has a thread.
        Limit::Function => part * cores.ceil() / worker.cores.ceil() / change.call,
        Limit::StoreBandwidth => change.bandwidth / fetched_factor(worker, change, part),
        Limit::StoreLatency => request_factor(worker, change, part) / fetched_factor(worker, change, part),
        Limit::StoreErrors => 1.0 / fetched_factor(worker, change, part),
        Limit::Network => change.network,
        Limit::HandOver => change.slots,
        _ => 1.0,
    }
}

/// Returns the factor by which the requests per second of a store grow when its latency is the limit.
fn request_factor(worker: &WorkerWindow, change: &ResourceChange, part: f64) -> f64 {
    let request_s = worker.request_s();
    let first_byte_s = worker.first_byte_s().min(request_s);
    let changed_s = first_byte_s * change.latency + (request_s - first_byte_s) / change.bandwidth;
    let faster = if changed_s > 0.0 { request_s / changed_s } else { 1.0 };
    faster * in_flight_factor(worker, change, part)
}

/// Returns the factor by which the requests in flight for a rank grow: up to as many as are possible, or, where that is
/// not the limit, as many as reading ahead asks for.
fn in_flight_factor(worker: &WorkerWindow, change: &ResourceChange, part: f64) -> f64 {
    let units = worker.stage(&Stage::Fetch).map_or(0.0, StageRate::units);
    // Requests in flight get a share of the memory.
    let memory = 1.0 + change.memory_bytes / (worker.cache.limit_bytes as f64).max(1.0);
    let possible = part * (units * change.requests).min(worker.requests_in_memory() * memory.max(0.0));
    let more = possible / worker.requests_possible().max(f64::MIN_POSITIVE);
    if is_saturated(worker) { more } else { change.ahead.min(more / worker.requests_used().max(f64::MIN_POSITIVE)) }
}
