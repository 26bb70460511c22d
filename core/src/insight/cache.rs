//! What a cache of another size would keep from the store.

use super::{Change, WorkerWindow};

/// Returns by how much more comes from the store for a rank that gets `part` times as much of the cache.
pub(super) fn fetched_factor(worker: &WorkerWindow, change: &Change, part: f64) -> f64 {
    let limit_bytes = worker.cache.limit_bytes as f64;
    let missed_with = |bytes: f64| missed(bytes / (worker.cache.dataset_bytes as f64).max(1.0));
    let before = missed_with(limit_bytes);
    let more = if before > 0.0 { missed_with(part * (limit_bytes + change.memory_bytes)) / before } else { 1.0 };
    change.fetched * more
}

/// Returns which part of a dataset's bytes is not in a cache that holds `fraction` of the dataset, where each epoch has an
/// order of its own and what was not used for longest goes first.
fn missed(fraction: f64) -> f64 {
    let left = 1.0 - fraction.clamp(0.0, 1.0);
    // A block at `x` of one epoch and at `y` of the next, both from 0 to 1, has `1 - x + x y` of the dataset between its
    // uses. This is the area in which that is more than `fraction`.
    if left > 0.0 { left * (1.0 - left.ln()) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::splitmix64;

    /// Returns which part of the blocks is missed by a cache that holds `kept` of `blocks`.
    fn missed_in_simulation(kept: usize, blocks: usize) -> f64 {
        const EPOCHS: u64 = 30;
        let mut last_use = vec![0; blocks];
        let (mut now, mut misses) = (0, 0);
        for epoch in 0..=EPOCHS {
            let mut order: Vec<usize> = (0..blocks).collect();
            order.sort_by_key(|block| splitmix64(splitmix64(epoch) ^ *block as u64));
            for block in order {
                let used_since = last_use.iter().filter(|at| **at > last_use[block]).count();
                misses += u64::from(epoch > 0 && used_since >= kept);
                now += 1;
                last_use[block] = now;
            }
        }
        misses as f64 / (EPOCHS * blocks as u64) as f64
    }

    #[test]
    fn the_part_that_a_cache_misses_is_that_of_a_simulated_cache() {
        for kept in [0, 25, 50, 100, 150, 190, 200] {
            let (predicted, simulated) = (missed(kept as f64 / 200.0), missed_in_simulation(kept, 200));
            assert!((predicted - simulated).abs() < 0.02, "{kept} of 200: {predicted} {simulated}");
        }
    }
}
