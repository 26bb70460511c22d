//! The stream of a sampling: its golden vectors in `tests/order/golden-sampling-v1.json` must come out forever, the second implementation
//! in Python must agree, and each class gives what it shall.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test reads files")]

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use spdl_order::{
    BLEND_PERIOD, BatchParams, BlendSource, EpochEnd, OrderParams, Plan, PlanError, RedactedSamples, Redaction,
    view::{ClassSampling, SampleSetBuilder, ViewSamples},
};
use spdl_types::{Position, SampleId};

use crate::{
    delivery::{TakenSteps, delivered, dice, steps},
    twin::{FOLDER, agrees},
};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SamplingCase {
    /// Runs of (samples, count).
    blocks: Vec<(u32, usize)>,
    /// The class of each sample that is kept.
    classes: Vec<Option<u16>>,
    /// The samples that each class gives in an epoch.
    given: Vec<u64>,
    seed: u64,
    lanes: u32,
    window: u64,
    shuffle: bool,
    #[serde(flatten)]
    taken: TakenSteps,
}

#[derive(Serialize, Deserialize)]
struct GoldenSampling {
    config: SamplingCase,
    delivers: Value,
}

/// Returns the sampling of a dataset whose samples are of these classes, which give so many samples in an epoch.
pub(crate) fn sampling(classes: &[Option<u16>], given: &[u64]) -> ViewSamples {
    let mut kept = SampleSetBuilder::default();
    let of_classes = (0..).zip(classes).filter(|(_, class)| class.is_some());
    of_classes.for_each(|(id, _)| kept.keep(SampleId(id)).unwrap());
    let kept = Arc::new(kept.finish(classes.len() as u64).unwrap());
    let named = given.iter().enumerate().map(|(number, given)| (number.to_string(), *given));
    let numbers = classes.iter().copied().flatten().collect();
    ViewSamples::Sampling(Arc::new(ClassSampling::new("cls".to_owned(), kept, named, numbers).unwrap()))
}

fn plan(case: &SamplingCase) -> Plan {
    let blocks: Vec<u32> =
        case.blocks.iter().flat_map(|&(samples, count)| std::iter::repeat_n(samples, count)).collect();
    let order = OrderParams { version: 1, lanes: case.lanes, window: case.window, shuffle: case.shuffle };
    Plan::of_view(&blocks, &sampling(&case.classes, &case.given), case.seed, order).unwrap()
}

fn deliver(case: &SamplingCase) -> Value {
    let plan = plan(case);
    let mut delivered = delivered(&plan, &case.taken);
    let at = case.taken.at.iter();
    let epoch = |&(epoch, offset): &(u64, u64)| plan.source_epoch(Position::new(epoch, offset));
    delivered["source_epochs"] = at.clone().map(epoch).collect();
    let late = |&(epoch, offset): &(u64, u64)| [31, 32, 63].map(|i| plan.substitute(epoch, offset, i).unwrap().id.0);
    delivered["late_substitutes"] = at.flat_map(late).collect();
    delivered
}

/// Returns configurations from a fixed sequence.
fn random_cases(count: usize, seed: u64) -> Vec<SamplingCase> {
    let mut below = dice(seed);
    let ends = [EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Continuous, EpochEnd::Exact, EpochEnd::Partial];
    (0..count)
        .map(|i| {
            let count = 1 + below(6) as u16;
            let mut blocks: Vec<_> = (0..=below(6)).map(|_| (below(30) as u32, below(5) as usize)).collect();
            blocks.push((u32::from(count) + below(30) as u32, 1));
            let samples: u64 = blocks.iter().map(|&(samples, count)| u64::from(samples) * count as u64).sum();
            // Each class is there, and the first ones are the largest. Some samples have none.
            let mut class = |sample: u64| match samples - 1 - sample {
                rest if rest < u64::from(count) => Some(rest as u16),
                _ if i % 3 == 2 && below(3) == 0 => None,
                _ => Some((below(u64::from(count)) * below(u64::from(count)) / u64::from(count)) as u16),
            };
            let classes: Vec<Option<u16>> = (0..samples).map(&mut class).collect();
            let most = [3, 60, 200][i % 3];
            let given: Vec<u64> = (0..count).map(|_| 1 + below(most)).collect();
            let in_epoch: u64 = given.iter().sum();
            let mut position = || (below(5), below(in_epoch));
            let (from, at) = (position(), vec![position(), position(), position()]);
            SamplingCase {
                seed: below(u64::MAX) << 33 | below(u64::MAX),
                lanes: 1 + below(in_epoch.min(20)) as u32,
                window: 1 + below(2 * in_epoch),
                shuffle: below(10) > 0,
                taken: TakenSteps {
                    global_batch: 1 + below(40) as u32,
                    epochs: 1 + below(5),
                    epoch_end: ends[i % ends.len()],
                    world: 1 + below(8) as u32,
                    from,
                    steps: 12,
                    at,
                },
                blocks,
                classes,
                given,
            }
        })
        .collect()
}

#[test]
fn the_golden_vectors_of_samplings_come_out() {
    let text = std::fs::read_to_string(format!("{FOLDER}/golden-sampling-v1.json")).unwrap();
    let cases: Vec<GoldenSampling> = serde_json::from_str(&text).unwrap();
    assert!(cases.len() > 5);
    for case in cases {
        assert_eq!(deliver(&case.config), case.delivers, "{:?}", case.config);
    }
}

#[test]
fn the_python_twin_agrees_on_random_samplings() {
    let cases = random_cases(60, 1);
    let steps = steps(&agrees("sampling.py", &cases, deliver));
    assert!(steps > 150, "only {steps} steps were compared");
}

#[test]
fn threads_that_look_up_several_epochs_of_one_plan_at_once_find_what_each_finds_alone() {
    for case in random_cases(6, 2) {
        let shared = plan(&case);
        let ids =
            |plan: &Plan, epoch| (0..9).map(|offset| plan.substitute(epoch, 0, offset).unwrap().id).collect::<Vec<_>>();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (case, shared, ids) = (&case, &shared, &ids);
                scope.spawn(move || {
                    // More epochs than are kept, and some threads begin with one that another is dealing.
                    for epoch in (0..8).map(|step| (step + thread / 2) % 8) {
                        assert_eq!(ids(shared, epoch), ids(&plan(case), epoch), "epoch {epoch} of {case:?}");
                    }
                });
            }
        });
    }
}

/// 1,600 samples in 40 blocks: half of them of class 0, a quarter of class 1, and so on; the last class has 100.
const BLOCKS: [u32; 40] = [40; 40];
fn class(sample: u64) -> u16 {
    (sample + 1).trailing_zeros().min(4) as u16
}

fn skewed(given: &[u64; 5]) -> ViewSamples {
    sampling(&(0..1600).map(|sample| Some(class(sample))).collect::<Vec<_>>(), given)
}

const ORDER: OrderParams = OrderParams { version: 1, lanes: 4, window: 60, shuffle: true };

#[test]
fn every_world_gets_the_counts_of_classes_and_each_repeat_has_draws_of_its_own() {
    let given = [200, 200, 200, 100, 350];
    let plan = Plan::of_view(&BLOCKS, &skewed(&given), 3, ORDER).unwrap();
    assert_eq!((plan.samples(), plan.lanes()), (1050, 4));
    let batch = BatchParams { global_batch: 32, epochs: 3, epoch_end: EpochEnd::Exact, end: None };
    let receipt = plan.receipt(Position::START, None, &batch);
    for world in [1, 3, 4] {
        let (mut counts, mut drawn, mut sum) =
            (BTreeMap::<(u64, u16), u64>::new(), BTreeMap::new(), spdl_order::Receipt::default());
        let mut items = Vec::new();
        for step in plan.steps(Position::START, &batch) {
            for rank in 0..world {
                plan.rank_items(&step, rank, world, &mut items);
                for item in items.iter().filter(|item| item.kind == spdl_order::ItemKind::Sample) {
                    let id = item.located.id;
                    *counts.entry((item.at.epoch, class(id.0))).or_default() += 1;
                    *drawn.entry((id, item.source_epoch)).or_insert(0) += 1;
                    assert_eq!(item.located.block, (id.0 / 40) as u32);
                    assert_eq!(plan.locate(id), item.located);
                    assert_eq!(plan.source_epoch(item.at), item.source_epoch);
                    sum.add_sample(item.at, id);
                }
            }
        }
        let expected = (0..3).flat_map(|epoch| (0..5).map(move |class| ((epoch, class), given[usize::from(class)])));
        assert!(counts.into_iter().eq(expected), "world {world}");
        assert!(drawn.values().all(|times| *times == 1), "a sample comes with the same draws twice");
        assert_eq!(sum, receipt, "world {world}");
    }
}

#[test]
fn a_block_is_read_in_one_lane_and_its_lane_is_the_same_in_each_epoch_but_near_its_ends() {
    let plan = Plan::of_view(&BLOCKS, &skewed(&[100; 5]), 3, ORDER).unwrap();
    let mut lanes = BTreeMap::<u32, BTreeMap<u64, u64>>::new();
    for epoch in 0..20 {
        for offset in 0..plan.samples() {
            *lanes.entry(plan.at(epoch, offset).block).or_default().entry(offset % 4).or_default() += 1;
        }
    }
    assert_eq!(lanes.len(), 40, "all blocks come in turns");
    let cut = lanes.values().filter(|lanes| lanes.values().max().unwrap() * 20 < lanes.values().sum::<u64>() * 19);
    assert!(cut.count() <= 6, "{lanes:?}");
    let owned = lanes.iter().filter(|(block, lanes)| {
        let owner = plan.owner(**block, 4, 4).unwrap();
        lanes.contains_key(&owner.into())
    });
    assert!(owned.count() >= 38);
}

#[test]
fn a_substitute_is_of_the_same_class_and_redacted_samples_of_a_class_are_replaced_by_their_class() {
    let plan = Plan::of_view(&BLOCKS, &skewed(&[100; 5]), 3, ORDER).unwrap();
    for offset in 0..plan.samples() {
        let bad = plan.at(2, offset).id;
        for attempt in 0..32 {
            let other = plan.substitute(2, offset, attempt).unwrap().id;
            assert!(other != bad && class(other.0) == class(bad.0), "{other} for {bad}");
        }
    }
    // A third of each class is redacted, and all of the last one.
    let out = |id: u64| id.is_multiple_of(3) || class(id) == 4;
    let ids = (0..1600).filter(|id| out(*id)).map(SampleId).collect();
    let set = Redaction { from: 250, samples: RedactedSamples::new(ids) };
    let redacting = plan.clone().redacting(&[set]).unwrap();
    for offset in 0..plan.samples() {
        let (planned, given) = (plan.at(1, offset).id.0, redacting.at(1, offset).id.0);
        assert!(!out(given), "{given} is redacted");
        assert!(class(given) == class(planned) || class(planned) == 4, "{given} for {planned}");
    }
    assert_eq!(redacting.at(0, 249), plan.at(0, 249));
    let half = Redaction { from: 0, samples: RedactedSamples::new((0..801).map(SampleId).collect()) };
    let refused = plan.redacting(&[half]).unwrap_err();
    assert_eq!(refused, PlanError::TooManyRedacted { redacted: 801, samples: 1600 });
}

#[test]
fn a_source_can_be_a_sampling() {
    let (half, given) = (BLEND_PERIOD / 2, [50, 50, 50, 50, 300]);
    let sampling = skewed(&given);
    let order = OrderParams { lanes: 2, ..ORDER };
    let balanced = BlendSource { block_samples: &BLOCKS, view: Some(&sampling), weight: half, order };
    let other = BlendSource { block_samples: &[30; 10], view: None, weight: half, order };
    let plan = Plan::of_sources(&[balanced, other], &[], 1000, 5).unwrap();
    let mut counts = [0_u64; 5];
    let mut drawn = BTreeMap::new();
    // Two epochs are twice through each of both.
    for epoch in 0..2 {
        for offset in 0..1000 {
            let id = plan.at(epoch, offset).id;
            *drawn.entry((id, plan.source_epoch(Position::new(epoch, offset)))).or_insert(0) += 1;
            if id.0 < 1600 {
                counts[usize::from(class(id.0))] += 1;
            }
        }
    }
    assert_eq!(counts, given.map(|given| 2 * given));
    assert!(drawn.values().all(|times| *times == 1));
}
