//! What a worker may use of its node: cores, memory, disk. Hard limits; how memory is shared out is decided here too.

use std::{num::NonZeroUsize, path::PathBuf};

/// Part of the node's cores that a worker takes unless told otherwise: above it, a trainer on the same node launches
/// its kernels late.
pub const DEFAULT_CORE_FRACTION: f64 = 0.4;
/// Memory that a worker takes unless told otherwise, in bytes.
pub const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// The least memory a worker works with, in bytes.
pub const MIN_MEMORY_BYTES: u64 = 16 << 20;
/// Bytes that are on their way to a batch without being cached, at most.
const MAX_TRANSIT_BYTES: u64 = 64 << 20;

/// What a worker may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Cores. Default: 40 % of the node's. Raised, the trainer's own CPU work gets slower. Decoding threads rest for what is too
    /// much; in a worker they rest for what fetching and sending take, too, and in a trainer's process for decoding alone.
    pub cores: f64,
    /// Bytes for slabs and cached blocks together. Default: 1 GiB. Raised, less is left for the trainer and for the
    /// page cache.
    pub memory_bytes: u64,
    /// The disk cache; none by default.
    pub disk: Option<DiskBudget>,
}

/// A budget with which nothing can be done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`cores` is {cores}: give a number of cores above 0, such as 1.5, and none to take 40 % of the node's")]
pub struct BudgetError {
    cores: f64,
}

/// Where blocks are kept on disk, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskBudget {
    /// The folder; made when it is not there. Workers do not share one.
    pub directory: PathBuf,
    /// Bytes of all blocks in it. Raised, the disk fills up.
    pub bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { cores: Self::default_cores(), memory_bytes: DEFAULT_MEMORY_BYTES, disk: None }
    }
}

impl Budget {
    /// Whether there is something to work with; logs where it is more than the node has.
    ///
    /// # Errors
    /// [`BudgetError`] for cores that are no number above 0.
    pub fn check(&self) -> Result<(), BudgetError> {
        let cores = self.cores;
        if !(cores > 0.0 && cores.is_finite()) {
            return Err(BudgetError { cores });
        }
        let node_cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        if cores.ceil() > node_cores as f64 {
            tracing::warn!(
                "the budget is {cores} cores, and there are {node_cores}: is it meant as percent (`{cores}%`)?"
            );
        }
        Ok(())
    }

    /// 40 % of the cores this process may run on.
    #[must_use]
    pub fn default_cores() -> f64 {
        std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64) * DEFAULT_CORE_FRACTION
    }

    /// Threads that decode: enough for all cores. Where the budget ends in a part of one they rest for the rest of it.
    #[must_use]
    pub fn threads(&self) -> NonZeroUsize {
        NonZeroUsize::new(self.cores.max(0.0).ceil() as usize).unwrap_or(NonZeroUsize::MIN)
    }

    /// How the memory is shared out.
    #[must_use]
    pub(crate) fn shares(&self) -> MemoryShares {
        let transit_bytes = (self.memory_bytes / 16).clamp(1 << 20, MAX_TRANSIT_BYTES);
        let index_bytes = self.memory_bytes / 16;
        let pool_bytes = self.memory_bytes.saturating_sub(transit_bytes + index_bytes);
        MemoryShares { transit_bytes, index_bytes, pool_bytes }
    }
}

/// The memory budget, cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryShares {
    /// Records that are fetched for one use because their block has no room.
    pub(crate) transit_bytes: u64,
    /// Record indexes.
    pub(crate) index_bytes: u64,
    /// Slabs, and in what they leave, cached blocks.
    pub(crate) pool_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_any_budget_add_up_to_it() {
        for memory_bytes in [MIN_MEMORY_BYTES, 100 << 20, 1 << 30, 1 << 40] {
            let shares = Budget { memory_bytes, ..Budget::default() }.shares();
            assert_eq!(shares.transit_bytes + shares.index_bytes + shares.pool_bytes, memory_bytes);
            assert!(shares.pool_bytes >= memory_bytes / 2, "{shares:?}");
        }
    }

    #[test]
    fn a_budget_without_cores_is_refused() {
        for cores in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = Budget { cores, ..Budget::default() }.check().unwrap_err().to_string();
            assert!(error.contains(&format!("`cores` is {cores}")), "{error}");
        }
        Budget { cores: 100.0, ..Budget::default() }.check().unwrap();
    }

    #[test]
    fn there_are_threads_for_all_cores_and_one_is_always_there() {
        for (cores, threads) in [(0.0, 1), (0.8, 1), (1.9, 2), (2.0, 2), (51.2, 52)] {
            assert_eq!(Budget { cores, ..Budget::default() }.threads().get(), threads, "{cores} cores");
        }
    }
}
