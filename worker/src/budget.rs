//! The limits of what a worker may use of its node: cores, memory and disk. They are hard limits. This file also
//! decides how the memory is divided.

use std::{fs, io::ErrorKind, num::NonZeroUsize, path::PathBuf};

use crate::decode::DecodeLimits;

/// Default fraction of the node's cores that a worker uses. With a larger one, a trainer on the same node launches its
/// kernels late.
pub const DEFAULT_CORE_FRACTION: f64 = 0.4;
/// Default memory of a worker, in bytes.
pub const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// Default size of a disk cache, in bytes.
pub const DEFAULT_DISK_BYTES: u64 = 64 << 30;
/// Minimum memory of a worker, in bytes.
pub const MIN_MEMORY_BYTES: u64 = 16 << 20;
/// Maximum bytes of records that are fetched for one batch without being cached.
const MAX_TRANSIT_BYTES: u64 = 64 << 20;
/// Maximum bytes that a decoding thread keeps between two pictures.
const MAX_KEPT_BYTES: u64 = 64 << 20;

/// The resources that a worker may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Cores. Default: 40 % of the node's. When raised, the trainer's own CPU work gets slower. The decoding threads
    /// pause to stay within the limit. A worker process counts fetching and sending too; inside a trainer's process
    /// only decoding counts.
    pub cores: f64,
    /// Bytes for slabs, cached blocks and the decoding of pictures together. Default: 1 GiB. When raised, less is left
    /// for the trainer and for the page cache. When lowered, large pictures become bad samples: a picture that cannot
    /// be decoded row by row may use a third of these bytes.
    pub memory_bytes: u64,
    /// The disk cache. Default: none.
    pub disk: Option<DiskBudget>,
}

/// The error of a budget that is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// The number of cores is not one.
    #[error("`cores` is {0}: give a number of cores above 0, such as 1.5, and none to take 40 % of the node's")]
    Cores(f64),
    /// The folder of the disk cache is a file or a device.
    #[error("`{}` is not a folder: name one for the cache, which is created if it does not exist", .0.display())]
    CacheFolder(PathBuf),
}

/// The folder and the size of the disk cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskBudget {
    /// The folder; created if it does not exist. Several processes of a node can share it.
    pub directory: PathBuf,
    /// Maximum bytes of all blocks in the folder, those of other processes included. When raised, the disk fills up.
    pub bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { cores: Self::default_cores(), memory_bytes: DEFAULT_MEMORY_BYTES, disk: None }
    }
}

impl Budget {
    /// Checks that the budget is valid, and logs a warning if it has more cores than the node.
    ///
    /// # Errors
    /// [`BudgetError`] if `cores` is not a finite number above 0, or if the disk cache's folder cannot be one.
    pub fn check(&self) -> Result<(), BudgetError> {
        let cores = self.cores;
        if !(cores > 0.0 && cores.is_finite()) {
            return Err(BudgetError::Cores(cores));
        }
        if let Some(DiskBudget { directory, .. }) = &self.disk {
            let is_possible = match fs::metadata(directory) {
                Ok(found) => found.is_dir(),
                // A disk that fails now may work later, and the worker works without it.
                Err(error) => error.kind() != ErrorKind::NotADirectory,
            };
            if !is_possible {
                return Err(BudgetError::CacheFolder(directory.clone()));
            }
        }
        let node_cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        if cores.ceil() > node_cores as f64 {
            tracing::warn!(
                "the budget is {cores} cores, and there are {node_cores}: is it meant as percent (`{cores}%`)?"
            );
        }
        Ok(())
    }

    /// Returns 40 % of the cores that this process may run on.
    #[must_use]
    pub fn default_cores() -> f64 {
        std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64) * DEFAULT_CORE_FRACTION
    }

    /// Returns the number of decoding threads: the cores, rounded up. The threads pause to make up for the rounding.
    #[must_use]
    pub fn threads(&self) -> NonZeroUsize {
        NonZeroUsize::new(self.cores.max(0.0).ceil() as usize).unwrap_or(NonZeroUsize::MIN)
    }

    /// Returns the smallest memory in bytes that has room for slabs of `slab_bytes` and, beside them, for blocks of
    /// `block_bytes`, even while large pictures are decoded.
    #[must_use]
    pub fn memory_for(slab_bytes: u64, block_bytes: u64) -> u64 {
        let needed = slab_bytes.saturating_add(block_bytes);
        let holds = |memory_bytes: u64| {
            let MemoryShares { pool_bytes, lent_bytes, .. } = Self { memory_bytes, ..Self::default() }.shares();
            pool_bytes.saturating_sub(lent_bytes) >= needed
        };
        let (mut least, mut most) = (MIN_MEMORY_BYTES, needed.saturating_mul(3).max(MIN_MEMORY_BYTES));
        while least < most {
            let middle = least + (most - least) / 2;
            if holds(middle) { most = middle } else { least = middle + 1 }
        }
        least
    }

    /// Divides the memory between its uses.
    #[must_use]
    pub(crate) fn shares(&self) -> MemoryShares {
        let transit_bytes = (self.memory_bytes / 16).clamp(1 << 20, MAX_TRANSIT_BYTES);
        let index_bytes = self.memory_bytes / 16;
        let decode_bytes = self.memory_bytes / 8;
        let pool_bytes = self.memory_bytes.saturating_sub(transit_bytes + index_bytes + decode_bytes);
        MemoryShares { transit_bytes, index_bytes, decode_bytes, lent_bytes: self.memory_bytes / 4, pool_bytes }
    }

    /// Divides the memory for decoding between what the threads keep and what single pictures need.
    #[must_use]
    pub(crate) fn decode_limits(&self) -> DecodeLimits {
        let MemoryShares { decode_bytes, lent_bytes, .. } = self.shares();
        let kept_bytes = (decode_bytes / 2 / self.threads().get() as u64).min(MAX_KEPT_BYTES);
        let own_bytes = decode_bytes - kept_bytes * self.threads().get() as u64;
        let kept_bytes = usize::try_from(kept_bytes).unwrap_or(usize::MAX);
        DecodeLimits { max_bytes: own_bytes + lent_bytes, own_bytes, kept_bytes }
    }
}

/// How the memory budget is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryShares {
    /// Records that are fetched for one use because there is no memory for their block.
    pub(crate) transit_bytes: u64,
    /// Record indexes.
    pub(crate) index_bytes: u64,
    /// Decoding of pictures, including what the decoding threads keep.
    pub(crate) decode_bytes: u64,
    /// Bytes of the pool that cached blocks give up for the decoding of large pictures.
    pub(crate) lent_bytes: u64,
    /// Slabs; cached blocks use what the slabs leave free.
    pub(crate) pool_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_any_budget_add_up_to_it() {
        for memory_bytes in [MIN_MEMORY_BYTES, 100 << 20, 1 << 30, 1 << 40] {
            let shares = Budget { memory_bytes, ..Budget::default() }.shares();
            let sum = shares.transit_bytes + shares.index_bytes + shares.decode_bytes + shares.pool_bytes;
            assert_eq!(sum, memory_bytes);
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
    fn what_cannot_be_a_folder_is_no_place_for_a_cache() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let check = |directory: PathBuf| {
            Budget { disk: Some(DiskBudget { directory, bytes: 1 << 30 }), ..Budget::default() }.check()
        };
        for wrong in [file.clone(), file.join("below"), "/dev/null".into()] {
            assert_eq!(check(wrong.clone()), Err(BudgetError::CacheFolder(wrong)));
        }
        for right in [folder.path().to_owned(), folder.path().join("new/below")] {
            assert_eq!(check(right), Ok(()));
        }
    }

    #[test]
    fn the_memory_for_slabs_and_blocks_holds_them_and_a_byte_less_does_not() {
        for (slab_bytes, block_bytes) in [(1 << 28, 0), (1 << 30, 3 << 30), (3, 1 << 34), (1 << 25, 1 << 25)] {
            let memory_bytes = Budget::memory_for(slab_bytes, block_bytes);
            let left = |memory_bytes| {
                let shares = Budget { memory_bytes, ..Budget::default() }.shares();
                shares.pool_bytes - shares.lent_bytes
            };
            assert!(left(memory_bytes) >= slab_bytes + block_bytes, "{memory_bytes}");
            assert!(left(memory_bytes - 1) < slab_bytes + block_bytes, "{memory_bytes}");
        }
        assert_eq!(Budget::memory_for(0, 0), MIN_MEMORY_BYTES);
    }

    #[test]
    fn decoding_stays_within_its_share_and_what_the_pool_lends() {
        for (memory_bytes, cores) in [(MIN_MEMORY_BYTES, 1.0), (1 << 30, 4.0), (1 << 30, 200.0), (1 << 40, 64.0)] {
            let budget = Budget { memory_bytes, cores, ..Budget::default() };
            let (shares, limits) = (budget.shares(), budget.decode_limits());
            let kept = limits.kept_bytes as u64 * budget.threads().get() as u64;
            assert_eq!(limits.own_bytes + kept, shares.decode_bytes, "{limits:?}");
            assert_eq!(limits.max_bytes - limits.own_bytes, shares.lent_bytes);
            assert!(limits.own_bytes >= shares.decode_bytes / 2 && shares.lent_bytes < shares.pool_bytes);
        }
    }

    #[test]
    fn there_are_threads_for_all_cores_and_one_is_always_there() {
        for (cores, threads) in [(0.0, 1), (0.8, 1), (1.9, 2), (2.0, 2), (51.2, 52)] {
            assert_eq!(Budget { cores, ..Budget::default() }.threads().get(), threads, "{cores} cores");
        }
    }
}
