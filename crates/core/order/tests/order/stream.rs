//! Guarantees of the stream on small datasets written by hand: every sample once, ends of epochs, slices of ranks.

use spdl_order::{BatchParams, EpochEnd, Item, ItemKind, MAX_GLOBAL_BATCH, OrderParams, Plan, PlanError, Receipt};
use spdl_types::Position;

const WORLDS: [u32; 7] = [1, 2, 3, 4, 6, 8, 12];

fn plan(blocks: &[u32], lanes: u32, window: u64) -> Plan {
    Plan::new(blocks, 17, OrderParams { version: 1, lanes, window, shuffle: true }).unwrap()
}

fn batch(global_batch: u32, epochs: u64, epoch_end: EpochEnd) -> BatchParams {
    BatchParams { global_batch, epochs, epoch_end, end: None }
}

/// Returns all entries of a run, step by step, in the order of ranks.
fn run(plan: &Plan, from: Position, batch: &BatchParams, world: u32) -> Vec<Vec<Item>> {
    let mut items = Vec::new();
    plan.steps(from, batch)
        .map(|step| {
            (0..world).flat_map(|rank| (plan.rank_items(&step, rank, world, &mut items), items.clone()).1).collect()
        })
        .collect()
}

fn ids(step: &[Item]) -> Vec<u64> {
    step.iter().map(|item| item.located.id.0).collect()
}

#[test]
fn an_epoch_visits_every_sample_once_and_no_two_epochs_are_alike() {
    let plan = plan(&[7, 0, 13, 1, 22, 5, 9, 0, 40, 3], 7, 6);
    let epochs: Vec<Vec<u64>> =
        (0..3).map(|epoch| (0..100).map(|offset| plan.at(epoch, offset).id.0).collect()).collect();
    for epoch in &epochs {
        let mut sorted = epoch.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }
    assert_ne!(epochs[0], epochs[1]);
    assert_ne!(epochs[1], epochs[2]);
}

#[test]
fn a_located_sample_names_its_block_and_its_place_in_it() {
    let blocks = [7, 0, 13, 1, 22, 5, 9, 0, 40, 3];
    let plan = plan(&blocks, 4, 10);
    for offset in 0..100 {
        let located = plan.at(0, offset);
        let before: u32 = blocks[..located.block as usize].iter().sum();
        assert!(located.index < blocks[located.block as usize]);
        assert_eq!(located.id.0, u64::from(before + located.index));
        assert_eq!(plan.locate(located.id), located);
    }
}

#[test]
fn without_shuffle_offset_g_is_sample_g_and_ranks_take_contiguous_slices() {
    let order = OrderParams { version: 1, lanes: 8, window: 5, shuffle: false };
    let plan = Plan::new(&[10, 0, 20, 5], 3, order).unwrap();
    assert!((0..35).all(|offset| plan.at(4, offset).id.0 == offset));
    let steps = run(&plan, Position::START, &batch(8, 1, EpochEnd::Exact), 4);
    assert_eq!(ids(&steps[1]), (8..16).collect::<Vec<_>>());
}

#[test]
fn every_world_sees_the_same_global_batch_at_every_step() {
    let plan = plan(&[31; 40], 12, 100);
    for size in [24, 96] {
        for end in [EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Continuous, EpochEnd::Exact, EpochEnd::Partial] {
            let batch = batch(size, 2, end);
            let alone = run(&plan, Position::START, &batch, 1);
            for world in WORLDS {
                assert_eq!(run(&plan, Position::START, &batch, world), alone, "B {size}, W {world}, {end:?}");
            }
        }
    }
}

#[test]
fn drop_leaves_out_the_samples_that_do_not_fill_a_batch() {
    let plan = plan(&[10; 10], 4, 10);
    let steps: Vec<_> = plan.steps(Position::START, &batch(32, 2, EpochEnd::Drop)).collect();
    let from: Vec<_> = steps.iter().map(|step| (step.from.epoch, step.from.offset)).collect();
    assert_eq!(from, [(0, 0), (0, 32), (0, 64), (1, 0), (1, 32), (1, 64)]);
    assert_eq!(steps[2].next, Position::new(0, 96), "a run that resumes with B = 4 still gets the last 4");
    assert_eq!(plan.step(steps[5].next, &batch(32, 2, EpochEnd::Drop)), None);
    assert_eq!(plan.step(steps[2].next, &batch(4, 2, EpochEnd::Drop)).unwrap().next, Position::new(1, 0));
}

#[test]
fn pad_wraps_to_the_first_samples_of_the_epoch_and_marks_them() {
    let plan = plan(&[10; 10], 4, 10);
    let steps = run(&plan, Position::START, &batch(32, 1, EpochEnd::Pad), 1);
    assert_eq!(steps.len(), 4);
    let padding: Vec<_> = steps[3].iter().filter(|item| item.kind == ItemKind::Padding).collect();
    assert_eq!(padding.len(), 28);
    assert!(padding.iter().all(|item| item.at.offset < 28 && item.located == plan.at(0, item.at.offset)));
    assert!(steps[..3].iter().flatten().all(|item| item.kind == ItemKind::Sample));
}

#[test]
fn padding_wraps_as_often_as_a_batch_needs() {
    let plan = plan(&[3], 1, 3);
    let steps = run(&plan, Position::START, &batch(8, 1, EpochEnd::Pad), 2);
    let offsets: Vec<_> = steps[0].iter().map(|item| item.at.offset).collect();
    assert_eq!(offsets, [0, 1, 2, 0, 1, 2, 0, 1]);
}

#[test]
fn continuous_crosses_epochs_without_a_seam_and_drops_only_the_end_of_the_run() {
    let plan = plan(&[10; 10], 4, 10);
    let steps = run(&plan, Position::START, &batch(32, 2, EpochEnd::Continuous), 1);
    assert_eq!(steps.len(), 6);
    let mut positions: Vec<_> = steps.iter().flatten().map(|item| item.at).collect();
    positions.sort_unstable();
    let expected: Vec<_> = (0..192).map(|counted| Position::new(counted / 100, counted % 100)).collect();
    assert_eq!(positions, expected);
    assert!(steps.iter().flatten().all(|item| item.located == plan.at(item.at.epoch, item.at.offset)));
}

#[test]
fn continuous_batches_may_be_larger_than_the_dataset() {
    let plan = plan(&[3, 4], 2, 3);
    let batch = batch(16, 5, EpochEnd::Continuous);
    let steps: Vec<_> = plan.steps(Position::START, &batch).collect();
    assert_eq!(steps.iter().map(|step| step.next).collect::<Vec<_>>(), [Position::new(2, 2), Position::new(4, 4)]);
}

#[test]
fn exact_masks_what_is_past_the_end_and_spreads_it_over_the_ranks() {
    let plan = plan(&[10; 10], 4, 10);
    let steps = run(&plan, Position::START, &batch(32, 1, EpochEnd::Exact), 4);
    assert_eq!(steps.len(), 4);
    let valid = |rank: usize| steps[3][rank * 8..][..8].iter().filter(|item| item.kind == ItemKind::Sample).count();
    assert_eq!([valid(0), valid(1), valid(2), valid(3)], [1, 1, 1, 1]);
    let mut ids: Vec<_> =
        steps.iter().flatten().filter(|item| item.kind == ItemKind::Sample).map(|item| item.located.id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
}

#[test]
fn partial_deals_the_samples_of_a_short_last_batch_evenly() {
    let plan = plan(&[10; 10], 4, 10);
    let all: Vec<_> = plan.steps(Position::START, &batch(32, 2, EpochEnd::Partial)).collect();
    assert_eq!(all.iter().map(|step| step.global_batch).collect::<Vec<_>>(), [32, 32, 32, 4, 32, 32, 32, 4]);
    assert_eq!(all[3].next, Position::new(1, 0));
    let mut items = Vec::new();
    let mut shares = |world| {
        let share = |rank| (plan.rank_items(&all[3], rank, world, &mut items), items.len()).1;
        (0..world).map(share).collect::<Vec<_>>()
    };
    assert_eq!((shares(1), shares(3), shares(4)), (vec![4], vec![1, 1, 2], vec![1; 4]));
    assert_eq!(shares(6), [0, 1, 1, 0, 1, 1]);
    let steps = run(&plan, Position::START, &batch(32, 1, EpochEnd::Partial), 6);
    assert!(steps.iter().flatten().all(|item| item.kind == ItemKind::Sample));
    let mut ids: Vec<_> = steps.iter().flatten().map(|item| item.located.id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
}

#[test]
fn the_receipt_of_the_plan_is_the_sum_over_what_the_ranks_get() {
    let plan = plan(&[9; 11], 6, 10);
    for end in [EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Continuous, EpochEnd::Exact, EpochEnd::Partial] {
        let batch = batch(24, 3, end);
        let mut sum = Receipt::default();
        for item in run(&plan, Position::new(0, 24), &batch, 3).iter().flatten() {
            if item.kind == ItemKind::Sample {
                sum.add_sample(item.at, item.located.id);
            }
        }
        assert_eq!(plan.receipt(Position::new(0, 24), None, &batch), sum, "{end:?}");
        assert_ne!(plan.receipt(Position::new(0, 24), Some(2), &batch), sum, "{end:?}");
    }
}

#[test]
fn a_substitute_is_another_sample_and_comes_from_the_same_block_at_first() {
    let plan = plan(&[9, 1, 30, 60], 4, 10);
    for offset in 0..100 {
        let bad = plan.at(1, offset);
        let near = plan.substitute(1, offset, 0).unwrap();
        assert!(near.id != bad.id);
        assert!(near.block == bad.block || bad.block == 1, "only a block of one sample has no other");
        let far: Vec<_> = (8..40).map(|attempt| plan.substitute(1, offset, attempt).unwrap().block).collect();
        assert!(far.iter().any(|block| *block != bad.block));
        assert_eq!(Some(near), plan.substitute(1, offset, 0));
    }
}

#[test]
fn what_makes_no_stream_is_refused_with_a_reason() {
    let order = OrderParams { version: 1, lanes: 2, window: 5, shuffle: true };
    let error = |blocks: &[u32], order| Plan::new(blocks, 1, order).unwrap_err();
    assert_eq!(error(&[0, 0], order), PlanError::Empty);
    assert_eq!(error(&[], order), PlanError::Empty);
    assert_eq!(error(&[5], OrderParams { version: 2, ..order }), PlanError::Version { version: 2 });
    assert_eq!(error(&[5], OrderParams { lanes: 0, ..order }), PlanError::Zero { parameter: "lanes" });
    assert_eq!(error(&[5], OrderParams { window: 0, ..order }), PlanError::Zero { parameter: "window" });
    assert!(error(&[5], OrderParams { lanes: 6, ..order }).to_string().contains("at most 5"));
}

#[test]
fn a_batch_that_never_fills_is_an_error_and_no_step() {
    let plan = plan(&[10], 2, 10);
    for (params, fits) in [
        (batch(11, 9, EpochEnd::Drop), false),
        (batch(10, 1, EpochEnd::Drop), true),
        (batch(11, 1, EpochEnd::Continuous), false),
        (batch(11, 2, EpochEnd::Continuous), true),
        (batch(11, 1, EpochEnd::Pad), true),
        (batch(11, 1, EpochEnd::Exact), true),
        (batch(11, 1, EpochEnd::Partial), true),
        (batch(0, 1, EpochEnd::Exact), false),
    ] {
        assert_eq!(plan.check(&params).is_ok(), fits, "{params:?}");
    }
    assert_eq!(plan.step(Position::START, &batch(11, 9, EpochEnd::Drop)), None);
    assert_eq!(plan.step(Position::new(u64::MAX, u64::MAX), &batch(5, 9, EpochEnd::Drop)), None);
}

#[test]
fn a_start_at_the_end_of_an_epoch_is_the_start_of_the_next_under_every_policy() {
    let plan = plan(&[7, 13, 4], 2, 5);
    let samples = plan.samples();
    for end in [EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Continuous, EpochEnd::Exact, EpochEnd::Partial] {
        for global_batch in [1, 5, 24, 25] {
            let batch = batch(global_batch, 3, end);
            for epoch in 0..3 {
                let (at_end, next) = (Position::new(epoch, samples), Position::new(epoch + 1, 0));
                let of = |from| plan.step(from, &batch);
                assert_eq!(of(at_end), of(next), "{end:?}, batches of {global_batch}, epoch {epoch}");
                assert!(
                    of(next).is_none_or(|step| step.from.offset < samples),
                    "no step begins behind the last sample"
                );
            }
        }
    }
}

#[test]
fn a_plan_refuses_batches_that_can_never_be_made_and_takes_no_epochs_for_what_they_are() {
    let plan = plan(&[7], 1, 5);
    assert_eq!(plan.check(&batch(0, 1, EpochEnd::Drop)), Err(PlanError::NoBatch));
    let too_large = Err(PlanError::BatchTooLarge { global_batch: MAX_GLOBAL_BATCH + 1 });
    assert_eq!(plan.check(&batch(MAX_GLOBAL_BATCH + 1, 1, EpochEnd::Exact)), too_large);
    assert_eq!(plan.check(&batch(MAX_GLOBAL_BATCH, 1, EpochEnd::Exact)), Ok(()));
    let error = plan.check(&batch(64, 3, EpochEnd::Drop)).unwrap_err();
    assert_eq!(error, PlanError::BatchExceedsDataset { global_batch: 64, samples: 7, epochs: 3 });
    assert_eq!(plan.check(&batch(64, 0, EpochEnd::Drop)), Ok(()), "there is nothing to deliver");
    assert_eq!(plan.check(&batch(7, 1, EpochEnd::Drop)), Ok(()));
}
