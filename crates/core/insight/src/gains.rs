//! What twice as much of each resource would give the ranks of a session.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{Diagnosis, ResourceChange, cause::crowded};

/// Something to improve by a factor of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitRemedy {
    /// Twice the cores of each home.
    Cores,
    /// Functions of the user's in half the time.
    Functions,
    /// Twice the requests in flight.
    Requests,
    /// Half the time until a store's reply begins.
    Latency,
    /// Twice the bytes per second of the store.
    Bandwidth,
    /// Half the bytes from the store: the rest comes from a cache.
    Cache,
    /// Steps of the trainer in half the time.
    Step,
}

impl LimitRemedy {
    /// Every remedy.
    pub const ALL: [Self; 7] =
        [Self::Cores, Self::Functions, Self::Requests, Self::Latency, Self::Bandwidth, Self::Cache, Self::Step];

    /// Returns the name for metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cores => "cores",
            Self::Functions => "functions",
            Self::Requests => "requests",
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Cache => "cache",
            Self::Step => "step",
        }
    }

    fn change(self, diagnosis: &Diagnosis) -> ResourceChange {
        let change = ResourceChange::default();
        match self {
            Self::Cores => {
                ResourceChange { cores: diagnosis.worker.as_ref().map_or(0.0, |worker| worker.cores), ..change }
            }
            Self::Functions => ResourceChange { call: 0.5, ..change },
            Self::Requests => ResourceChange { requests: 2.0, ..change },
            Self::Latency => ResourceChange { latency: 0.5, ..change },
            Self::Bandwidth => ResourceChange { bandwidth: 2.0, ..change },
            Self::Cache => ResourceChange { fetched: 0.5, ..change },
            Self::Step => ResourceChange { step: 0.5, ..change },
        }
    }
}

impl fmt::Display for LimitRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Predicts the factor by which the rate of a session would rise with each remedy on all nodes; 1 for one that gives
/// nothing. The ranks of a session take their steps together, so the slowest sets the rate. Empty if a rank took no
/// sample.
#[must_use]
pub fn session_gains(diagnoses: &[Diagnosis]) -> BTreeMap<LimitRemedy, f64> {
    let slowest = |rate: &dyn Fn(&Diagnosis) -> f64| diagnoses.iter().map(rate).min_by(f64::total_cmp).unwrap_or(0.0);
    let rate = slowest(&|diagnosis| diagnosis.what_if(&ResourceChange::default()));
    if rate <= 0.0 {
        return BTreeMap::new();
    }
    // A larger budget gives no core that other processes have.
    let is_crowded =
        diagnoses.iter().filter_map(|diagnosis| diagnosis.worker.as_deref()).any(|worker| crowded(worker).is_some());
    let gain = |remedy: LimitRemedy| {
        let helps = !(is_crowded && remedy == LimitRemedy::Cores);
        let changed = if helps { slowest(&|diagnosis| diagnosis.what_if(&remedy.change(diagnosis))) } else { rate };
        (remedy, (changed / rate * 1e3).round() / 1e3)
    };
    LimitRemedy::ALL.into_iter().map(gain).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{diagnose, simulation::Simulation},
        *,
    };

    fn diagnosis(simulation: Simulation) -> Diagnosis {
        let (rank, worker) = simulation.run(1);
        diagnose(rank, Some(worker))
    }

    #[test]
    fn twice_the_cores_help_a_session_as_far_as_its_slowest_rank_goes() {
        let slow = Simulation { cpu_s: 0.003, ..Simulation::default() };
        let gains = session_gains(&[diagnosis(Simulation::default()), diagnosis(slow)]);
        assert_eq!(gains.keys().copied().collect::<Vec<_>>(), LimitRemedy::ALL);
        // The slow rank needs 48 ms for a batch whose step takes 30 ms.
        assert!((1.4..1.8).contains(&gains[&LimitRemedy::Cores]), "{gains:?}");
        for nothing in [
            LimitRemedy::Functions,
            LimitRemedy::Latency,
            LimitRemedy::Bandwidth,
            LimitRemedy::Cache,
            LimitRemedy::Step,
        ] {
            assert!((1.0..1.05).contains(&gains[&nothing]), "{nothing}: {gains:?}");
        }
    }

    #[test]
    fn where_the_trainer_sets_the_pace_only_shorter_steps_help() {
        let gains = session_gains(&[diagnosis(Simulation::default())]);
        let helps: Vec<LimitRemedy> = LimitRemedy::ALL.into_iter().filter(|remedy| gains[remedy] > 1.05).collect();
        assert_eq!(helps, [LimitRemedy::Step], "{gains:?}");
    }

    #[test]
    fn nothing_is_predicted_for_a_session_that_stands_still() {
        let still = Diagnosis { terms: Vec::new(), ..diagnosis(Simulation::default()) };
        assert_eq!(session_gains(&[diagnosis(Simulation::default()), still]), BTreeMap::new());
        assert_eq!(session_gains(&[]), BTreeMap::new());
    }
}
