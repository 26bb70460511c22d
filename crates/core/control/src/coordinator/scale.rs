//! Computes how many cores the ranks of all jobs need: the figure by which the number of workers is scaled.
//!
//! - The figure is not known before this coordinator has led for the liveness timeout: until then, it has not heard
//!   from all workers and ranks.
//! - A rank counts as measured from 20 seconds after it joined or got its home, when the wait for its first batches is
//!   no longer in its measurements. While a rank is not measured, the figure asks for no fewer cores.
//! - The needs of all jobs add up. The cores of a worker that drains do not count.
//! - The figure rises and falls at once. The autoscaler that starts and stops workers has to scale down slowly.

use serde::{Deserialize, Serialize};

use spdl_insight::{CoreDemand, Diagnosis};

use super::{CoordinatorCore, session::SessionState};

/// The time with a home, in milliseconds, after which a rank's measurements no longer include its first batches: their
/// windows are up to 11 seconds long.
const MEASURED_AFTER_MS: u64 = 20_000;

/// How many cores the ranks need, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScaleStatus {
    /// How many more cores the ranks need than the workers have; negative if fewer would do, and `None` while it is not known.
    pub wanted_cores: Option<f64>,
    /// The cores that the workers without a socket should have in all: `pool_cores` and `wanted_cores` added up, at
    /// least 0.
    pub wanted_pool_cores: Option<f64>,
    /// The cores in the budgets of all workers that do not drain, those that only help included.
    pub worker_cores: f64,
    /// The part of `worker_cores` in workers without a socket for trainers on their node.
    pub pool_cores: f64,
    /// The need of the ranks.
    pub demand: CoreDemand,
    /// The reason for the figure, in a sentence.
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

    /// Returns the figures for this demand.
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
