//! A few hundred seeds: nothing is wrong, they meet what they are there for, and the same seed does the same again.

use std::sync::Mutex;

use spdl_sim::{Coverage, run};

/// Raise it with `SPDL_SIM_SEEDS`, or use `tests/sim/run`, which plays seeds faster than a test build.
const SEEDS: u64 = 400;

fn seeds() -> u64 {
    std::env::var("SPDL_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS)
}

#[test]
fn nothing_is_lost_repeated_or_stuck_and_every_interesting_state_is_met() {
    let sum = Mutex::new(Coverage::default());
    std::thread::scope(|scope| {
        for half in 0..2 {
            let sum = &sum;
            scope.spawn(move || {
                for seed in (half..seeds()).step_by(2) {
                    let outcome = run(seed, false);
                    if let Some(problem) = outcome.failure {
                        panic!("seed {seed}: {problem}\nreplay: tests/sim/run --seed {seed} --trace");
                    }
                    sum.lock().unwrap().add(&outcome.coverage);
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap();
    assert_eq!(sum.missing(), Vec::<&str>::new(), "never happened in {} seeds", seeds());
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_one_another() {
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let (once, again) = (run(seed, false), run(seed, false));
        assert_eq!(once.trace_hash, again.trace_hash, "seed {seed}");
        assert!(hashes.insert(once.trace_hash), "seed {seed} is like one before");
    }
}
