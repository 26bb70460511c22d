//! Guarantees of the stream on random datasets, order parameters, batches, worlds and resume points.

use std::collections::BTreeMap;

use proptest::prelude::*;
use spdl_order::{BatchParams, EpochEnd, Item, ItemKind, OrderParams, Plan, Step};
use spdl_types::Position;

const WORLDS: [u32; 7] = [1, 2, 3, 4, 6, 8, 12];

fn plans() -> impl Strategy<Value = Plan> {
    let blocks = prop::collection::vec(prop_oneof![1 => Just(0_u32), 9 => 1_u32..40], 1..40)
        .prop_filter("a dataset has samples", |blocks| blocks.iter().any(|samples| *samples > 0));
    blocks
        .prop_flat_map(|blocks| {
            let samples = blocks.iter().map(|samples| u64::from(*samples)).sum::<u64>();
            let lanes = 1..=samples.min(24) as u32;
            (Just(blocks), any::<u64>(), lanes, 1..=2 * samples, prop::bool::weighted(0.9))
        })
        .prop_map(|(blocks, seed, lanes, window, shuffle)| {
            Plan::new(&blocks, seed, OrderParams { version: 1, lanes, window, shuffle }).unwrap()
        })
}

fn ends() -> impl Strategy<Value = EpochEnd> {
    prop::sample::select(vec![EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Continuous, EpochEnd::Exact, EpochEnd::Partial])
}

fn batches() -> impl Strategy<Value = BatchParams> {
    (prop_oneof![Just(24_u32), Just(96), 1_u32..120], 1_u64..4, ends())
        .prop_map(|(global_batch, epochs, epoch_end)| BatchParams { global_batch, epochs, epoch_end, end: None })
}

fn rank(plan: &Plan, step: &Step, rank: u32, world: u32) -> Vec<Item> {
    let mut items = Vec::new();
    plan.rank_items(step, rank, world, &mut items);
    items
}

fn entries(plan: &Plan, step: &Step, world: u32) -> Vec<Item> {
    (0..world).flat_map(|r| rank(plan, step, r, world)).collect()
}

/// Counts how often each position is delivered as a sample.
fn delivered<'a>(items: impl Iterator<Item = &'a Item>) -> BTreeMap<Position, u32> {
    let mut counts = BTreeMap::new();
    for item in items.filter(|item| item.kind == ItemKind::Sample) {
        *counts.entry(item.at).or_default() += 1;
    }
    counts
}

/// Returns `count` positions from `from` on, each once.
fn run_of(plan: &Plan, from: Position, count: u64) -> BTreeMap<Position, u32> {
    let n = plan.samples();
    (from.offset..from.offset + count).map(|g| (Position::new(from.epoch + g / n, g % n), 1)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_epoch_is_a_permutation_of_the_dataset(plan in plans(), epoch in any::<u64>()) {
        let mut ids: Vec<_> = (0..plan.samples()).map(|offset| plan.at(epoch, offset).id.0).collect();
        ids.sort_unstable();
        prop_assert!(ids.into_iter().eq(0..plan.samples()));
    }

    #[test]
    fn the_global_batch_is_the_same_at_every_world_and_ranks_share_it_evenly(
        plan in plans(), batch in batches(), other in 1_u32..40,
    ) {
        for step in plan.steps(Position::START, &batch) {
            let alone = rank(&plan, &step, 0, 1);
            prop_assert_eq!(alone.len(), step.global_batch as usize);
            for world in WORLDS.into_iter().chain([other]) {
                prop_assert_eq!(&entries(&plan, &step, world), &alone);
                for r in 0..world {
                    let length = rank(&plan, &step, r, world).len() as u32;
                    let share = step.global_batch / world;
                    prop_assert!(length == share || length == share + 1, "rank {} of {} has {}", r, world, length);
                }
            }
            for item in alone.iter().filter(|item| item.kind != ItemKind::Invalid) {
                prop_assert_eq!(item.located, plan.at(item.at.epoch, item.at.offset));
            }
        }
    }

    #[test]
    fn a_block_is_used_in_its_lane_until_the_end_of_its_use_and_not_after(plan in plans(), epoch in any::<u64>()) {
        let lanes = u64::from(plan.lanes());
        let mut last = BTreeMap::new();
        for offset in 0..plan.samples() / lanes * lanes {
            let (lane, at) = (offset % lanes, Position::new(epoch, offset));
            last.insert((lane, plan.at(epoch, offset).block), at);
            let until = plan.in_use_until(at);
            prop_assert!(at < until && until <= Position::new(epoch, plan.samples()), "{} until {}", at, until);
        }
        for (lane, offset) in (0..plan.samples() / lanes * lanes).map(|offset| (offset % lanes, offset)) {
            let until = plan.in_use_until(Position::new(epoch, offset));
            prop_assert!(last[&(lane, plan.at(epoch, offset).block)] < until, "from {} until {}", offset, until);
        }
    }

    #[test]
    fn every_policy_delivers_exactly_the_samples_it_promises(plan in plans(), batch in batches()) {
        let (n, b) = (plan.samples(), u64::from(batch.global_batch));
        let steps: Vec<_> = plan.steps(Position::START, &batch).collect();
        let items: Vec<_> = steps.iter().flat_map(|step| entries(&plan, step, 1)).collect();
        let of_epochs = |samples| {
            (0..batch.epochs).flat_map(|epoch| run_of(&plan, Position::new(epoch, 0), samples)).collect()
        };
        let (expected, count): (BTreeMap<_, _>, u64) = match batch.epoch_end {
            EpochEnd::Drop => (of_epochs(n / b * b), batch.epochs * (n / b)),
            EpochEnd::Pad | EpochEnd::Exact | EpochEnd::Partial => (of_epochs(n), batch.epochs * n.div_ceil(b)),
            EpochEnd::Continuous => {
                let count = batch.epochs * n / b;
                (run_of(&plan, Position::START, count * b), count)
            }
        };
        prop_assert_eq!(steps.len() as u64, count);
        prop_assert_eq!(delivered(items.iter()), expected);
        prop_assert_eq!(plan.check(&batch).is_ok(), count > 0);
        let fill = match batch.epoch_end {
            EpochEnd::Pad => ItemKind::Padding,
            EpochEnd::Exact => ItemKind::Invalid,
            EpochEnd::Drop | EpochEnd::Continuous | EpochEnd::Partial => ItemKind::Sample,
        };
        prop_assert!(items.iter().all(|item| item.kind == ItemKind::Sample || item.kind == fill));
    }

    #[test]
    fn a_run_resumed_after_any_step_goes_on_as_if_it_had_not_stopped(
        plan in plans(), batch in batches(), stop in any::<prop::sample::Index>(), worlds in (1_u32..13, 1_u32..13),
    ) {
        let steps: Vec<_> = plan.steps(Position::START, &batch).collect();
        prop_assume!(!steps.is_empty());
        let stop = stop.index(steps.len());
        let resumed: Vec<_> = plan.steps(steps[stop].next, &batch).collect();
        prop_assert_eq!(&resumed[..], &steps[stop + 1..]);
        for (before, after) in steps[stop + 1..].iter().zip(&resumed) {
            prop_assert_eq!(entries(&plan, before, worlds.0), entries(&plan, after, worlds.1));
        }
        let mut sum = plan.receipt(Position::START, Some(stop as u64 + 1), &batch);
        sum += plan.receipt(steps[stop].next, None, &batch);
        prop_assert_eq!(sum, plan.receipt(Position::START, None, &batch));
    }

    #[test]
    fn a_run_resumed_with_another_batch_size_repeats_nothing_and_loses_nothing(
        plan in plans(), sizes in (1_u32..100, 1_u32..100), stop in any::<prop::sample::Index>(), end in ends(),
    ) {
        let batch = |global_batch, epoch_end| BatchParams { global_batch, epochs: 2, epoch_end, end: None };
        let first = batch(sizes.0, end);
        let steps: Vec<_> = plan.steps(Position::START, &first).collect();
        prop_assume!(!steps.is_empty());
        let stop = stop.index(steps.len());
        let second = batch(sizes.1, EpochEnd::Exact);
        let mut items: Vec<_> = steps[..=stop].iter().flat_map(|step| entries(&plan, step, 3)).collect();
        items.extend(plan.steps(steps[stop].next, &second).flat_map(|step| entries(&plan, &step, 5)));
        let mut expected = run_of(&plan, Position::START, 2 * plan.samples());
        if end == EpochEnd::Drop && steps[stop].from.epoch == 1 {
            let tail = plan.samples() % u64::from(sizes.0);
            expected.retain(|at, _| at.epoch == 1 || at.offset < plan.samples() - tail);
        }
        prop_assert_eq!(delivered(items.iter()), expected);
    }

    #[test]
    fn a_substitute_is_a_sample_of_the_dataset(plan in plans(), epoch in 0_u64..5, attempt in 0_u32..64) {
        for offset in 0..plan.samples() {
            let found = plan.substitute(epoch, offset, attempt).unwrap();
            prop_assert_eq!(plan.locate(found.id), found);
        }
    }
}
