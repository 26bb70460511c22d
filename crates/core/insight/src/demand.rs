//! The cores that ranks need so that none waits for CPU. The number of workers is scaled by them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Diagnosis, Limit, Presence, diagnosis::STANDSTILL_WAIT, window::NEGLIGIBLE_WAIT};

/// Fraction of a budget that ranks may use before more cores are wanted, because the rate of samples varies.
pub const CORES_USED: f64 = 0.85;
/// Upper limit of the growth of a rank's rate that one measurement assumes: a trainer that hardly ever gets a batch
/// does not show how many it could take. The next measurement finds any further need.
const MAX_GROWTH: f64 = 4.0;
/// Number of cores that are kept while ranks take part, and that are wanted where there are none: without a worker
/// nothing can be measured.
const FIRST_CORES: f64 = 1.0;

/// The cores that some ranks need, together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreDemand {
    /// The ranks that take part.
    pub ranks: u32,
    /// The number of them whose need is known.
    pub measured_ranks: u32,
    /// The cores that these ranks need, with some to spare.
    pub needed_cores: f64,
    /// Number of ranks that wait for something other than CPU, by their limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waiting_otherwise: BTreeMap<Limit, u32>,
}

impl CoreDemand {
    /// Adds a rank that takes part; `None` if it was not measured for long enough.
    pub fn add(&mut self, diagnosis: Option<&Diagnosis>) {
        self.ranks += 1;
        let Some(found) = diagnosis else { return };
        if let Some(cores) = found.cores_needed() {
            self.measured_ranks += 1;
            self.needed_cores += cores;
        }
        if let Some(limit) = found.limit().filter(|limit| found.is_waiting() && !limit.is_of_cpu()) {
            *self.waiting_otherwise.entry(limit).or_default() += 1;
        }
    }

    /// Returns how many more cores are wanted than the workers have; negative if fewer would do. It is never negative
    /// while the need of a rank is not known.
    #[must_use]
    pub fn wanted_cores(&self, worker_cores: f64) -> f64 {
        let fewest = match self.ranks {
            0 => 0.0,
            _ if worker_cores > 0.0 => FIRST_CORES.min(worker_cores),
            _ => FIRST_CORES,
        };
        let wanted = self.needed_cores.max(fewest) - worker_cores;
        if self.measured_ranks < self.ranks { wanted.max(0.0) } else { wanted }
    }

    /// Returns a sentence that explains the number of wanted cores.
    #[must_use]
    pub fn reason(&self, worker_cores: f64) -> String {
        let &Self { ranks, measured_ranks, needed_cores, .. } = self;
        if ranks == 0 {
            return "no rank takes part".to_owned();
        }
        if worker_cores <= 0.0 {
            return format!("{} and no worker", count(ranks, "rank takes part", "ranks take part"));
        }
        let unknown = ranks - measured_ranks;
        if measured_ranks == 0 {
            return format!("{} not measured yet, so nothing changes", count(unknown, "rank was", "ranks were"));
        }
        let mut text = format!(
            "{} {needed_cores:.1} cores to not wait for CPU, and the workers have {worker_cores:.1}",
            count(measured_ranks, "rank needs", "ranks need")
        );
        if unknown > 0 {
            text += &format!("; {} not measured yet, so not fewer", count(unknown, "rank was", "ranks were"));
        }
        for (limit, ranks) in &self.waiting_otherwise {
            let wait = count(*ranks, "rank waits", "ranks wait");
            text += &format!("; {wait} for something else (`{limit}`), which cores do not give");
        }
        text
    }
}

fn count(number: u32, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

impl Limit {
    /// Returns whether more cores help.
    const fn is_of_cpu(self) -> bool {
        matches!(self, Self::Cpu | Self::Function)
    }
}

impl Diagnosis {
    /// Returns whether the rank is alive, and waits for batches for more of its time than is negligible.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.rank.presence == Presence::Alive && self.rank.waiting() >= NEGLIGIBLE_WAIT
    }

    /// Returns whether the rank waits for batches because its home is short of CPU, whatever the cause of that.
    #[must_use]
    pub fn waits_for_cpu(&self) -> bool {
        let resource = self.resource();
        self.is_waiting() && resource.is_some_and(Limit::is_of_cpu)
    }

    /// Returns the cores that the rank needs in the budget of its home to not wait for CPU: the samples per second that it
    /// would take, times the time that a core has for each, divided by [`CORES_USED`]. What the store, the network and the
    /// slots allow bounds the rate, so that no cores are wanted to wait for those. `None` if that is not known; a rank that
    /// asks for no batch needs none.
    #[must_use]
    pub fn cores_needed(&self) -> Option<f64> {
        let worker = self.worker.as_ref().filter(|_| self.rank.presence == Presence::Alive)?;
        if self.rank.samples == 0 {
            return (self.rank.waiting() <= STANDSTILL_WAIT).then_some(0.0);
        }
        let rate = self.samples_per_s();
        let smallest = |is_of_cpu: bool| {
            let terms = self.terms.iter().filter(|term| term.limit.is_of_cpu() == is_of_cpu);
            terms.map(|term| term.samples_per_s).min_by(f64::total_cmp)
        };
        let wanted = smallest(false).unwrap_or(f64::INFINITY).min(MAX_GROWTH * rate);
        // Unused cores can decode more samples. Threads that wait for a core count as used, so a lack of cores costs
        // time, too.
        let used = smallest(true).map_or(0.0, |allowed| rate / allowed);
        let made = worker.stage(&spdl_types::Stage::Decode).map_or(0.0, |decode| decode.items_per_s);
        let cores = wanted * used * worker.cores / made / CORES_USED;
        (made > 0.0 && cores.is_finite()).then_some(cores)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{RankWindow, WorkerWindow, diagnose, simulation::Simulation},
        *,
    };

    fn diagnosis(simulation: Simulation) -> Diagnosis {
        let (rank, worker) = simulation.run(1);
        diagnose(rank, Some(worker))
    }

    /// Returns the cores that are wanted for one rank.
    fn wanted(simulation: Simulation) -> f64 {
        let mut demand = CoreDemand::default();
        demand.add(Some(&diagnosis(simulation)));
        demand.wanted_cores(simulation.cores)
    }

    /// A trainer that takes 32 samples in each 30 ms, of 3 ms each: 3.2 cores.
    fn short_of_cpu(cores: f64) -> Simulation {
        Simulation { cores, cpu_s: 0.003, ..Simulation::default() }
    }

    #[test]
    fn as_many_cores_are_wanted_as_make_the_wait_end() {
        for cores in [0.8, 1.0, 1.5, 2.0, 3.0] {
            let more = wanted(short_of_cpu(cores));
            assert!(more > 0.0, "{more} for {cores}");
            let enough = short_of_cpu(cores + more);
            let after = diagnosis(enough);
            assert!(after.rank.waiting() < NEGLIGIBLE_WAIT, "{cores} and {more}: {:?}", after.rank);
            assert!(cores + more < 3.2 / CORES_USED * 1.2, "{more} for {cores} are more than needed");
            assert!(wanted(enough).abs() < 0.15 * enough.cores, "it comes to rest: {}", wanted(enough));
        }
        assert!((-5.0..-3.0).contains(&wanted(short_of_cpu(8.0))), "{}", wanted(short_of_cpu(8.0)));
    }

    #[test]
    fn a_trainer_that_gets_faster_wants_more_and_one_that_gets_slower_fewer() {
        let of = |step_s| wanted(Simulation { step_s, ..short_of_cpu(4.0) });
        let cores = [of(0.1), of(0.05), of(0.03), of(0.02), of(0.015)];
        assert!(cores.is_sorted_by(|before, after| before + 0.5 < *after), "{cores:?}");
    }

    #[test]
    fn a_store_or_a_network_that_is_slow_wants_no_cores_however_slow() {
        for factor in [3.0, 10.0, 100.0] {
            let slow = Simulation { latency_s: 0.01 * 3.0 * factor, ..Simulation::default() };
            assert!(wanted(slow) < 0.0, "{factor}: {}", wanted(slow));
            let narrow = Simulation { bandwidth: 1e8 / factor, latency_s: 0.002, ..Simulation::default() };
            assert!(wanted(narrow) < 0.0, "{factor}: {}", wanted(narrow));
        }
        // The CPU could do half of what the trainer takes, and the store a quarter.
        let both = Simulation { bandwidth: 2.5e7, latency_s: 0.002, ..short_of_cpu(1.6) };
        assert!(wanted(both) < 0.0, "{}", wanted(both));
        let mut demand = CoreDemand::default();
        demand.add(Some(&diagnosis(both)));
        assert_eq!(demand.waiting_otherwise, [(Limit::StoreBandwidth, 1)].into());
        let reason = demand.reason(1.6);
        let expected = "; 1 rank waits for something else (`store_bandwidth`), which cores do not give";
        assert!(reason.ends_with(expected), "{reason}");
    }

    #[test]
    fn a_trainer_that_takes_all_at_once_wants_a_bounded_number_more() {
        let starving = Simulation { step_s: 1e-6, requests_in_flight: 512, bandwidth: 1e12, ..short_of_cpu(2.0) };
        let needed = diagnosis(starving).cores_needed().unwrap();
        assert!((2.0 * 0.9..=2.0 * MAX_GROWTH / CORES_USED + 0.1).contains(&needed), "{needed}");
    }

    #[test]
    fn nothing_is_scaled_on_what_is_not_known() {
        let mut demand = CoreDemand::default();
        assert_eq!((demand.wanted_cores(8.0), demand.reason(8.0).as_str()), (-8.0, "no rank takes part"));
        demand.add(None);
        assert_eq!(demand.wanted_cores(8.0), 0.0);
        assert_eq!(demand.reason(8.0), "1 rank was not measured yet, so nothing changes");
        demand.add(Some(&diagnosis(short_of_cpu(2.0))));
        assert_eq!(demand.wanted_cores(80.0), 0.0, "one of the two is not known");
        assert!(demand.wanted_cores(2.0) > 1.0, "what one of them lacks is known");
        assert!(demand.reason(2.0).ends_with("; 1 rank was not measured yet, so not fewer"), "{}", demand.reason(2.0));
        let homeless = CoreDemand { ranks: 2, ..CoreDemand::default() };
        assert_eq!(homeless.wanted_cores(0.0), FIRST_CORES, "without a worker nothing is ever measured");
        assert_eq!(homeless.reason(0.0), "2 ranks take part and no worker");
    }

    #[test]
    fn a_rank_that_asks_for_nothing_needs_nothing_and_one_that_waits_in_vain_is_not_known() {
        let worker = WorkerWindow { cores: 4.0, ..WorkerWindow::default() };
        let needed = |waited_s| {
            let rank = RankWindow { seconds: 10.0, waited_s, ..RankWindow::default() };
            diagnose(rank, Some(worker.clone())).cores_needed()
        };
        assert_eq!((needed(0.0), needed(9.0)), (Some(0.0), None));
        let idle = CoreDemand { ranks: 2, measured_ranks: 2, ..CoreDemand::default() };
        assert_eq!(idle.wanted_cores(8.0), FIRST_CORES - 8.0, "it may go on");
        assert_eq!(idle.wanted_cores(0.5), 0.0, "a small worker is enough for that");
        let homeless = diagnose(RankWindow { seconds: 10.0, ..RankWindow::default() }, None::<WorkerWindow>);
        assert_eq!(homeless.cores_needed(), None);
    }
}
