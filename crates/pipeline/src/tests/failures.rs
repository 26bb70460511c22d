//! Tests of failures and panics of operations, and of what happens to their items.

use std::{
    collections::HashSet,
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use super::{LONG, no_threes, numbers};
use crate::{Op, OutputOrder, Pipeline};

#[test]
fn failures_are_left_out_while_a_condition_holds() {
    let left = AtomicUsize::new(2);
    let condition = move || left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
    let op = Op::cpu(no_threes).skip_failures_while(condition);
    let pipeline = Pipeline::builder().source(1..20).pipe("threes", op, 1).sink(1).build(1).unwrap();
    let found: Vec<_> = pipeline.iter(LONG).map(|item| item.map_err(|error| error.to_string())).collect();
    let mut expected: Vec<_> = [1, 2, 4, 5, 7, 8].map(Ok).into();
    expected.push(Err("stage `threes` failed: error at 9".to_owned()));
    assert_eq!(found, expected);
}

#[test]
fn the_first_failure_stops_the_pipeline_behind_all_that_came_before_it() {
    for first in [1, 4] {
        let op = Op::cpu(no_threes);
        let pipeline = Pipeline::builder().source(first..).pipe("threes", op, 4).sink(1).build(3).unwrap();
        let mut items = pipeline.iter(LONG);
        assert_eq!(items.next().unwrap().unwrap(), first);
        assert_eq!(items.next().unwrap().unwrap(), first + 1);
        let error = items.next().unwrap().unwrap_err();
        let expected = ["stage `threes` failed: error at 3", "stage `threes` panicked: panic at 6"][first / 4];
        assert_eq!(error.to_string(), expected);
        assert!(!error.is_retryable());
        assert!(items.next().is_none());
    }
}

#[test]
fn failures_can_be_skipped_and_are_counted() {
    for order in [OutputOrder::Input, OutputOrder::Completion] {
        let op = Op::cpu(no_threes).skip_failures().order(order);
        let pipeline = Pipeline::builder().source(0..60).pipe("threes", op, 4).sink(1).build(3).unwrap();
        let left: HashSet<usize> = numbers(&pipeline).into_iter().collect();
        assert_eq!(left, (0..60).filter(|item| item % 3 != 0).collect());
        let stats = &pipeline.stats()[1];
        assert_eq!((stats.items, stats.failures), (40, 20));
    }
}

#[test]
fn a_bound_on_failures_fails_the_pipeline_when_it_is_passed() {
    let pipe = |op: Op<usize, usize>| Pipeline::builder().source(1..12).pipe("threes", op, 1).sink(1).build(1).unwrap();
    assert_eq!(numbers(&pipe(Op::cpu(no_threes).skip_failures().max_failures(3))).len(), 8);
    let error = pipe(Op::cpu(no_threes).skip_failures().max_failures(2)).iter(LONG).find_map(Result::err).unwrap();
    let expected = "more than 2 items failed in stage `threes`, the limit of its `max_failures`; \
                    the last: stage `threes` failed: error at 9";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn one_item_becomes_many_with_failures_of_their_own() {
    let parts = |item: usize| {
        let part = move |part| if part == 2 { Err(format!("no part 2 of {item}")) } else { Ok(item * 10 + part) };
        if item == 3 { Err("nothing of 3".to_owned()) } else { Ok((0..item).map(part)) }
    };
    for op in [Op::cpu_many(parts), Op::blocking_many(parts)] {
        let pipeline = Pipeline::builder().source(0..6).pipe("parts", op.skip_failures(), 3).sink(1).build(2).unwrap();
        assert_eq!(numbers(&pipeline), [10, 20, 21, 40, 41, 43, 50, 51, 53, 54]);
        let stats = &pipeline.stats()[1];
        assert_eq!((stats.items, stats.failures), (10, 3));
    }
}

#[test]
fn panics_anywhere_become_errors_that_name_the_stage() {
    let source = (0..).map(|item: usize| if item == 2 { resume_unwind(Box::new("no more")) } else { item });
    let pipeline = Pipeline::builder().source(source).aggregate(1).sink(1).build(1).unwrap();
    let error = pipeline.iter(LONG).find_map(Result::err).unwrap();
    assert_eq!(error.to_string(), "stage `source` panicked: no more");
}
