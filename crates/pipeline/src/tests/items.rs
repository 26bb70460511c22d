//! Tests of the items that leave a pipeline, and of their order.

use std::{collections::HashSet, convert::Infallible};

use super::{LONG, cpu, gated, no_threes, numbers};
use crate::{Op, OutputOrder, Pipeline, Stages};

#[test]
fn results_leave_in_the_order_of_their_inputs_whatever_order_they_are_done_in() {
    let (openers, wait) = gated(4);
    let pipeline = Pipeline::builder().source(0..4).pipe("wait", cpu(wait), 4).sink(4).build(4).unwrap();
    for opener in openers.iter().rev() {
        opener.send(()).unwrap();
    }
    assert_eq!(numbers(&pipeline), [0, 1, 2, 3]);
}

#[test]
fn results_leave_in_order_of_completion_where_the_op_allows_it() {
    let (openers, wait) = gated(4);
    let op = cpu(wait).order(OutputOrder::Completion);
    let pipeline = Pipeline::builder().source(0..4).pipe("wait", op, 4).sink(4).build(4).unwrap();
    let mut items = pipeline.iter(LONG);
    for item in [2, 0, 3, 1] {
        openers[item].send(()).unwrap();
        assert_eq!(items.next().unwrap().unwrap(), item);
    }
    assert!(items.next().is_none());
}

#[test]
fn the_last_item_follows_all_others_and_no_error() {
    let identity = || cpu(|item: usize| item).order(OutputOrder::Completion);
    let pipeline = Pipeline::builder().source(0..50).pipe("same", identity(), 4).followed_by("last", 50);
    let pipeline = pipeline.pipe("collect", identity(), 1).sink(2).build(3).unwrap();
    let found = numbers(&pipeline);
    assert_eq!(found.last(), Some(&50));
    assert_eq!(found.into_iter().collect::<HashSet<_>>().len(), 51);

    let empty = Pipeline::builder().source(0..0).followed_by("last", 7).sink(1).build(1).unwrap();
    assert_eq!(numbers(&empty), [7]);

    let failing = Pipeline::builder().source(1..9).pipe("threes", Op::cpu(no_threes), 1).followed_by("last", 9);
    let failing = failing.sink(1).build(1).unwrap();
    let found: Vec<_> = failing.iter(LONG).map(|item| item.map_err(|error| error.to_string())).collect();
    assert_eq!(found, [Ok(1), Ok(2), Err("stage `threes` failed: error at 3".to_owned())]);
}

#[test]
fn lists_are_made_and_taken_apart() {
    let lists = Pipeline::builder().source(0..7).aggregate(3).sink(1).build(1).unwrap();
    let lists: Vec<Vec<i32>> = lists.iter(LONG).collect::<Result<_, _>>().unwrap();
    assert_eq!(lists, [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);

    let pipeline = Pipeline::builder()
        .source_stream(futures::stream::iter(0..100usize))
        .aggregate(8)
        .pipe(
            "reverse",
            cpu(|mut list: Vec<usize>| {
                list.reverse();
                list
            }),
            2,
        )
        .disaggregate()
        .aggregate(100)
        .disaggregate()
        .sink(1)
        .build(2)
        .unwrap();
    let expected: Vec<usize> = (0..104).map(|at| at / 8 * 8 + 7 - at % 8).collect();
    assert_eq!(numbers(&pipeline)[..96], expected[..96]);
    let names: Vec<String> = pipeline.stats().into_iter().map(|stats| stats.stage.to_string()).collect();
    let all = ["source", "aggregate", "reverse", "disaggregate", "aggregate-2", "disaggregate-2", "sink"];
    assert_eq!(names, all);
}

#[test]
fn an_item_can_be_left_out_and_is_no_failure() {
    let odd = |item: usize| Ok::<_, Infallible>((item % 2 == 1).then_some(item));
    for op in [Op::cpu_filter_map(odd), Op::asynchronous_filter_map(move |item| std::future::ready(odd(item)))] {
        let pipeline = Pipeline::builder().source(0..9).pipe("odd", op, 3).sink(1).build(2).unwrap();
        assert_eq!(numbers(&pipeline), [1, 3, 5, 7]);
        assert_eq!((pipeline.stats()[1].items, pipeline.stats()[1].failures), (4, 0));
    }
}

#[test]
fn a_shorter_rest_is_kept_or_dropped() {
    let lists = |stages: Stages<Vec<usize>>| -> Vec<Vec<usize>> {
        stages.sink(1).build(1).unwrap().iter(LONG).collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(lists(Pipeline::builder().source(0..5).aggregate(2)), [vec![0, 1], vec![2, 3], vec![4]]);
    assert_eq!(lists(Pipeline::builder().source(0..5).aggregate_full(2)), [[0, 1], [2, 3]]);
}
