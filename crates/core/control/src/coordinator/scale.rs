//! How many cores the ranks of all jobs need: the figure that the number of workers is scaled on.
//!
//! - Nothing is wanted before this coordinator has led for the liveness timeout: until then it has not heard from all.
//! - A rank counts once its measurements are of the time since it joined, or got its home, and some seconds: before that, it
//!   waits for its first batch. While one does not count, no fewer cores are wanted.
//! - The needs of all jobs add up. A worker that drains is not there any more.
//! - More are wanted at once, and fewer as well: to go down slowly is the task of what starts and stops workers.

use serde::{Deserialize, Serialize};

use spdl_insight::{CoreDemand, Diagnosis};

use super::{CoordinatorCore, session::SessionState};

/// After this time with a home, in milliseconds, nothing of a rank's first batches is left in the windows of the
/// measurements, which are of up to 11 seconds.
const MEASURED_AFTER_MS: u64 = 20_000;

/// How many cores the ranks need, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScaleStatus {
    /// How many more cores the ranks need than the workers have; negative if fewer would do, and `None` while it is not known.
    pub wanted_cores: Option<f64>,
    /// The cores that the workers without a socket should have for that: those that they have, and the wanted ones.
    pub wanted_pool_cores: Option<f64>,
    /// The cores in the budgets of all workers that take ranks.
    pub worker_cores: f64,
    /// Those of workers without a socket for trainers on their node.
    pub pool_cores: f64,
    /// The need of the ranks.
    pub demand: CoreDemand,
    /// Why so many are wanted, in a sentence.
    pub reason: String,
}

impl CoordinatorCore {
    /// Adds the need of the ranks of a session with these diagnoses.
    pub(super) fn add_demand(&self, session: &SessionState, diagnoses: &[Diagnosis], demand: &mut CoreDemand) {
        if session.superseded_by.is_some() || session.is_reset {
            return;
        }
        let mut found = diagnoses.iter().peekable();
        for (&number, rank) in &session.ranks {
            let diagnosis = found.next_if(|diagnosis| diagnosis.rank.rank == number);
            if rank.is_alive(self.now_ms, self.config.liveness_ms) {
                let is_measured = self.now_ms.saturating_sub(rank.home_since_ms) >= MEASURED_AFTER_MS;
                demand.add(diagnosis.filter(|_| is_measured));
            }
        }
    }

    /// Returns what is wanted for this need.
    pub(super) fn scale(&self, demand: CoreDemand) -> ScaleStatus {
        let there = || self.workers.values().filter(|worker| !worker.draining && worker.cores.is_finite());
        let worker_cores: f64 = there().map(|worker| worker.cores).sum();
        let pool_cores: f64 = there().filter(|worker| worker.home.socket.is_none()).map(|worker| worker.cores).sum();
        let is_known = self.now_ms - self.started_ms >= self.config.liveness_ms;
        let wanted_cores = is_known.then(|| demand.wanted_cores(worker_cores));
        let reason = if is_known {
            demand.reason(worker_cores)
        } else {
            "the coordinator has begun to lead, and has not heard from all workers and ranks".to_owned()
        };
        let wanted_pool_cores = wanted_cores.map(|wanted| (pool_cores + wanted).max(0.0));
        ScaleStatus { wanted_cores, wanted_pool_cores, worker_cores, pool_cores, demand, reason }
    }
}
