//! Computes the resources that a rate takes from the measurements: cores, memory, cache and the window of the order.

use serde::Serialize;
use spdl_insight::CORES_KEPT;
use spdl_worker::budget::{Budget, DEFAULT_CORE_FRACTION};

use super::super::costs::Costs;

/// What is known of the job and the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// The rate to advise for, in samples per second of a node, and whether the user gave it.
    pub(super) samples_per_s: f64,
    pub(super) is_given: bool,
    /// CPU time of a sample, in seconds.
    pub(super) cpu_s: f64,
    /// Time of a decoding thread for a sample, in seconds, if the job calls functions.
    pub(super) call_s: Option<f64>,
    pub(super) machine_cores: usize,
    /// The memory that was measured with.
    pub(super) memory_bytes: u64,
    pub(super) slab_bytes: u64,
    pub(super) dataset_bytes: u64,
    pub(super) samples: u64,
    /// Bytes per second that the store gave.
    pub(super) store_bytes_per_s: f64,
    /// The window of the job's order.
    pub(super) window: u64,
}

/// What a node needs for a rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Advice {
    pub(super) samples_per_s: f64,
    pub(super) is_given: bool,
    /// Cores of a worker, with a tenth in reserve.
    pub(super) cores: f64,
    /// Number of nodes like this one that together have these cores.
    pub(super) machines: u64,
    /// The cores in the default budget of a worker on this machine, and the rate that they allow.
    pub(super) default_cores: f64,
    pub(super) default_samples_per_s: f64,
    /// Memory of a worker for its slots and the blocks in use.
    pub(super) memory_bytes: u64,
    /// The memory that was measured with.
    pub(super) measured_memory_bytes: u64,
    pub(super) slab_bytes: u64,
    /// The most bytes of blocks that the order uses at once, and all bytes that a node reads in an epoch.
    pub(super) in_use_bytes: u64,
    pub(super) epoch_bytes: u64,
    /// Memory of a worker that keeps all bytes of an epoch.
    pub(super) cache_memory_bytes: u64,
    /// Bytes per second that the rate takes from the store while nothing is cached, and those that the store gave.
    pub(super) store_needed_bytes_per_s: f64,
    pub(super) store_bytes_per_s: f64,
    /// The window of the job's order. If its blocks in use do not fit the memory that was measured with, also the
    /// largest smaller window whose blocks do.
    pub(super) window: u64,
    pub(super) smaller_window: Option<u64>,
}

impl Advice {
    /// Computes the advice; `costs` returns what the order costs a node with a window.
    pub(super) fn new(facts: &Facts, costs: impl Fn(u64) -> Costs) -> Self {
        let thread_s = facts.call_s.map_or(facts.cpu_s, |call_s| call_s.max(facts.cpu_s));
        let cores = rounded_up(facts.samples_per_s * thread_s * CORES_KEPT);
        let default_cores = facts.machine_cores as f64 * DEFAULT_CORE_FRACTION;
        let order = costs(facts.window);
        let epoch_bytes = (order.downloads_per_dataset * facts.dataset_bytes as f64) as u64;
        let memory_for = |in_use_bytes| Budget::memory_for(facts.slab_bytes, in_use_bytes);
        let fits = |window: &u64| memory_for(costs(*window).cache_bytes_per_node) <= facts.memory_bytes;
        let smaller =
            || std::iter::successors(Some(facts.window / 2), |window| Some(window / 2)).take_while(|w| *w > 0);
        let memory_bytes = memory_for(order.cache_bytes_per_node);
        Self {
            samples_per_s: facts.samples_per_s,
            is_given: facts.is_given,
            cores,
            machines: (cores / facts.machine_cores as f64).ceil() as u64,
            default_cores,
            default_samples_per_s: default_cores / thread_s.max(f64::MIN_POSITIVE),
            memory_bytes,
            measured_memory_bytes: facts.memory_bytes,
            slab_bytes: facts.slab_bytes,
            in_use_bytes: order.cache_bytes_per_node,
            epoch_bytes,
            cache_memory_bytes: memory_for(epoch_bytes),
            store_needed_bytes_per_s: facts.samples_per_s * facts.dataset_bytes as f64 / facts.samples.max(1) as f64,
            store_bytes_per_s: facts.store_bytes_per_s,
            window: facts.window,
            smaller_window: if memory_bytes > facts.memory_bytes { smaller().find(fits) } else { None },
        }
    }
}

/// Rounds a number of cores up to tenths, but ignores an excess as small as a rounding error of floating point.
fn rounded_up(cores: f64) -> f64 {
    ((cores * 10.0 - 1e-9).ceil() / 10.0).max(0.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts {
        samples_per_s: 1_000.0,
        is_given: true,
        cpu_s: 0.002,
        call_s: None,
        machine_cores: 8,
        memory_bytes: 1 << 30,
        slab_bytes: 100 << 20,
        dataset_bytes: 10 << 30,
        samples: 100_000,
        store_bytes_per_s: 50e6,
        window: 64,
    };

    /// The blocks in use take as many mebibytes as the window has samples; a node reads half of the dataset.
    fn costs(window: u64) -> Costs {
        Costs { cache_bytes_per_node: window << 20, downloads_per_dataset: 0.5, ..Costs::default() }
    }

    #[test]
    fn cores_follow_the_rate_and_the_time_of_a_sample() {
        let advice = Advice::new(&FACTS, costs);
        assert_eq!((advice.cores, advice.machines), (2.2, 1), "2 cores, and a tenth in reserve");
        assert_eq!(advice.default_samples_per_s.round(), 1_600.0, "40 % of 8 cores");
        let calls = Advice::new(&Facts { call_s: Some(0.01), ..FACTS }, costs);
        assert_eq!(
            (calls.cores, calls.machines),
            (11.0, 2),
            "a thread waits for a function, so each call takes a core"
        );
        let quick = Advice::new(&Facts { call_s: Some(0.001), ..FACTS }, costs);
        assert_eq!(quick.cores, advice.cores, "the CPU time is the larger part");
    }

    #[test]
    fn memory_holds_the_slots_and_the_blocks_in_use_and_the_window_shrinks_where_there_is_less() {
        let advice = Advice::new(&FACTS, costs);
        assert_eq!(advice.memory_bytes, Budget::memory_for(100 << 20, 64 << 20));
        assert_eq!((advice.epoch_bytes, advice.smaller_window), (5 << 30, None));
        assert_eq!(advice.cache_memory_bytes, Budget::memory_for(100 << 20, 5 << 30));
        let large = Facts { window: 4_096, ..FACTS };
        let window = Advice::new(&large, costs).smaller_window.expect("a gibibyte does not hold four");
        assert!(Budget::memory_for(100 << 20, window << 20) <= 1 << 30);
        assert!(Budget::memory_for(100 << 20, window << 21) > 1 << 30, "no larger one fits");
        let none = Facts { slab_bytes: 1 << 30, ..FACTS };
        assert_eq!(Advice::new(&none, costs).smaller_window, None);
    }
}
