//! The diagnosis as one sentence: a subject, numbers, and what would help.

use crate::Stage;

use super::{
    Change, Diagnosis, Limit, Term, WorkerWindow,
    diagnosis::{NEGLIGIBLE_WAIT, STANDSTILL_WAIT},
    window::item_s,
};

/// Cores that a trainer who sets the pace needs in addition to what is used: a rate varies.
const CORES_KEPT: f64 = 1.1;
/// The fraction of the budget from which on it is worth to say that fewer cores would do.
const NOTABLE_SPARE: f64 = 0.2;
/// A rate that could rise by more than this factor is not told by how much: what would limit it was hardly used.
const MAX_FACTOR: f64 = 10.0;
/// The gain below which a change gives nothing.
const NO_GAIN: f64 = 0.01;

impl Diagnosis {
    /// Says what limits the rank, and what would help how much.
    #[must_use]
    pub fn verdict(&self) -> String {
        let rank = self.rank.rank;
        let Some(worker) = &self.worker else { return format!("rank {rank} has no home: no worker serves it") };
        let limit = self.limit();
        let Some(limit) = limit.filter(|_| self.rank.samples > 0) else { return self.standstill(limit, worker) };
        let percent = 100.0 * self.rank.waiting();
        if self.rank.waiting() < NEGLIGIBLE_WAIT {
            let spare = self.cores_to_spare(worker);
            let fewer = if spare > 0.0 { format!("; {spare:.1} cores fewer would do") } else { String::new() };
            return format!(
                "nothing to gain: the trainer sets the pace, as rank {rank} waits {percent:.1} % of its time{fewer}"
            );
        }
        let subject = subject(limit, worker);
        format!(
            "rank {rank} waits {percent:.0} % of its time: {subject}{}{}",
            self.remedy(limit, worker),
            self.no_remedy(limit, worker)
        )
    }

    /// Says why a rank took no sample.
    fn standstill(&self, limit: Option<Limit>, worker: &WorkerWindow) -> String {
        let (rank, seconds) = (self.rank.rank, self.rank.seconds);
        let stall = self.rank.stall.as_ref().map(ToString::to_string);
        let reasons: Vec<String> = limit.map(|limit| subject(limit, worker)).into_iter().chain(stall).collect();
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

    /// Says what would help and how much, up to the next limit.
    fn remedy(&self, limit: Limit, worker: &WorkerWindow) -> String {
        let factor_of = |term: &Term| term.samples_per_s / self.terms[0].samples_per_s;
        let next = self.next().map(|term| (factor_of(&term), term.limit));
        let Some((factor, next)) = next.filter(|(factor, _)| *factor < MAX_FACTOR) else {
            return format!("; {} would help", means(limit, None, worker));
        };
        let (means, then) = (means(limit, Some(factor), worker), then(next));
        if factor < 1.0 + NO_GAIN {
            format!("; {means} alone would give nothing, as {then}")
        } else if factor < 2.0 {
            format!("; {means} would give up to {:.0} %, then {then}", 100.0 * (factor - 1.0))
        } else {
            format!("; {means} would give up to {factor:.1} times the rate, then {then}")
        }
    }

    /// Names a common remedy that gives nothing here.
    fn no_remedy(&self, limit: Limit, worker: &WorkerWindow) -> String {
        let (text, change) = if limit == Limit::Cpu {
            ("a larger cache", Change { fetched: 0.5, ..Change::default() })
        } else {
            ("more cores", Change { cores: worker.cores, ..Change::default() })
        };
        if self.what_if(&change) <= self.what_if(&Change::default()) * (1.0 + NO_GAIN) {
            format!("; {text} would give nothing")
        } else {
            String::new()
        }
    }
}

/// Says what is short, with numbers.
fn subject(limit: Limit, worker: &WorkerWindow) -> String {
    let WorkerWindow { name, cores, cores_used, store, store_s, .. } = worker;
    let ms = |seconds: f64| 1e3 * seconds;
    let fetch = worker.stage(&Stage::Fetch);
    match limit {
        Limit::Trainer => "the trainer sets the pace".to_owned(),
        Limit::Cpu => format!(
            "worker `{name}` is short of CPU ({} of its {} cores are busy)",
            number(*cores_used),
            number(*cores)
        ),
        Limit::Function => {
            let call_ms = ms(worker.stage(&Stage::Transform).map_or(0.0, item_s));
            format!("the functions of the job are slow on worker `{name}` (a call takes {call_ms:.1} ms)")
        }
        Limit::StoreLatency => format!(
            "the store answers worker `{name}` late (a request takes {:.0} ms, {:.0} ms of it until the first byte, and {:.1} are in flight)",
            ms(worker.request_s()),
            ms(worker.first_byte_s()),
            fetch.map_or(0.0, |fetch| fetch.busy)
        ),
        Limit::StoreBandwidth => {
            let mb_per_s = fetch.map_or(0.0, |fetch| fetch.bytes_per_s) / 1e6;
            format!("the store gives worker `{name}` {mb_per_s:.1} MB/s and no more")
        }
        Limit::StoreErrors => format!(
            "the store fails requests of worker `{name}` ({} of {} in {store_s:.0} s)",
            worker.store_faults(),
            store.requests
        ),
        Limit::HandOver => format!("batches of worker `{name}` are done in time and reach the trainer late"),
        Limit::NoWorker => "no worker serves it".to_owned(),
    }
}

/// Writes a number of cores with two digits.
fn number(cores: f64) -> String {
    if cores < 0.95 { format!("{cores:.2}") } else { format!("{cores:.1}") }
}

/// Names what a limit needs for a rate that is higher by a factor; `None` if it is not known how far the rate can rise.
fn means(limit: Limit, factor: Option<f64>, worker: &WorkerWindow) -> String {
    match limit {
        Limit::Trainer => "a faster trainer".to_owned(),
        Limit::Cpu => {
            let Some(factor) = factor else { return "more cores".to_owned() };
            let cores = ((factor - 1.0) * worker.cores * 10.0).ceil().max(1.0) / 10.0;
            format!("{cores:.1} more cores")
        }
        Limit::Function => "faster functions or more cores".to_owned(),
        Limit::StoreLatency => "more requests in flight or a larger cache".to_owned(),
        Limit::StoreBandwidth => "a faster store or a larger cache".to_owned(),
        Limit::StoreErrors => "a store without errors".to_owned(),
        Limit::HandOver => "more slots or a worker on the trainer's node".to_owned(),
        Limit::NoWorker => "a worker with room".to_owned(),
    }
}

/// Says what limits once the limit before is gone.
const fn then(limit: Limit) -> &'static str {
    match limit {
        Limit::Trainer => "the trainer sets the pace",
        Limit::Cpu => "the CPU budget is the limit",
        Limit::Function => "the functions of the job are the limit",
        Limit::StoreLatency | Limit::StoreBandwidth | Limit::StoreErrors => "the store is the limit",
        Limit::HandOver | Limit::NoWorker => "the way to the trainer is the limit",
    }
}
