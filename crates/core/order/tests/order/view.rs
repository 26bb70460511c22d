//! The stream of a view: that of a dataset which has only the view's samples.

use std::collections::BTreeSet;

use proptest::prelude::*;
use spdl_order::{
    BatchParams, EpochEnd, ItemKind, OrderParams, Plan, PlanError,
    view::{SampleSetBuilder, ViewSamples},
};
use spdl_types::{Position, SampleId};

fn set(ids: &[u64], universe: u64) -> ViewSamples {
    let mut builder = SampleSetBuilder::default();
    ids.iter().for_each(|id| builder.keep(SampleId(*id)).unwrap());
    builder.finish(universe).unwrap().into()
}

/// A dataset's blocks, and for each sample whether it is in the view.
fn datasets() -> impl Strategy<Value = (Vec<u32>, Vec<bool>)> {
    prop::collection::vec(0_u32..40, 1..30)
        .prop_flat_map(|blocks| {
            let samples = blocks.iter().sum::<u32>() as usize;
            let keep =
                (0.0..=1.0_f64).prop_flat_map(move |kept| prop::collection::vec(prop::bool::weighted(kept), samples));
            (Just(blocks), keep)
        })
        .prop_filter("a view has samples", |(_, kept)| kept.contains(&true))
}

proptest! {
    #[test]
    fn the_stream_of_a_view_is_that_of_a_dataset_with_only_its_samples(
        (blocks, kept) in datasets(), seed: u64, lanes in 1_u32..12, window in 1_u64..300, shuffle in prop::bool::weighted(0.8),
        epoch in 0_u64..3,
    ) {
        let ids: Vec<u64> = (0..).zip(&kept).filter(|(_, kept)| **kept).map(|(id, _)| id).collect();
        let samples = ids.len() as u64;
        // For each block that is left its number, its first sample, and its samples of the view.
        let (mut first, mut left) = (0, Vec::new());
        for (number, block) in (0_u32..).zip(&blocks) {
            let end = first + u64::from(*block);
            let inside: Vec<u64> = ids.iter().copied().filter(|id| (first..end).contains(id)).collect();
            if !inside.is_empty() {
                left.push((number, first, inside));
            }
            first = end;
        }
        let smaller: Vec<u32> = left.iter().map(|(.., ids)| ids.len() as u32).collect();
        let params = OrderParams { version: 1, lanes: lanes.min(samples as u32), window, shuffle };
        let plan = Plan::of_view(&blocks, &set(&ids, kept.len() as u64), seed, params).unwrap();
        let expected = Plan::new(&smaller, seed, params).unwrap();
        prop_assert_eq!(plan.samples(), samples);
        let same = |found: spdl_order::Located, expected: spdl_order::Located| {
            let (number, first, inside) = &left[expected.block as usize];
            found.id.0 == ids[expected.id.0 as usize]
                && found.block == *number
                && found.id.0 == inside[expected.index as usize]
                && u64::from(found.index) == found.id.0 - first
        };
        for offset in 0..samples {
            let found = plan.at(epoch, offset);
            prop_assert!(same(found, expected.at(epoch, offset)));
            prop_assert_eq!(plan.locate(found.id), found);
            for attempt in 0..12 {
                let substitute = plan.substitute(epoch, offset, attempt).unwrap();
                prop_assert!(same(substitute, expected.substitute(epoch, offset, attempt).unwrap()));
            }
        }
    }

    #[test]
    fn every_world_gets_the_samples_of_the_view_once((blocks, kept) in datasets(), seed: u64) {
        let ids: Vec<u64> = (0..).zip(&kept).filter(|(_, kept)| **kept).map(|(id, _)| id).collect();
        let view = set(&ids, kept.len() as u64);
        let params = OrderParams { version: 1, lanes: 1, window: 50, shuffle: true };
        let plan = Plan::of_view(&blocks, &view, seed, params).unwrap();
        let batch = BatchParams { global_batch: 8, epochs: 1, epoch_end: EpochEnd::Exact, end: None };
        let receipt = plan.receipt(Position::START, None, &batch);
        for world in [1, 2, 4] {
            let (mut delivered, mut items, mut sum) = (Vec::new(), Vec::new(), spdl_order::Receipt::default());
            for step in plan.steps(Position::START, &batch) {
                for rank in 0..world {
                    plan.rank_items(&step, rank, world, &mut items);
                    for item in items.iter().filter(|item| item.kind == ItemKind::Sample) {
                        sum.add_sample(item.at, item.located.id);
                        delivered.push(item.located.id.0);
                    }
                }
            }
            prop_assert_eq!(delivered.len(), ids.len());
            prop_assert_eq!(delivered.into_iter().collect::<BTreeSet<_>>(), ids.iter().copied().collect::<BTreeSet<_>>());
            prop_assert_eq!(sum, receipt);
        }
    }
}

#[test]
fn a_view_of_all_samples_has_the_stream_of_its_dataset() {
    let blocks = [20, 0, 30, 50];
    let params = OrderParams { version: 1, lanes: 4, window: 8, shuffle: true };
    let plan = Plan::new(&[20, 30, 50], 7, params).unwrap();
    let view = Plan::of_view(&blocks, &set(&(0..100).collect::<Vec<_>>(), 100), 7, params).unwrap();
    let ids = |plan: &Plan| (0..100).map(|offset| plan.at(3, offset).id).collect::<Vec<_>>();
    assert_eq!(ids(&plan), ids(&view));
}

#[test]
fn an_empty_view_and_a_view_of_another_dataset_are_refused() {
    let params = OrderParams { version: 1, lanes: 1, window: 8, shuffle: true };
    let error = |view: &ViewSamples| Plan::of_view(&[10, 10], view, 1, params).unwrap_err();
    assert_eq!(error(&set(&[], 20)), PlanError::Empty);
    assert_eq!(error(&set(&[3], 21)), PlanError::OtherView { view: 21, samples: 20 });
}

#[test]
#[should_panic(expected = "sample 4 is none of the 2 of the stream")]
fn a_sample_that_the_view_lacks_is_not_located() {
    let params = OrderParams { version: 1, lanes: 1, window: 8, shuffle: true };
    let _ = Plan::of_view(&[10], &set(&[3, 5], 10), 1, params).unwrap().locate(SampleId(4));
}
