//! Runs the engine, as it is, under many interleavings of its threads, which the checker `shuttle` chooses. It finds wake-ups that are
//! lost, as deadlocks, and results that depend on who comes first. `.ci/run interleavings` builds it with `--cfg shuttle`.
#![cfg(shuttle)]

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use shuttle::thread;
use spdl_pipeline::{Branches, Op, OutputOrder, Pipeline, Stages};

const SCHEDULES: usize = 1500;
/// The checker's clock does not move, so no wait ends by this.
const LONG: Duration = Duration::from_secs(3600);

/// An operation that lets other threads run in the middle.
fn yielding(item: usize) -> Result<usize, Infallible> {
    thread::yield_now();
    Ok(item)
}

fn numbers(pipeline: &Pipeline<usize>) -> Vec<usize> {
    pipeline.iter(LONG).collect::<Result<_, _>>().unwrap()
}

#[test]
fn results_are_complete_and_in_order() {
    let run = || {
        let pipeline = Pipeline::builder()
            .source(0..6)
            .pipe("cpu", Op::cpu(yielding), 2)
            .pipe("block", Op::blocking(yielding), 2)
            .sink(1)
            .build(2)
            .unwrap();
        assert_eq!(numbers(&pipeline), (0..6).collect::<Vec<_>>());
        pipeline.stop();
    };
    shuttle::check_random(run, SCHEDULES);
    shuttle::check_pct(run, SCHEDULES, 3);
}

#[test]
fn lists_and_items_that_become_many_are_complete() {
    let run = || {
        let many = Op::cpu_many(|item| Ok::<_, Infallible>((0..item).map(move |_| yielding(item))));
        let pipeline = Pipeline::builder()
            .source(0..4)
            .pipe("many", many, 2)
            .aggregate(4)
            .disaggregate()
            .pipe("skip", Op::cpu(|item| if item == 2 { Err("two") } else { Ok(item) }).skip_failures(), 2)
            .sink(1)
            .build(2)
            .unwrap();
        assert_eq!(numbers(&pipeline), [1, 3, 3, 3]);
        pipeline.stop();
    };
    shuttle::check_random(run, SCHEDULES);
}

#[test]
fn results_that_are_made_ahead_come_in_order() {
    let run = || {
        let many = |item: usize| Ok::<_, Infallible>((0..2).map(move |part| yielding(2 * item + part)));
        let pipe = Pipeline::builder().source(0..3).pipe("many", Op::blocking_many(many), 3);
        let pipeline = pipe.sink(1).build(1).unwrap();
        assert_eq!(numbers(&pipeline), (0..6).collect::<Vec<_>>());
        pipeline.stop();
    };
    shuttle::check_random(run, SCHEDULES);
    shuttle::check_pct(run, SCHEDULES, 3);
}

#[test]
fn a_pipeline_stops_at_any_point() {
    shuttle::check_random(
        || {
            let op = Op::blocking(yielding).order(OutputOrder::Completion);
            let pipeline = Pipeline::builder().source(0..).pipe("block", op, 2).sink(1).build(1).unwrap();
            assert!(pipeline.iter(LONG).take(2).all(|item| item.is_ok()));
            pipeline.stop();
        },
        SCHEDULES,
    );
}

#[test]
fn a_pipeline_drains_at_any_point_and_its_concurrency_changes() {
    shuttle::check_random(
        || {
            let taken = Arc::new(AtomicUsize::new(0));
            let counted = taken.clone();
            let source = (0..).inspect(move |_| {
                counted.fetch_add(1, SeqCst);
            });
            let pipeline =
                Pipeline::builder().source(source).pipe("cpu", Op::cpu(yielding), 2).sink(1).build(2).unwrap();
            pipeline.set_concurrency("cpu", 1).unwrap();
            let first = pipeline.iter(LONG).next().unwrap().unwrap();
            pipeline.set_concurrency("cpu", 3).unwrap();
            pipeline.drain();
            let rest = numbers(&pipeline);
            assert_eq!(first, 0);
            assert_eq!(rest, (1..taken.load(SeqCst)).collect::<Vec<_>>());
            pipeline.stop();
        },
        SCHEDULES,
    );
}

#[test]
fn a_failure_ends_every_thread() {
    shuttle::check_random(
        || {
            let fail = Op::cpu(|item| if item == 2 { Err("two") } else { Ok(item) });
            let pipeline = Pipeline::builder()
                .source(0..)
                .pipe("block", Op::blocking(yielding), 2)
                .pipe("fail", fail, 2)
                .sink(1)
                .build(2)
                .unwrap();
            let items: Vec<_> = pipeline.iter(LONG).collect();
            assert_eq!(items.iter().filter(|item| item.is_ok()).count(), 2);
            assert_eq!(items[2].as_ref().unwrap_err().to_string(), "stage `fail` failed: two");
            pipeline.stop();
        },
        SCHEDULES,
    );
}

#[test]
fn results_of_branches_are_complete_and_in_order() {
    let run = || {
        let branches = Branches::new()
            .branch(|stages: Stages<usize>| stages.pipe("even", Op::cpu(yielding), 2))
            .branch(|stages| stages.pipe("odd", Op::blocking(yielding), 1));
        let pipeline = Pipeline::builder()
            .source(0..5)
            .route("parity", Op::router(|item| item % 2), 1, branches)
            .sink(1)
            .build(2)
            .unwrap();
        assert_eq!(numbers(&pipeline), [0, 1, 2, 3, 4]);
        pipeline.stop();
    };
    shuttle::check_random(run, SCHEDULES);
    shuttle::check_pct(run, SCHEDULES, 3);
}

#[test]
fn merged_sources_are_complete_and_stop_at_any_point() {
    shuttle::check_random(
        || {
            let sources = [0..2, 2..4].map(|items| Pipeline::builder().source(items));
            let branches = Branches::new().order(OutputOrder::Completion);
            let branches = branches
                .branch(|stages: Stages<usize>| stages.pipe("slow", Op::cpu(yielding), 1))
                .branch(|stages| stages);
            let merged = Pipeline::builder().merge("sources", sources);
            let routed = merged.route("route", Op::router(|item| item % 2), 1, branches);
            let pipeline = routed.sink(1).build(2).unwrap();
            let taken = pipeline.iter(LONG).take(3).map(Result::unwrap).count();
            assert_eq!(taken, 3);
            pipeline.drain();
            assert!(pipeline.iter(LONG).count() <= 1);
            pipeline.stop();
        },
        SCHEDULES,
    );
}
