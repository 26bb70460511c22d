//! The statistics of a stage, as processes send them and pages show them.

use serde::{Deserialize, Serialize};

use crate::Stage;

/// What one stage of a pipeline has done since it started.
///
/// A stage has *units* that do its work: threads, requests in flight, slots. Each unit is at any time busy, waiting for
/// input, waiting for output, or throttled, so these four times add up to the time for which the units have existed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct StageStats {
    #[serde(rename = "name")]
    pub stage: Stage,
    pub items: u64,
    pub bytes: u64,
    pub failures: u64,
    /// Time in which the units worked.
    pub busy_ns: u64,
    /// Time in which the units waited for an item.
    pub input_wait_ns: u64,
    /// Time in which the units waited for room behind the stage.
    pub output_wait_ns: u64,
    /// Time in which the units were held back, by a budget or by a delay before a new try.
    pub throttled_ns: u64,
    /// CPU time of the stage, where it computes on threads of its own; otherwise 0.
    pub cpu_ns: u64,
    /// Current number of units.
    pub units: u64,
    /// Current number of items in front of the stage.
    pub queue_depth: u64,
    /// Percentiles of the time per item.
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
}

impl StageStats {
    /// Returns the statistics of a stage that has done nothing.
    #[must_use]
    pub const fn new(stage: Stage) -> Self {
        Self {
            stage,
            items: 0,
            bytes: 0,
            failures: 0,
            busy_ns: 0,
            input_wait_ns: 0,
            output_wait_ns: 0,
            throttled_ns: 0,
            cpu_ns: 0,
            units: 0,
            queue_depth: 0,
            p50_ns: 0,
            p90_ns: 0,
            p99_ns: 0,
        }
    }

    /// Returns the time for which the units have existed: the sum of the four times.
    #[must_use]
    pub const fn unit_ns(&self) -> u64 {
        let waits = self.input_wait_ns.saturating_add(self.output_wait_ns).saturating_add(self.throttled_ns);
        self.busy_ns.saturating_add(waits)
    }
}
