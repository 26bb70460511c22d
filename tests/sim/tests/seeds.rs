//! Runs a few hundred seeds, different ones each time, and checks that none fails and that a seed is reproducible.
//! `tests/sim/run`, which runs thousands, checks that the seeds reach the events in the coverage list.

use spdl_sim::{any_seed, run};

/// Seeds that have found something: a change of a job that is proposed to ranks which have it already; one that is made while the
/// coordinator does not know all ranks of a session, after it has lost its disk or before they join again; ranks of a job that was removed and
/// made anew; a rank that had ended before the disk was lost.
const FOUND: [u64; 5] = [469653147977, 336998905416, 217038757099, 246691773846, 246691793015];
/// The number of seeds. Raise it with `SPDL_SIM_SEEDS`, or use `tests/sim/run`.
const SEEDS: u64 = 400;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Returns the first seed: a random one, unless `SPDL_SIM_FROM` sets it.
fn from() -> u64 {
    let from = variable("SPDL_SIM_FROM").unwrap_or_else(any_seed);
    println!("again: SPDL_SIM_FROM={from}");
    from
}

#[test]
fn nothing_is_lost_repeated_or_stuck() {
    let (from, seeds) = (from(), variable("SPDL_SIM_SEEDS").unwrap_or(SEEDS));
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                for seed in (from + half..from + seeds).step_by(2) {
                    if let Some(problem) = run(seed, false).failure {
                        panic!("seed {seed}: {problem}\nreplay: tests/sim/run --seed {seed} --trace");
                    }
                }
            });
        }
    });
}

#[test]
fn seeds_that_have_failed_before_pass() {
    for seed in FOUND {
        assert_eq!(run(seed, false).failure, None, "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_one_another() {
    let mut hashes = std::collections::BTreeSet::new();
    let from = from();
    for seed in from..from + 20 {
        let (once, again) = (run(seed, false), run(seed, false));
        assert_eq!(once.trace_hash, again.trace_hash, "seed {seed}");
        assert!(hashes.insert(once.trace_hash), "seed {seed} is like one before");
    }
}
