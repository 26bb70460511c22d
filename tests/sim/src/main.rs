//! Runs seeds on all CPU cores, and prints their coverage, or how to replay the seed that failed.

use std::{
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use clap::Parser;
#[cfg(debug_assertions)]
use spdl_sim::{Coverage, SeedOutcome, any_seed, run};
#[cfg(debug_assertions)]
use spdl_types::mutations::{Mutation, activate};

/// One seed in this many is run twice, to check that it gives the same trace.
const TWICE: u64 = 100;
/// This many seeds reach everything in the coverage list.
const ENOUGH: u64 = 2_000;

/// Progress is printed each time that this many seeds have begun.
const TOLD: u64 = 50_000;

/// Runs the cluster under virtual time with faults, once per seed.
#[derive(Parser)]
struct Arguments {
    /// Number of seeds; with --mutations, the most for each mutation.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    seeds: u64,
    /// The first seed. Default: a random one, which is printed.
    #[arg(long, value_name = "S")]
    from: Option<u64>,
    /// Runs only this seed.
    #[arg(long, value_name = "S", conflicts_with_all = ["from", "seeds"])]
    seed: Option<u64>,
    /// Prints every event. Requires --seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Activates this mutation, or each in turn, and fails unless it is found.
    #[arg(long, value_name = "NAME|all")]
    mutations: Option<String>,
}

fn main() -> ExitCode {
    // The text of a failed assertion is printed with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let arguments = Arguments::parse();
    let first = arguments.seed.or(arguments.from).unwrap_or_else(any_seed);
    let count = if arguments.seed.is_some() { 1 } else { arguments.seeds };
    if arguments.seed.is_none() {
        let mutations = arguments.mutations.as_ref().map(|name| format!(" --mutations {name}")).unwrap_or_default();
        println!("again: tests/sim/run --from {first} --seeds {count}{mutations}");
    }
    match &arguments.mutations {
        Some(name) => mutations(name, first, count, arguments.trace),
        None => play(first, count, arguments.trace),
    }
}

fn play(first: u64, count: u64, is_shown: bool) -> ExitCode {
    let started = Instant::now();
    let sum = Mutex::new((Coverage::default(), 0));
    let failed: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let next = AtomicU64::new(first);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..threads(count) {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        break;
                    }
                    if seed > first && (seed - first).is_multiple_of(TOLD) {
                        let seconds = started.elapsed().as_secs();
                        eprintln!("{} of {count} seeds after {seconds} s", seed - first);
                    }
                    let outcome = run(seed, is_shown);
                    let problem = outcome.failure.clone().or_else(|| {
                        let is_checked = seed.is_multiple_of(TWICE) && !is_shown;
                        (is_checked && run(seed, false).trace_hash != outcome.trace_hash)
                            .then(|| "the same seed gave another trace".to_owned())
                    });
                    if let Some(problem) = problem {
                        is_over.store(true, Ordering::Relaxed);
                        let mut failed = failed.lock().expect("no thread panics while it holds the lock");
                        if failed.as_ref().is_none_or(|(other, _)| seed < *other) {
                            *failed = Some((seed, problem));
                        }
                    }
                    let mut sum = sum.lock().expect("no thread panics while it holds the lock");
                    sum.0.add(&outcome.coverage);
                    sum.1 += outcome.virtual_ms;
                    if count == 1 {
                        println!("seed {seed}: trace {:016x}", outcome.trace_hash);
                    }
                }
            });
        }
    });
    let (coverage, virtual_ms) = sum.into_inner().expect("no thread panics while it holds the lock");
    if let Some((seed, problem)) = failed.into_inner().expect("no thread panics while it holds the lock") {
        println!("seed {seed} FAILED {problem}\nreplay: tests/sim/run --seed {seed} --trace");
        return ExitCode::FAILURE;
    }
    if count > 1 {
        for (what, times) in coverage.iter() {
            println!("{times:>12}  {what}");
        }
        for what in coverage.missing() {
            println!("       NEVER  {what}");
        }
    }
    let (hours, seconds) = (virtual_ms / 3_600_000, started.elapsed().as_secs_f64());
    println!("{count} seeds from {first} passed: {hours} h of virtual time in {seconds:.1} s");
    if count >= ENOUGH && !coverage.missing().is_empty() {
        println!("but they never met {:?}", coverage.missing());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn threads(count: u64) -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64).min(count)
}

#[cfg(not(debug_assertions))]
fn mutations(_: &str, _: u64, _: u64, _: bool) -> ExitCode {
    println!("a release build has no mutations; tests/sim/run makes one that has");
    ExitCode::FAILURE
}

#[cfg(debug_assertions)]
fn mutations(name: &str, first: u64, count: u64, is_shown: bool) -> ExitCode {
    let bugs: Vec<Mutation> = Mutation::ALL
        .into_iter()
        .filter(|bug| name == "all" || format!("{bug:?}").eq_ignore_ascii_case(name))
        .collect();
    if bugs.is_empty() {
        println!("there is no mutation `{name}`; there are: {:?}", Mutation::ALL);
        return ExitCode::FAILURE;
    }
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let escaped = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads(bugs.len() as u64) {
            scope.spawn(|| {
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    activate(Some(*bug));
                    let found: Option<(u64, SeedOutcome)> = (first..first + count)
                        .map(|seed| (seed, run(seed, is_shown)))
                        .find(|(_, outcome)| outcome.failure.is_some());
                    match found {
                        Some((seed, outcome)) => {
                            let problem: String = outcome.failure.unwrap_or_default().chars().take(160).collect();
                            println!("{bug:?}: found by seed {seed}: {problem}");
                        }
                        None => {
                            println!("{bug:?}: NOT FOUND within {count} seeds");
                            escaped.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let (escaped, seconds) = (escaped.into_inner(), started.elapsed().as_secs_f64());
    println!("{} of {} mutations found in {seconds:.1} s", bugs.len() as u64 - escaped, bugs.len());
    if escaped == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
