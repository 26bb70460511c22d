//! Measurements of some seconds.

use crate::{
    Stage,
    history::StageRate,
    messages::{Stall, StoreStats},
};

/// What a worker did lately.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerWindow {
    /// The worker's name.
    pub name: String,
    /// The CPU budget, in cores.
    pub cores: f64,
    /// The cores that it kept busy.
    pub cores_used: f64,
    /// What its stages did per second.
    pub stages: Vec<StageRate>,
    /// Seconds for which `store` was counted.
    pub store_s: f64,
    /// The requests to stores and their faults.
    pub store: StoreStats,
}

impl WorkerWindow {
    pub(super) fn stage(&self, stage: &Stage) -> Option<&StageRate> {
        self.stages.iter().find(|rate| rate.stage == *stage)
    }

    /// Returns the mean time of a request to a store until its answer was complete, in seconds.
    pub(super) fn request_s(&self) -> f64 {
        self.stage(&Stage::Fetch).map_or(0.0, item_s)
    }

    /// Returns the mean time of a request to a store until the first byte of its answer, in seconds.
    pub(super) fn first_byte_s(&self) -> f64 {
        self.store.first_byte_ns as f64 / 1e9 / (self.store.requests as f64).max(1.0)
    }

    /// Returns how many requests the store failed.
    pub(super) const fn store_faults(&self) -> u64 {
        self.store.retries + self.store.timeouts + self.store.refusals
    }
}

/// Returns the mean time of an item of a stage, in seconds.
pub(super) fn item_s(stage: &StageRate) -> f64 {
    if stage.items_per_s > 0.0 { stage.busy / stage.items_per_s } else { 0.0 }
}

/// Returns the fraction of the units that `units` of them are.
pub(super) fn share(stage: &StageRate, units: f64) -> f64 {
    if stage.units() > 0.0 { units / stage.units() } else { 0.0 }
}

/// What a rank got lately.
#[derive(Clone, Debug, PartialEq)]
pub struct RankWindow {
    /// The rank, r in the specification of the order.
    pub rank: u32,
    /// Seconds that the window lasted.
    pub seconds: f64,
    /// Samples that the trainer took.
    pub samples: u64,
    /// Seconds in which the trainer waited for a batch.
    pub waited_s: f64,
    /// What the next batch waits for, if the worker knows it.
    pub stall: Option<Stall>,
}

impl RankWindow {
    /// Returns the fraction of the window in which the trainer waited.
    #[must_use]
    pub fn waiting(&self) -> f64 {
        (self.waited_s / self.seconds).clamp(0.0, 1.0)
    }
}
