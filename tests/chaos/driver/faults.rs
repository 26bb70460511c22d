//! The schedule of the faults: which process is killed when.

use std::time::{Duration, Instant};

use spdl_testkit::processes::Cluster;
use spdl_types::mix::{GAMMA, mix};

const WORKER_EVERY: Duration = Duration::from_secs(3);
const COORDINATOR_EVERY: Duration = Duration::from_secs(10);

/// A seeded random number generator (SplitMix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a random number in `0..bound`.
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0) % bound
    }
}

/// Kills a worker every 3 s and the coordinator every 10 s with SIGKILL, and restarts it at once.
pub(super) struct Faults {
    random: Random,
    next_worker: Instant,
    next_coordinator: Instant,
    pub(super) worker_kills: u64,
    pub(super) coordinator_kills: u64,
}

impl Faults {
    pub(super) fn new(random: Random) -> Self {
        let now = Instant::now();
        Self {
            random,
            next_worker: now + WORKER_EVERY,
            next_coordinator: now + COORDINATOR_EVERY,
            worker_kills: 0,
            coordinator_kills: 0,
        }
    }

    /// Kills and restarts the processes whose time has come.
    pub(super) fn strike(&mut self, cluster: &mut Cluster) {
        let now = Instant::now();
        if now >= self.next_worker {
            let index = self.random.below(cluster.workers.len() as u64) as usize;
            cluster.workers[index].process.kill();
            cluster.restart_worker(index);
            self.worker_kills += 1;
            self.next_worker = now + WORKER_EVERY;
        }
        if now >= self.next_coordinator {
            cluster.coordinator.as_mut().expect("a coordinator").kill();
            cluster.start_coordinator();
            self.coordinator_kills += 1;
            self.next_coordinator = now + COORDINATOR_EVERY;
        }
    }
}
