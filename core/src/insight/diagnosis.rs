//! The diagnosis of one rank.

use super::{Limit, RankWindow, Term, WorkerWindow, terms::terms};

/// The fraction of its time below which a trainer's wait is negligible.
pub(super) const NEGLIGIBLE_WAIT: f64 = 0.02;

/// What a rank's rate is limited by. [`what_if`](Self::what_if) predicts it under a change, and
/// [`verdict`](Self::verdict) says it in a sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// What was measured of the rank.
    pub rank: RankWindow,
    /// What was measured of its home.
    pub worker: WorkerWindow,
    /// The terms, the smallest first; empty if the rank took no sample.
    pub terms: Vec<Term>,
}

/// Other resources than those that were measured. The default changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Cores that the home's budget gets in addition; negative to take some away.
    pub cores: f64,
    /// Factor of the number of processes that run the user's functions.
    pub functions: f64,
    /// Factor of the number of requests in flight.
    pub requests: f64,
    /// Factor of the time until the first byte of a reply.
    pub latency: f64,
    /// Factor of the store's bytes per second.
    pub bandwidth: f64,
    /// Factor of the bytes that come from the store and not from a cache.
    pub fetched: f64,
    /// Factor of the trainer's time per step.
    pub step: f64,
}

impl Default for Change {
    fn default() -> Self {
        Self { cores: 0.0, functions: 1.0, requests: 1.0, latency: 1.0, bandwidth: 1.0, fetched: 1.0, step: 1.0 }
    }
}

/// Finds what limits a rank whose home is `worker`.
#[must_use]
pub fn diagnose(rank: RankWindow, worker: WorkerWindow) -> Diagnosis {
    let terms = if rank.samples == 0 { Vec::new() } else { terms(&rank, &worker) };
    Diagnosis { rank, worker, terms }
}

impl Diagnosis {
    /// Returns what limits the rank; `None` if it took no sample in the window.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        let first = self.terms.first()?.limit;
        Some(if self.rank.waiting() < NEGLIGIBLE_WAIT { Limit::Trainer } else { first })
    }

    /// Returns the smallest term of another resource than the limit.
    #[must_use]
    pub fn next(&self) -> Option<Term> {
        let limit = self.limit()?;
        self.terms.iter().copied().find(|term| term.limit != limit)
    }

    /// Returns the rate that was measured, in samples per second.
    #[must_use]
    pub fn samples_per_s(&self) -> f64 {
        self.rank.samples as f64 / self.rank.seconds
    }

    /// Predicts the rate in samples per second under a change.
    #[must_use]
    pub fn what_if(&self, change: &Change) -> f64 {
        let terms = self.terms.iter().map(|term| term.samples_per_s * self.factor(term.limit, change));
        terms.min_by(f64::total_cmp).unwrap_or(0.0)
    }

    /// Returns by how much a change moves the term of a resource.
    fn factor(&self, limit: Limit, change: &Change) -> f64 {
        match limit {
            Limit::Trainer => 1.0 / change.step,
            Limit::Cpu => (1.0 + change.cores / self.worker.cores).max(0.0),
            Limit::Function => change.functions,
            Limit::StoreBandwidth => change.bandwidth / change.fetched,
            Limit::StoreLatency => self.request_factor(change) / change.fetched,
            Limit::StoreErrors => 1.0 / change.fetched,
            Limit::HandOver => 1.0,
        }
    }

    /// Returns how many more requests per second a store answers whose latency is the limit.
    fn request_factor(&self, change: &Change) -> f64 {
        let request_s = self.worker.request_s();
        let first_byte_s = self.worker.first_byte_s().min(request_s);
        let changed_s = first_byte_s * change.latency + (request_s - first_byte_s) / change.bandwidth;
        if changed_s > 0.0 { request_s / changed_s * change.requests } else { change.requests }
    }
}
