//! The diagnosis as one sentence: a subject, numbers, and what would help.

use super::{
    Diagnosis, Limit, Presence, ResourceChange, Term, WorkerWindow,
    cause::crowded,
    connections::{FullCore, full_core},
    diagnosis::STANDSTILL_WAIT,
    words::{means, subject},
};

/// Cores that are kept for a rate, as a multiple of what its samples take on average, because a rate varies.
pub const CORES_KEPT: f64 = 1.1;
/// Fraction of the budget above which the verdict mentions that fewer cores would do.
const NOTABLE_SPARE: f64 = 0.2;
/// The verdict gives no number for a gain of this factor or more, because what would limit it then was hardly used.
const MAX_FACTOR: f64 = 10.0;
/// The gain below which a change counts as giving nothing.
const NO_GAIN: f64 = 0.01;

impl Diagnosis {
    /// Returns a sentence on what limits the rank, and on what would help and how much.
    #[must_use]
    pub fn verdict(&self) -> String {
        let rank = self.rank.rank;
        match &self.rank.presence {
            Presence::Alive => {}
            Presence::Superseded { by } => {
                return format!("rank {rank} gets no more batches: {by} has taken its place");
            }
            Presence::Silent { for_ms } => {
                let seconds = for_ms / 1000;
                return format!(
                    "nothing was heard of rank {rank} for {seconds} s: its process is stopped, hangs or is cut off"
                );
            }
        }
        let Some(worker) = &self.worker else { return format!("rank {rank} has no home: no worker serves it") };
        let limit = self.limit();
        let Some(limit) = limit.filter(|_| self.rank.samples > 0) else { return self.standstill(limit, worker) };
        let percent = 100.0 * self.rank.waiting();
        if self.rank.hardly_waits() {
            let spare = self.cores_to_spare(worker);
            let fewer = if spare > 0.0 { format!("; {spare:.1} cores fewer would do") } else { String::new() };
            return format!(
                "nothing to gain: the trainer sets the pace, as rank {rank} waits {percent:.1} % of its time{fewer}"
            );
        }
        let subject = subject(limit, &self.rank, worker);
        format!(
            "rank {rank} waits {percent:.0} % of its time: {subject}{}{}",
            self.remedy(limit, worker),
            self.no_remedy(limit, worker)
        )
    }

    /// Returns the core of a connection that is the limit.
    fn full_core(&self, limit: Limit, worker: &WorkerWindow) -> Option<FullCore> {
        full_core(&self.rank, worker).filter(|_| limit == Limit::Network)
    }

    /// Explains why a rank took no sample.
    fn standstill(&self, limit: Option<Limit>, worker: &WorkerWindow) -> String {
        let (rank, seconds) = (self.rank.rank, self.rank.seconds);
        let stall = self.rank.stall.as_ref().map(ToString::to_string);
        let cause = limit.map(|limit| subject(limit, &self.rank, worker));
        let reasons: Vec<String> = cause.into_iter().chain(stall).collect();
        if self.rank.waiting() <= STANDSTILL_WAIT && reasons.is_empty() {
            format!("rank {rank} has asked for no batch in the last {seconds:.0} s")
        } else if reasons.is_empty() {
            let name = &worker.name;
            format!("rank {rank} has got no sample in {seconds:.0} s, and worker `{name}` does not know why")
        } else {
            format!("rank {rank} has got no sample in {seconds:.0} s: {}", reasons.join("; "))
        }
    }

    /// Returns how many cores of its budget the home does not need while the trainer sets the pace; 0 if they are few.
    fn cores_to_spare(&self, worker: &WorkerWindow) -> f64 {
        let cores = worker.cores;
        let rate = |limit| self.terms.iter().find(|term| term.limit == limit).map(|term| term.samples_per_s);
        let (Some(cpu), Some(trainer)) = (rate(Limit::Cpu), rate(Limit::Trainer)) else { return 0.0 };
        let spare = cores * (1.0 - trainer / cpu * CORES_KEPT);
        if spare > NOTABLE_SPARE * cores { (spare * 10.0).floor() / 10.0 } else { 0.0 }
    }

    /// Describes what would help and how much, up to the next limit.
    fn remedy(&self, limit: Limit, worker: &WorkerWindow) -> String {
        let factor_of = |term: &Term| term.samples_per_s / self.terms[0].samples_per_s;
        let next = self.next().map(|term| (factor_of(&term), term.limit));
        let next = match crowded(worker).filter(|_| limit == Limit::Cpu) {
            Some(share) if next.is_none_or(|(factor, _)| factor * share > 1.0) => Some((1.0 / share, Limit::Cpu)),
            _ => next,
        };
        let next = next.filter(|(factor, _)| *factor < MAX_FACTOR);
        let is_of_use = next.is_none_or(|(factor, _)| factor >= 1.0 + NO_GAIN);
        if let Some(core) = self.full_core(limit, worker).filter(|_| is_of_use) {
            return core.remedy(next);
        }
        let Some((factor, next)) = next else {
            return format!("; {} would help", means(limit, None, worker));
        };
        let (means, then) = (means(limit, Some(factor), worker), next.as_next());
        if factor < 1.0 + NO_GAIN {
            format!("; {means} alone would give nothing, as {then}")
        } else if factor < 2.0 {
            format!("; {means} would give up to {:.0} %, then {then}", 100.0 * (factor - 1.0))
        } else {
            format!("; {means} would give up to {factor:.1} times the rate, then {then}")
        }
    }

    /// Describes a common remedy that gives nothing here; empty if that would give something, or one core of another process is full.
    fn no_remedy(&self, limit: Limit, worker: &WorkerWindow) -> String {
        if self.full_core(limit, worker).is_some() {
            return String::new();
        }
        let is_of_cpu = self.terms.first().is_some_and(|term| term.limit == Limit::Cpu);
        let (text, change) = if is_of_cpu {
            ("a larger cache", ResourceChange { fetched: 0.5, ..ResourceChange::default() })
        } else {
            ("more cores", ResourceChange { cores: worker.cores, ..ResourceChange::default() })
        };
        if self.what_if(&change) <= self.what_if(&ResourceChange::default()) * (1.0 + NO_GAIN) {
            format!("; {text} would give nothing")
        } else {
            String::new()
        }
    }
}
