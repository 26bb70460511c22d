//! Branches and merged sources, one by one; `random` composes them. Events are ordered by channels.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use spdl_pipeline::{Branches, Op, OutputOrder, Pipeline, PipelinePlan, Stages};

/// Limit for an event that has to happen; far longer than any of them takes.
const LONG: Duration = Duration::from_secs(60);

fn cpu<T: Send + 'static, U: Send + 'static>(f: impl Fn(T) -> U + Send + Sync + 'static) -> Op<T, U> {
    Op::cpu(move |item| Ok::<_, Infallible>(f(item)))
}

fn all<T: Send + 'static>(stages: Stages<T>) -> Vec<T> {
    stages.sink(2).build(3).unwrap().iter(LONG).collect::<Result<_, _>>().unwrap()
}

/// Returns an operation that blocks on item 0 until the test releases it.
fn gated() -> (Sender<()>, impl Fn(usize) -> usize + Send + Sync + 'static) {
    let (opener, gate): (Sender<()>, Receiver<()>) = channel();
    let gate = Mutex::new(gate);
    (opener, move |item: usize| {
        if item == 0 {
            let _ = gate.lock().unwrap().recv();
        }
        item
    })
}

/// Routes even numbers to a branch with `even`, and odd numbers past it.
fn by_parity(order: OutputOrder, even: Op<usize, usize>) -> Stages<usize> {
    let branches = Branches::new()
        .order(order)
        .branch(move |stages: Stages<usize>| stages.pipe("even", even, 2))
        .branch(|stages| stages);
    Pipeline::builder().source(0..40).route("parity", Op::router(|item| item % 2), 1, branches)
}

#[test]
fn results_of_branches_leave_in_the_order_of_the_items() {
    let (opener, wait) = gated();
    let pipeline = by_parity(OutputOrder::Input, cpu(wait)).sink(1).build(2).unwrap();
    assert!(pipeline.iter(Duration::from_millis(20)).next().unwrap().unwrap_err().is_retryable(), "item 0 is first");
    drop(opener);
    let items: Vec<usize> = pipeline.iter(LONG).collect::<Result<_, _>>().unwrap();
    assert_eq!(items, (0..40).collect::<Vec<_>>());
}

#[test]
fn a_slow_branch_holds_no_other_branch_up_where_results_leave_in_the_order_of_completion() {
    let (opener, wait) = gated();
    let pipeline =
        by_parity(OutputOrder::Completion, cpu(wait).order(OutputOrder::Completion)).sink(1).build(2).unwrap();
    let mut items = pipeline.iter(LONG).map(Result::unwrap);
    let first: Vec<usize> = items.by_ref().take(3).collect();
    assert!(!first.contains(&0), "{first:?}");
    drop(opener);
    let all: HashSet<usize> = first.into_iter().chain(items).collect();
    assert_eq!(all, (0..40).collect());
}

#[test]
fn what_a_branch_leaves_out_or_collects_keeps_its_place() {
    let op = Op::cpu(|item| if item % 3 == 0 { Err("a third") } else { Ok(item) }).skip_failures();
    assert_eq!(all(by_parity(OutputOrder::Input, op)), (0..40).filter(|item| item % 6 != 0).collect::<Vec<_>>());

    let branches = Branches::new()
        .branch(|stages: Stages<usize>| stages.aggregate(3))
        .branch(|stages| stages.pipe("alone", cpu(|item| vec![item]), 1));
    let lists = Pipeline::builder().source(0..11).route("parity", Op::router(|item| item % 2), 1, branches);
    let expected: [&[usize]; 8] = [&[1], &[3], &[0, 2, 4], &[5], &[7], &[9], &[6, 8, 10], &[]];
    assert_eq!(all(lists), expected[..7]);
}

#[test]
fn a_number_without_a_branch_fails_the_pipeline() {
    let branches = Branches::new().branch(|stages: Stages<usize>| stages);
    let stages = Pipeline::builder().source(0..3).route("parity", Op::router(|item| item % 2), 1, branches);
    let pipeline = stages.sink(1).build(1).unwrap();
    let items: Vec<_> = pipeline.iter(LONG).collect();
    assert_eq!(*items[0].as_ref().unwrap(), 0);
    let expected =
        "stage `parity` failed: the number of an item's branch is 1; it must be below 1, the number of branches";
    assert_eq!(items[1].as_ref().unwrap_err().to_string(), expected);
    assert_eq!(items.len(), 2);
}

#[test]
fn merged_sources_take_turns_and_none_is_lost() {
    let sources = [0..10, 10..20, 20..30].map(|items| Pipeline::builder().source(items));
    let merged: HashSet<usize> = all(Pipeline::builder().merge("sources", sources)).into_iter().collect();
    assert_eq!(merged, (0..30).collect());

    // A source that gives nothing yet holds no other up.
    let (_sender, silent) = channel::<usize>();
    let sources = [Pipeline::builder().source(0..5), Pipeline::builder().source_stream(futures::stream::pending())];
    let merged = Pipeline::builder().merge("sources", sources.into_iter().chain([Pipeline::builder().source(silent)]));
    let pipeline = merged.sink(1).build(1).unwrap();
    assert_eq!(pipeline.iter(LONG).take(5).map(Result::unwrap).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(pipeline.stats().iter().filter(|stats| stats.stage.to_string().starts_with("source")).count(), 4);
}

#[test]
fn the_four_times_of_each_stage_of_a_branch_add_up_to_its_time() {
    let before_start = Instant::now();
    let route = |stages: Stages<usize>, order| {
        let branches = Branches::new()
            .order(order)
            .branch(|stages: Stages<usize>| stages.pipe("one", cpu(|item| item), 2))
            .branch(|stages| stages.aggregate(2).disaggregate());
        stages.route("route", Op::router(|item| item % 2), 1, branches)
    };
    let stages = route(Pipeline::builder().source(0..2000), OutputOrder::Input);
    let pipeline = stages.pipe("kept", cpu(|item| item), 3).sink(4).build(2).unwrap();
    let after_start = Instant::now();
    assert!(pipeline.iter(LONG).take(1999).all(|item| item.is_ok()));
    let before_end = Instant::now();
    assert_eq!(pipeline.iter(LONG).count(), 1);
    let after_end = Instant::now();
    for stats in pipeline.stats() {
        let units = match &*stats.stage.to_string() {
            "one" => 2,
            "kept" => 3,
            _ => 1,
        };
        let sum = Duration::from_nanos(stats.unit_ns());
        let (least, most) = ((before_end - after_start) * units, (after_end - before_start) * units);
        assert!((least..=most).contains(&sum), "{sum:?} of `{}` is not in {least:?}..={most:?}", stats.stage);
    }
}

#[test]
fn stages_that_do_not_fit_their_branch_are_an_error_with_the_reason() {
    fn error<T: Send + 'static>(plan: PipelinePlan<T>) -> String {
        plan.build(1).err().unwrap().to_string()
    }
    let source = || Pipeline::builder().source(0..3_usize);
    let pass = || cpu(|item: usize| item);
    let branches =
        || Branches::new().branch(move |stages| stages.pipe("any", pass().order(OutputOrder::Completion), 2));
    let router = || Op::router(|_: &usize| 0);
    assert_eq!(
        error(source().route("route", router(), 1, branches()).sink(1)),
        "stage `any` gives its results in the order of completion, but `route` puts those of its branches in the order of \
         the inputs; give both the same order"
    );
    assert!(source().route("route", router(), 1, branches().order(OutputOrder::Completion)).sink(1).build(1).is_ok());
    assert_eq!(
        error(source().route("route", router(), 1, Branches::<usize, usize>::new()).sink(1)),
        "stage `route-merge` has nothing to merge; it must have at least one branch or pipeline"
    );
    let same = || Branches::new().branch(move |stages| stages.pipe("same", pass(), 1));
    let twice = source().route("one", router(), 1, same()).route("two", router(), 1, same());
    assert_eq!(error(twice.sink(1)), "there are two stages `same`");
}
