//! Buckets are frozen: the golden vectors of `tests/order/golden-buckets-v1.json` must come out forever, and the second implementation, in
//! Python beside them, must agree on random configurations.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test reads files")]

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use spdl_order::{BatchParams, BucketParams, EpochEnd, OrderParams, Plan};
use spdl_types::{Position, SampleId};

use crate::{
    delivery::{TakenSteps, delivered, dice, steps},
    sampling::sampling,
    twin::{FOLDER, agrees},
};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct BucketCase {
    /// Runs of (samples, count).
    blocks: Vec<(u32, usize)>,
    seed: u64,
    lanes: u32,
    window: u64,
    /// The size of each sample.
    sizes: Vec<u32>,
    /// Batches of a bucket, and their samples.
    bucket: u32,
    bucket_batch: u32,
    is_continuous: bool,
    #[serde(flatten)]
    taken: TakenSteps,
}

#[derive(Deserialize)]
struct GoldenBuckets {
    config: BucketCase,
    delivers: Value,
}

fn deliver(case: &BucketCase) -> Value {
    let &BucketCase { seed, lanes, window, bucket, bucket_batch: batch, is_continuous, .. } = case;
    let blocks: Vec<u32> =
        case.blocks.iter().flat_map(|&(samples, count)| std::iter::repeat_n(samples, count)).collect();
    let plain = Plan::new(&blocks, seed, OrderParams { version: 1, lanes, window, shuffle: true }).unwrap();
    let (params, sizes) = (BucketParams { window: bucket * batch, batch, is_continuous }, case.sizes.clone());
    let bucketed = plain.bucketed(params, seed, Arc::new(move |SampleId(id)| sizes[id as usize]));
    delivered(&bucketed, &case.taken)
}

/// Returns configurations from a fixed sequence, with sizes of which many are equal, and of which few are.
fn random_cases(count: usize) -> Vec<BucketCase> {
    let mut below = dice(4);
    let ends = [EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Continuous, EpochEnd::Exact, EpochEnd::Partial];
    (0..count)
        .map(|i| {
            let mut blocks: Vec<_> = (0..=below(6)).map(|_| (below(30) as u32, below(5) as usize)).collect();
            blocks.push((1 + below(30) as u32, 1));
            let samples: u64 = blocks.iter().map(|&(samples, count)| u64::from(samples) * count as u64).sum();
            let mut position = || (below(5), below(samples));
            let (from, at) = (position(), vec![position(), position(), position()]);
            let most = [4, 1000, 1 << 32][i % 3];
            let (bucket_batch, epoch_end) = (1 + below(20) as u32, ends[i % ends.len()]);
            BucketCase {
                seed: below(u64::MAX) << 33 | below(u64::MAX),
                lanes: 1 + below(samples.min(12)) as u32,
                window: 1 + below(2 * samples),
                sizes: (0..samples).map(|_| below(most) as u32).collect(),
                bucket: 1 + below(6) as u32,
                bucket_batch,
                is_continuous: epoch_end == EpochEnd::Continuous,
                taken: TakenSteps {
                    // A run may have another batch than its job.
                    global_batch: if i % 4 == 3 { 1 + below(40) as u32 } else { bucket_batch },
                    epochs: 1 + below(5),
                    epoch_end,
                    world: 1 + below(8) as u32,
                    from,
                    steps: 12,
                    at,
                },
                blocks,
            }
        })
        .collect()
}

#[test]
fn the_golden_vectors_of_buckets_come_out() {
    let text = std::fs::read_to_string(format!("{FOLDER}/golden-buckets-v1.json")).unwrap();
    let cases: Vec<GoldenBuckets> = serde_json::from_str(&text).unwrap();
    assert!(cases.len() > 5 && cases.iter().any(|case| case.config.is_continuous));
    for case in cases {
        assert_eq!(deliver(&case.config), case.delivers, "{:?}", case.config);
    }
}

#[test]
fn the_python_twin_agrees_on_random_buckets() {
    let cases = random_cases(60);
    let steps = steps(&agrees("buckets.py", &cases, deliver));
    assert!(steps > 150, "only {steps} steps were compared");
}

#[test]
fn a_sample_of_a_sampling_has_the_draws_that_it_has_without_buckets() {
    let classes: Vec<_> = (0..100).map(|sample| Some(u16::from(sample < 10))).collect();
    let order = OrderParams { version: 1, lanes: 4, window: 20, shuffle: true };
    let plain = Plan::of_view(&[10; 10], &sampling(&classes, &[50, 50]), 7, order).unwrap();
    let params = BucketParams { window: 40, batch: 8, is_continuous: false };
    let bucketed = plain.clone().bucketed(params, 7, Arc::new(|SampleId(id)| (id % 13) as u32));
    let batches = BatchParams { global_batch: 8, epochs: 3, epoch_end: EpochEnd::Partial, end: None };
    let draws = |plan: &Plan| -> Vec<(u64, SampleId)> {
        let items = plan.steps(Position::START, &batches).flat_map(|step| plan.step_items(&step));
        items.map(|item| (item.source_epoch, item.located.id)).collect()
    };
    let (before, after) = (draws(&plain), draws(&bucketed));
    assert_ne!(before, after);
    let distinct: BTreeSet<_> = after.iter().collect();
    assert_eq!(distinct.len(), after.len(), "a sample that comes twice has other draws");
    assert_eq!(distinct, before.iter().collect());
}
