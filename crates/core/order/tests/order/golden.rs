//! Order version 1 is frozen: the golden vectors of `tests/order/golden-v1.json` must come out forever, and the second
//! implementation, in Python beside them, must agree on them and on random configurations.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test reads files and starts a process"
)]

use serde::{Deserialize, Serialize};
use serde_json::Value;
use spdl_order::{EpochEnd, OrderParams, Plan};

use crate::{
    delivery::{TakenSteps, delivered, dice, steps},
    twin::{FOLDER, agrees},
};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct GoldenCase {
    /// Runs of (samples, count).
    blocks: Vec<(u32, usize)>,
    seed: u64,
    lanes: u32,
    window: u64,
    shuffle: bool,
    #[serde(flatten)]
    taken: TakenSteps,
}

#[derive(Deserialize)]
struct Case {
    config: GoldenCase,
    delivers: Value,
}

fn deliver(config: &GoldenCase) -> Value {
    let blocks: Vec<u32> =
        config.blocks.iter().flat_map(|&(samples, count)| std::iter::repeat_n(samples, count)).collect();
    let order = OrderParams { version: 1, lanes: config.lanes, window: config.window, shuffle: config.shuffle };
    delivered(&Plan::new(&blocks, config.seed, order).unwrap(), &config.taken)
}

fn golden() -> Vec<Case> {
    let text = std::fs::read_to_string(format!("{FOLDER}/golden-v1.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns configurations from a fixed sequence.
fn random_configs(count: usize) -> Vec<GoldenCase> {
    let mut below = dice(1);
    let ends = [EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Continuous, EpochEnd::Exact, EpochEnd::Partial];
    (0..count)
        .map(|i| {
            let mut blocks: Vec<_> = (0..=below(8)).map(|_| (below(60) as u32, below(6) as usize)).collect();
            blocks.push((1 + below(40) as u32, 1));
            let samples: u64 = blocks.iter().map(|&(samples, count)| u64::from(samples) * count as u64).sum();
            let mut position = || (below(3), below(samples));
            let (from, at) = (position(), vec![position(), position()]);
            GoldenCase {
                seed: below(u64::MAX) << 33 | below(u64::MAX),
                lanes: 1 + below(samples.min(30)) as u32,
                window: 1 + below(2 * samples),
                shuffle: below(10) > 0,
                taken: TakenSteps {
                    global_batch: 1 + below(80) as u32,
                    epochs: 1 + below(4),
                    epoch_end: ends[i % ends.len()],
                    world: 1 + below(12) as u32,
                    from,
                    steps: 30,
                    at,
                },
                blocks,
            }
        })
        .collect()
}

#[test]
fn the_golden_vectors_come_out() {
    let cases = golden();
    for end in [EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Continuous, EpochEnd::Exact, EpochEnd::Partial] {
        assert!(
            cases.iter().any(|case| case.config.taken.epoch_end == end && case.config.shuffle),
            "{end:?} is not covered"
        );
    }
    // A permutation of fewer than 256 elements has more rounds, so both sides of this limit are covered: by windows,
    // and by spans and blocks.
    for n in [255, 256, 257] {
        assert!(cases.iter().any(|case| case.config.window == n && case.config.lanes == 1), "windows of {n}");
        assert!(cases.iter().any(|case| case.config.blocks == [(2, n as usize)]), "{n} blocks");
    }
    for case in cases {
        assert_eq!(deliver(&case.config), case.delivers, "{:?}", case.config);
    }
}

#[test]
fn the_python_twin_agrees_on_the_golden_vectors_and_on_random_configurations() {
    let mut configs: Vec<_> = golden().into_iter().map(|case| case.config).collect();
    configs.extend(random_configs(60));
    let steps = steps(&agrees("deliver.py", &configs, deliver));
    assert!(steps > 200, "only {steps} steps were compared");
}
