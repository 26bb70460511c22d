//! Predicts how many bytes a cache of another size leaves to the store.

use super::{ResourceChange, WorkerWindow};

/// Returns the factor of the bytes from the store under a change, for a rank that gets `part` times as much of the
/// cache.
pub(super) fn fetched_factor(worker: &WorkerWindow, change: &ResourceChange, part: f64) -> f64 {
    let limit_bytes = worker.cache.limit_bytes as f64;
    let before = missed(worker, limit_bytes);
    let more = if before > 0.0 { missed(worker, part * (limit_bytes + change.memory_bytes)) / before } else { 1.0 };
    change.fetched * more
}

/// Returns the fraction of a dataset's bytes that a cache of `bytes` lacks. The cache holds the blocks in use and,
/// beside them, the blocks that came first.
fn missed(worker: &WorkerWindow, bytes: f64) -> f64 {
    let dataset_bytes = worker.cache.dataset_bytes as f64;
    let window_bytes = (worker.cache.window_bytes as f64).min(bytes);
    if bytes >= dataset_bytes {
        return 0.0;
    }
    // The cache keeps the same fraction of the blocks in use as of all others.
    1.0 - ((bytes - window_bytes) / (dataset_bytes - window_bytes)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CacheStats;
    use spdl_types::mix::splitmix64;

    const BLOCKS: usize = 200;

    /// Returns the fraction of the blocks that a cache with room for `room` of them misses. Each of the last `window`
    /// blocks is in use, and of the others the cache keeps those that came first.
    fn missed_in_simulation(room: usize, window: usize) -> f64 {
        const EPOCHS: u64 = 30;
        let (mut came, mut in_use) = (Vec::<usize>::new(), std::collections::VecDeque::new());
        let mut misses = 0;
        for epoch in 0..=EPOCHS {
            let mut order: Vec<usize> = (0..BLOCKS).collect();
            order.sort_by_key(|block| splitmix64(splitmix64(epoch) ^ *block as u64));
            for block in order {
                in_use.push_back(block);
                if in_use.len() > window {
                    in_use.pop_front();
                }
                if came.contains(&block) {
                    continue;
                }
                misses += u64::from(epoch > 0);
                came.push(block);
                while came.len() > room {
                    let last = came.iter().rposition(|block| !in_use.contains(block)).expect("a block makes room");
                    came.remove(last);
                }
            }
        }
        misses as f64 / (EPOCHS * BLOCKS as u64) as f64
    }

    #[test]
    fn the_part_that_a_cache_misses_is_that_of_a_simulated_cache() {
        for (room, window) in [(25, 20), (50, 5), (50, 40), (100, 1), (100, 50), (150, 30), (190, 60), (200, 30)] {
            let cache =
                CacheStats { dataset_bytes: BLOCKS as u64, window_bytes: window as u64, ..CacheStats::default() };
            let worker = WorkerWindow { cache, ..WorkerWindow::default() };
            let (predicted, simulated) = (missed(&worker, room as f64), missed_in_simulation(room, window));
            assert!(
                (predicted - simulated).abs() < 0.02,
                "{room} of {BLOCKS}, {window} in use: {predicted} {simulated}"
            );
        }
    }
}
