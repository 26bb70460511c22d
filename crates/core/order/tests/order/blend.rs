//! The stream of several sources: its golden vectors in `tests/order/golden-blend-v1.json` must come out forever, the second
//! implementation in Python must agree, and each source keeps the properties that it has alone.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test reads files")]

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use spdl_order::{
    BLEND_PERIOD, BatchParams, BlendSource, BlendStage, EpochEnd, OrderParams, Plan, PlanError, SourceLimit, WhenDone,
    blend_weights, stages_with_limits,
    view::{SampleSetBuilder, ViewSamples},
};
use spdl_types::{Position, SampleId};

use crate::{
    delivery::{TakenSteps, delivered_up_to, dice, steps},
    twin::{FOLDER, agrees},
};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SourceCase {
    /// Runs of (samples, count).
    blocks: Vec<(u32, usize)>,
    weight: u32,
    lanes: u32,
    window: u64,
    shuffle: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct BlendCase {
    sources: Vec<SourceCase>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stages: Vec<BlendStage>,
    /// What each source may give; none if no source has a limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    limits: Vec<Option<SourceLimit>>,
    seed: u64,
    samples: u64,
    #[serde(flatten)]
    taken: TakenSteps,
}

impl BlendCase {
    /// Returns the stages with those that follow from limits.
    fn all_stages(&self) -> Vec<BlendStage> {
        if self.limits.is_empty() {
            return self.stages.clone();
        }
        let weights: Vec<u32> = self.sources.iter().map(|source| source.weight).collect();
        stages_with_limits(&weights, &self.limits, &self.stages).unwrap()
    }
}

#[derive(Deserialize)]
struct GoldenBlend {
    config: BlendCase,
    delivers: Value,
}

fn plan(config: &BlendCase, stages: &[BlendStage]) -> Plan {
    let blocks: Vec<Vec<u32>> = config
        .sources
        .iter()
        .map(|source| source.blocks.iter().flat_map(|&(samples, count)| std::iter::repeat_n(samples, count)).collect())
        .collect();
    let sources: Vec<_> = config
        .sources
        .iter()
        .zip(&blocks)
        .map(|(source, block_samples)| BlendSource {
            block_samples,
            view: None,
            weight: source.weight,
            order: OrderParams { version: 1, lanes: source.lanes, window: source.window, shuffle: source.shuffle },
        })
        .collect();
    Plan::of_sources(&sources, stages, config.samples, config.seed).unwrap()
}

fn deliver(config: &BlendCase) -> Value {
    let stages = config.all_stages();
    let plan = plan(config, &stages);
    let end = stages.last().filter(|stage| stage.is_end()).map(|stage| stage.from);
    let mut delivered = delivered_up_to(&plan, &config.taken, end);
    if !config.limits.is_empty() {
        delivered["stages"] = serde_json::to_value(&stages).unwrap();
    }
    let epoch = |&(epoch, offset): &(u64, u64)| plan.source_epoch(Position::new(epoch, offset));
    delivered["source_epochs"] = config.taken.at.iter().map(epoch).collect();
    delivered
}

/// Returns configurations from a fixed sequence.
fn random_cases(count: usize, seed: u64) -> Vec<BlendCase> {
    let mut below = dice(seed);
    let ends = [EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Continuous, EpochEnd::Exact, EpochEnd::Partial];
    (0..count)
        .map(|i| {
            let shares: Vec<f64> = (0..1 + [0, 1, 1, 2, 6][i % 5]).map(|_| 1.0 + below(1000) as f64).collect();
            let sources: Vec<SourceCase> = blend_weights(&shares)
                .into_iter()
                .map(|weight| {
                    let mut blocks: Vec<_> = (0..=below(5)).map(|_| (below(40) as u32, below(5) as usize)).collect();
                    blocks.push((1 + below(30) as u32, 1));
                    let samples: u64 = blocks.iter().map(|&(samples, count)| u64::from(samples) * count as u64).sum();
                    let (lanes, window) = (1 + below(samples.min(20)) as u32, 1 + below(2 * samples));
                    SourceCase { blocks, weight, lanes, window, shuffle: i % 7 != 6 }
                })
                .collect();
            let samples = if i % 4 == 3 { u64::from(BLEND_PERIOD) * 2 + below(1000) } else { 1 + below(500) };
            let mut stages = Vec::new();
            let mut from = 0;
            for _ in 0..[0, 1, 4][i % 3] {
                from += 1 + below(samples.min(700));
                // Some sources give nothing in a stage, but one.
                let mut shares: Vec<f64> = sources.iter().map(|_| below(4) as f64).collect();
                shares[below(sources.len() as u64) as usize] = 2.5;
                stages.push(BlendStage { from, weights: blend_weights(&shares) });
            }
            let mut position = || (below(3), below(samples));
            let (from, at) = (position(), vec![position(), position(), position()]);
            BlendCase {
                sources,
                stages,
                limits: Vec::new(),
                samples,
                seed: below(u64::MAX) << 33 | below(u64::MAX),
                taken: TakenSteps {
                    global_batch: 1 + below(80) as u32,
                    epochs: 1 + below(4),
                    epoch_end: ends[i % ends.len()],
                    world: 1 + below(12) as u32,
                    from,
                    steps: 12,
                    at,
                },
            }
        })
        .collect()
}

/// Returns configurations of sources that are used up, from a fixed sequence.
fn limited_cases(count: usize, seed: u64) -> Vec<BlendCase> {
    let mut below = dice(seed);
    let whens = [WhenDone::Reweight, WhenDone::Stop, WhenDone::Reweight, WhenDone::Repeat];
    let cases = random_cases(count, seed + 1).into_iter().enumerate();
    cases
        .map(|(i, case)| {
            // Few weights that differ, so that the second implementation makes few tables.
            let shares: Vec<f64> = case.sources.iter().map(|_| [1.0, 2.0, 5.0][below(3) as usize]).collect();
            let weights = blend_weights(&shares);
            let limits = weights.iter().map(|_| {
                let when_done = whens[if i % 3 == 0 { 0 } else { below(4) as usize }];
                (below(5) > 0).then(|| SourceLimit { samples: 1 + below(300), when_done })
            });
            let limits = limits.collect();
            let sources = case.sources.into_iter().zip(weights);
            let sources = sources.map(|(source, weight)| SourceCase { weight, ..source }).collect();
            BlendCase { sources, limits, ..case }
        })
        .collect()
}

#[test]
fn the_golden_vectors_of_blends_come_out() {
    let text = std::fs::read_to_string(format!("{FOLDER}/golden-blend-v1.json")).unwrap();
    let cases: Vec<GoldenBlend> = serde_json::from_str(&text).unwrap();
    for end in [EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Continuous, EpochEnd::Exact, EpochEnd::Partial] {
        assert!(cases.iter().any(|case| case.config.taken.epoch_end == end), "{end:?} is not covered");
    }
    assert!(cases.iter().any(|case| case.config.stages.len() > 1), "stages are not covered");
    for when_done in [WhenDone::Stop, WhenDone::Reweight, WhenDone::Repeat] {
        let mut limits = cases.iter().flat_map(|case| &case.config.limits).flatten();
        assert!(limits.any(|limit| limit.when_done == when_done), "{when_done:?} is not covered");
    }
    for case in cases {
        assert_eq!(deliver(&case.config), case.delivers, "{:?}", case.config);
    }
}

#[test]
fn the_python_twin_agrees_on_random_blends() {
    let cases = random_cases(40, 1);
    let steps = steps(&agrees("blend.py", &cases, deliver));
    assert!(steps > 100, "only {steps} steps were compared");
}

#[test]
fn the_python_twin_agrees_on_sources_that_are_used_up() {
    let cases = limited_cases(8, 5);
    agrees("blend.py", &cases, deliver);
    let ends = cases.iter().filter(|case| case.all_stages().last().is_some_and(BlendStage::is_end)).count();
    let stages: usize = cases.iter().map(|case| case.all_stages().len()).sum();
    assert!(ends > 0 && stages > 8, "{ends} ends, {stages} stages");
}

const BLOCKS: [&[u32]; 3] = [&[40; 60], &[25; 8], &[7, 0, 13, 30]];

fn source(number: usize, weight: u32, lanes: u32) -> BlendSource<'static> {
    let order = OrderParams { version: 1, lanes, window: 30, shuffle: true };
    BlendSource { block_samples: BLOCKS[number], view: None, weight, order }
}

/// Returns a plan of three sources of 2400, 200 and 50 samples, which give 5/8, 2/8 and 1/8 of an epoch of 1600.
fn three() -> Plan {
    let weights = [5, 2, 1].map(|share| BLEND_PERIOD / 8 * share);
    let sources = [source(0, weights[0], 8), source(1, weights[1], 4), source(2, weights[2], 3)];
    Plan::of_sources(&sources, &[], 1600, 11).unwrap()
}

/// Returns the number of the source that has a sample of `three`.
fn source_of(id: SampleId) -> usize {
    [2400, 2600].iter().filter(|first| id.0 >= **first).count()
}

#[test]
fn each_source_goes_through_all_of_its_samples_before_it_begins_again() {
    let plan = three();
    let mut seen: BTreeMap<(usize, u64), BTreeSet<SampleId>> = BTreeMap::new();
    let mut given = [0_u64; 3];
    for epoch in 0..4 {
        for offset in 0..plan.samples() {
            let located = plan.at(epoch, offset);
            let source = source_of(located.id);
            let epoch_of_source = plan.source_epoch(Position::new(epoch, offset));
            assert_eq!(epoch_of_source, given[source] / [2400, 200, 50][source]);
            given[source] += 1;
            assert!(seen.entry((source, epoch_of_source)).or_default().insert(located.id), "{located:?} came before");
            assert_eq!(plan.locate(located.id), located);
        }
    }
    assert_eq!(given, [4000, 1600, 800]);
    assert_eq!(seen[&(0, 0)].len(), 2400);
    for (source, samples) in [(1, 200), (2, 50)] {
        let whole = seen.iter().filter(|((of, _), ids)| *of == source && ids.len() == samples).count();
        assert_eq!(whole, if source == 1 { 8 } else { 16 });
    }
}

#[test]
fn a_stage_changes_nothing_before_it_and_sources_go_on_where_they_were() {
    let weights = [5, 2, 1].map(|share| BLEND_PERIOD / 8 * share);
    let sources = [source(0, weights[0], 8), source(1, weights[1], 4), source(2, weights[2], 3)];
    let stage = |from, weights: [u32; 3]| BlendStage { from, weights: weights.map(|of| BLEND_PERIOD / 8 * of).into() };
    let stages = [stage(1003, [1, 1, 6]), stage(1700, [0, 8, 0]), stage(2500, [4, 0, 4])];
    let (before, staged) = (three(), Plan::of_sources(&sources, &stages, 1600, 11).unwrap());
    let mut given = [0_u64; 3];
    let mut of_stage = [[0_u64; 3]; 4];
    for sample in 0..3200 {
        let at = Position::new(sample / 1600, sample % 1600);
        let located = staged.at(at.epoch, at.offset);
        if sample < 1003 {
            assert_eq!(located, before.at(at.epoch, at.offset));
        }
        // The source's own stream is the same in both; it comes at other positions.
        let source = source_of(located.id);
        assert_eq!(staged.source_epoch(at), given[source] / [2400, 200, 50][source]);
        given[source] += 1;
        of_stage[stages.iter().filter(|stage| stage.from <= sample).count()][source] += 1;
    }
    assert_eq!(of_stage, [[627, 251, 125], [87, 87, 523], [0, 800, 0], [350, 0, 350]]);
}

#[test]
fn the_last_batch_of_an_epoch_is_the_same_whatever_the_stages_of_the_next_epoch_are() {
    let weights = [5, 2, 1].map(|share| BLEND_PERIOD / 8 * share);
    let sources = [source(0, weights[0], 8), source(1, weights[1], 4), source(2, weights[2], 3)];
    let weights = [1, 1, 6].map(|of| BLEND_PERIOD / 8 * of);
    let before = three();
    for end in [EpochEnd::Pad, EpochEnd::Exact, EpochEnd::Partial] {
        // The last batch of an epoch has 30 samples, and room for 127 more.
        let batches = BatchParams { global_batch: 157, epochs: 2, epoch_end: end, end: None };
        let last = before.steps(Position::START, &batches).nth(10).unwrap();
        assert_eq!(last.next, Position::new(1, 0));
        for from in 1600..1730 {
            let stages = [BlendStage { from, weights: weights.into() }];
            let changed = Plan::of_sources(&sources, &stages, 1600, 11).unwrap();
            assert_eq!(changed.step_items(&last), before.step_items(&last), "{end:?}, a stage from {from}");
        }
    }
}

#[test]
fn a_block_of_a_source_that_ends_is_in_use_no_longer_than_the_source() {
    let half = BLEND_PERIOD / 2;
    let stages = [BlendStage { from: 90, weights: vec![BLEND_PERIOD, 0] }];
    let plan = Plan::of_sources(&[source(0, half, 8), source(1, half, 4)], &stages, 1600, 11).unwrap();
    for offset in 0..90 {
        let until = plan.in_use_until(Position::new(0, offset));
        assert!(until > Position::new(0, offset), "{offset}: {until}");
        assert!(source_of(plan.at(0, offset).id) == 0 || until <= Position::new(0, 90), "{offset}: {until}");
    }
}

#[test]
fn equal_datasets_come_in_different_orders() {
    let half = BLEND_PERIOD / 2;
    let plan = Plan::of_sources(&[source(0, half, 8), source(0, half, 8)], &[], 4800, 11).unwrap();
    let mut orders = [Vec::new(), Vec::new()];
    for offset in 0..plan.samples() {
        let id = plan.at(0, offset).id.0;
        orders[(id / 2400) as usize].push(id % 2400);
    }
    assert_ne!(orders[0], orders[1]);
    for mut order in orders {
        order.sort_unstable();
        assert!(order.into_iter().eq(0..2400));
    }
}

#[test]
fn a_substitute_is_another_sample_of_the_bad_ones_source() {
    let plan = three();
    for offset in (0..plan.samples()).step_by(7) {
        let bad = plan.at(1, offset);
        for attempt in [0, 3, 8, 20] {
            let substitute = plan.substitute(1, offset, attempt).unwrap();
            assert_eq!(source_of(substitute.id), source_of(bad.id));
            assert_eq!(plan.locate(substitute.id), substitute);
            assert!(attempt >= 8 || (substitute.id != bad.id && substitute.block == bad.block));
        }
    }
}

#[test]
fn a_block_is_not_used_past_the_position_that_says_so() {
    let plan = three();
    let mut last: BTreeMap<(u32, u64), Position> = BTreeMap::new();
    let mut until: BTreeMap<(u32, u64), Position> = BTreeMap::new();
    for epoch in 0..2 {
        for offset in 0..plan.samples() {
            let at = Position::new(epoch, offset);
            let key = (plan.at(epoch, offset).block, plan.source_epoch(at));
            last.insert(key, at);
            let end = until.entry(key).or_default();
            *end = (*end).max(plan.in_use_until(at));
        }
    }
    let is_early = |key: &(u32, u64)| until[key] <= Position::new(0, 1500);
    assert!(last.iter().all(|(key, at)| at < &until[key]));
    assert!(last.keys().filter(|key| is_early(key)).count() > 20, "most blocks are given back within the epoch");
}

#[test]
fn ranks_read_blocks_of_their_own_and_the_owner_of_a_block_reads_it() {
    let weights = blend_weights(&[0.7, 0.3]);
    let order = OrderParams { version: 1, lanes: 32, window: 60, shuffle: true };
    let block_samples = &[30_u32; 512][..];
    let sources = [0, 1].map(|number: usize| BlendSource { block_samples, view: None, weight: weights[number], order });
    let plan = Plan::of_sources(&sources, &[], 20_000, 3).unwrap();
    let batches = BatchParams { global_batch: 256, epochs: 1, epoch_end: EpochEnd::Drop, end: None };
    for world in [2, 4, 8] {
        let mut readers: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut items = Vec::new();
        for step in plan.steps(Position::START, &batches) {
            for rank in 0..world {
                plan.rank_items(&step, rank, world, &mut items);
                items.iter().for_each(|item| _ = readers.entry(item.located.block).or_default().insert(rank));
            }
        }
        let reads: usize = readers.values().map(BTreeSet::len).sum();
        // A rank's share ends within a lane, of which there are 32: so few blocks are read by two ranks.
        let most = readers.len() * (32 + 2 * (world as usize - 1)) / 32;
        assert!(reads <= most, "world {world}: {reads} reads of {} blocks", readers.len());
        let owned = readers.iter().filter(|(block, ranks)| ranks.contains(&plan.owner(**block, 256, world).unwrap()));
        assert!(owned.count() * 50 >= readers.len() * 49, "world {world}");
        assert_eq!(plan.owner(1024, 256, world), None);
    }
}

#[test]
fn a_view_of_a_source_has_the_ids_of_its_dataset() {
    let mut set = SampleSetBuilder::default();
    (100..150).for_each(|id| set.keep(SampleId(id)).unwrap());
    let set = ViewSamples::from(set.finish(200).unwrap());
    let half = BLEND_PERIOD / 2;
    let view = BlendSource { view: Some(&set), ..source(1, half, 4) };
    let plan = Plan::of_sources(&[view, source(2, half, 3)], &[], 100, 5).unwrap();
    let ids: BTreeSet<u64> = (0..100).map(|offset| plan.at(0, offset).id.0).collect();
    assert!(ids.into_iter().eq((100..150).chain(200..250)));
}

#[test]
fn sources_that_make_no_stream_are_refused() {
    let whole = source(0, BLEND_PERIOD, 8);
    assert_eq!(Plan::of_sources(&[whole], &[], 0, 1).unwrap_err(), PlanError::Empty);
    let error = Plan::of_sources(&[whole, source(1, 5, 1)], &[], 10, 1).unwrap_err();
    assert_eq!(error, PlanError::Weights { weights: vec![BLEND_PERIOD, 5] });
    let half = BLEND_PERIOD / 2;
    let error = Plan::of_sources(&[source(0, half, 8), source(2, half, 51)], &[], 10, 1).unwrap_err();
    let expected = "source number 2: `lanes` is 51; a dataset of 50 samples has at most 50";
    assert_eq!(error.to_string(), expected);
}
