//! Tests of how many operations run at once, and how many items wait.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::channel,
    },
};

use super::{LONG, cpu, gated, numbers};
use crate::{Op, OutputOrder, Pipeline};

#[test]
fn asynchronous_operations_overlap() {
    // Each of four operations waits for all four: with less concurrency the test would never end.
    let barrier = Arc::new(tokio::sync::Barrier::new(4));
    let op = Op::asynchronous(move |item: usize| {
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
            Ok::<_, Infallible>(item)
        }
    });
    let pipeline = Pipeline::builder().source(0..20).pipe("meet", op, 4).sink(1).build(1).unwrap();
    assert_eq!(numbers(&pipeline), (0..20).collect::<Vec<_>>());
}

#[test]
fn blocking_operations_leave_the_threads_of_the_pool_alone() {
    // Item 0 blocks until the only thread of the pool has computed another item.
    let (computed, wait_for_it) = channel();
    let wait_for_it = Mutex::new(wait_for_it);
    let block = move |item: usize| {
        if item == 0 {
            wait_for_it.lock().unwrap().recv_timeout(LONG).unwrap();
        }
        Ok::<_, Infallible>(item)
    };
    let compute = move |item: usize| {
        let _ = computed.send(item);
        item
    };
    let pipeline = Pipeline::builder()
        .source(0..20)
        .pipe("block", Op::blocking(block).order(OutputOrder::Completion), 2)
        .pipe("compute", cpu(compute), 1)
        .sink(20)
        .build(1)
        .unwrap();
    let mut items = numbers(&pipeline);
    items.sort_unstable();
    assert_eq!(items, (0..20).collect::<Vec<_>>());
}

#[test]
fn an_endless_operation_makes_no_more_than_there_is_room_for() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let endless = move |_| {
        let counted = counted.clone();
        Ok::<_, Infallible>(std::iter::repeat_with(move || Ok(counted.fetch_add(1, SeqCst))))
    };
    let pipeline = Pipeline::builder().source(0..1).pipe("count", Op::cpu_many(endless), 1).sink(2).build(1).unwrap();
    for (consumed, item) in pipeline.iter(LONG).take(500).enumerate() {
        assert_eq!(item.unwrap(), consumed);
        assert!(made.load(SeqCst) <= consumed + 8, "{} made, {consumed} consumed", made.load(SeqCst));
    }
    pipeline.stop();
}

#[test]
fn items_behind_the_first_make_results_ahead_as_many_as_there_is_room_for() {
    // The first item waits until the second has made all results that there is room for: 2 in the sink, 2 in progress.
    const ROOM: usize = 2 + 2;
    let made = Arc::new(AtomicUsize::new(0));
    let (reached, full) = channel();
    let full = Arc::new(Mutex::new(full));
    let (counted, wait) = (made.clone(), full);
    let many = move |item: usize| {
        let (counted, reached, wait) = (counted.clone(), reached.clone(), wait.clone());
        Ok::<_, Infallible>((0..20).map(move |part| {
            if item == 0 && part == 0 {
                wait.lock().unwrap().recv_timeout(LONG).expect("the second item runs ahead");
            }
            if item == 1 && counted.fetch_add(1, SeqCst) + 1 == ROOM {
                reached.send(()).unwrap();
            }
            Ok(item * 100 + part)
        }))
    };
    let pipeline = Pipeline::builder().source(0..3).pipe("many", Op::cpu_many(many), 2).sink(2).build(2).unwrap();
    let mut items = pipeline.iter(LONG).map(Result::unwrap);
    assert_eq!(items.next(), Some(0));
    assert_eq!(made.load(SeqCst), ROOM, "no more wait than there is room for");
    let expected = (0..3).flat_map(|item| (0..20).map(move |part| item * 100 + part));
    assert_eq!(items.collect::<Vec<_>>(), expected.skip(1).collect::<Vec<_>>());
    assert_eq!(pipeline.stats()[1].items, 60);
}

#[test]
fn concurrency_changes_while_the_pipeline_runs() {
    // Operations report that they have begun and wait for their release, so the test sees how many run at once.
    let (openers, wait) = gated(40);
    let (begun, begins) = channel();
    let op = cpu(move |item| {
        begun.send(item).unwrap();
        wait(item)
    });
    let pipeline =
        Pipeline::builder().source(0..40).pipe("wait", op.order(OutputOrder::Completion), 1).sink(40).build(4).unwrap();
    let begin = move || begins.recv_timeout(LONG).unwrap();
    assert_eq!(begin(), 0);
    pipeline.set_concurrency("wait", 3).unwrap();
    openers[0].send(()).unwrap();
    let at_once: HashSet<usize> = [begin(), begin(), begin()].into();
    assert_eq!(at_once, HashSet::from([1, 2, 3]), "three run at once, as none was released");
    drop(openers);
    assert_eq!(numbers(&pipeline).len(), 40);

    let error = |stage, concurrency| pipeline.set_concurrency(stage, concurrency).unwrap_err().to_string();
    assert_eq!(error("wait", 0), "a concurrency of 0 would stop stage `wait`; it must be at least 1");
    assert_eq!(error("sink", 2), "the pipeline has no pipe `sink`; it has `wait`");
}

#[test]
fn a_slow_consumer_holds_the_source_up() {
    // The pipe has 2 in progress and 3 can wait behind it in the sink; 2 can wait in front of it, and the source has 1 in
    // progress.
    const AHEAD: usize = 3 + 2 + 2 + 1;
    let taken = Arc::new(AtomicUsize::new(0));
    let (reached, full) = channel();
    let source = {
        let taken = taken.clone();
        (0..).inspect(move |_| {
            if taken.fetch_add(1, SeqCst) + 1 == AHEAD {
                reached.send(()).unwrap();
            }
        })
    };
    let pipeline =
        Pipeline::builder().source(source).pipe("pass", cpu(|item: usize| item), 2).sink(3).build(2).unwrap();
    full.recv_timeout(LONG).expect("the queues fill up");
    let mut items = pipeline.iter(LONG);
    for consumed in 0..500 {
        assert!(taken.load(SeqCst) <= consumed + AHEAD, "{} taken, {consumed} consumed", taken.load(SeqCst));
        assert_eq!(items.next().unwrap().unwrap(), consumed);
    }
}
