//! Tests of the public API of the engine. They order events with channels and have generous limits; they never sleep.

use std::{
    collections::HashSet,
    convert::Infallible,
    panic::resume_unwind,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use super::*;

/// Limit for an event that has to happen; far longer than any of them takes.
const LONG: Duration = Duration::from_secs(60);
/// Wait for an event that must not happen.
const SHORT: Duration = Duration::from_millis(50);

fn cpu<T: Send + 'static, U: Send + 'static>(f: impl Fn(T) -> U + Send + Sync + 'static) -> Op<T, U> {
    Op::cpu(move |item| Ok::<_, Infallible>(f(item)))
}

/// Returns an operation on numbers that blocks until the test releases it, and one sender per number to release it.
fn gated(count: usize) -> (Vec<Sender<()>>, impl Fn(usize) -> usize + Send + Sync + 'static) {
    let (openers, gates): (Vec<Sender<()>>, Vec<Receiver<()>>) = (0..count).map(|_| channel()).unzip();
    let gates: Vec<Mutex<Receiver<()>>> = gates.into_iter().map(Mutex::new).collect();
    (openers, move |item: usize| {
        // A gate whose sender was dropped is open.
        let _ = gates[item].lock().unwrap().recv();
        item
    })
}

fn numbers(pipeline: &Pipeline<usize>) -> Vec<usize> {
    pipeline.iter(LONG).collect::<Result<_, _>>().unwrap()
}

/// Fails on multiples of three, with an error or a panic.
fn no_threes(item: usize) -> Result<usize, String> {
    match item % 6 {
        0 => resume_unwind(Box::new(format!("panic at {item}"))),
        3 => Err(format!("error at {item}")),
        _ => Ok(item),
    }
}

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
fn an_item_can_be_left_out_and_is_no_failure() {
    let odd = |item: usize| Ok::<_, Infallible>((item % 2 == 1).then_some(item));
    for op in [Op::cpu_filter_map(odd), Op::asynchronous_filter_map(move |item| std::future::ready(odd(item)))] {
        let pipeline = Pipeline::builder().source(0..9).pipe("odd", op, 3).sink(1).build(2).unwrap();
        assert_eq!(numbers(&pipeline), [1, 3, 5, 7]);
        assert_eq!((pipeline.stats()[1].items, pipeline.stats()[1].failures), (4, 0));
    }
}

#[test]
fn failures_can_be_replaced() {
    let op = Op::asynchronous(async |item| no_threes(item)).replace_failures(|error| error.to_string().len());
    let pipeline = Pipeline::builder().source(1..5).pipe("threes", op, 2).sink(1).build(1).unwrap();
    assert_eq!(numbers(&pipeline), [1, 2, "stage `threes` failed: error at 3".len(), 4]);
    assert_eq!(pipeline.stats()[1].failures, 1);
}

#[test]
fn a_failed_item_is_tried_again_as_often_as_asked() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let fails_twice = move |item: usize| {
        let attempt = counted.fetch_add(1, SeqCst) + 1;
        if item == 1 && attempt < 4 { Err(format!("attempt {attempt}")) } else { Ok(item) }
    };
    let pipe = |op: Op<usize, usize>| Pipeline::builder().source(0..3).pipe("flaky", op, 1).sink(1).build(1).unwrap();
    let pipeline = pipe(Op::cpu(fails_twice.clone()).retry(2));
    assert_eq!(numbers(&pipeline), [0, 1, 2]);
    assert_eq!((attempts.load(SeqCst), pipeline.stats()[1].failures), (5, 0), "item 1 has three attempts");

    attempts.store(0, SeqCst);
    let pipeline = pipe(Op::asynchronous(move |item| std::future::ready(fails_twice(item))).retry(1));
    let error = pipeline.iter(LONG).find_map(Result::err).unwrap();
    assert_eq!(error.to_string(), "stage `flaky` failed: attempt 3");
}

#[test]
fn a_bound_on_failures_fails_the_pipeline_when_it_is_passed() {
    let pipe = |op: Op<usize, usize>| Pipeline::builder().source(1..12).pipe("threes", op, 1).sink(1).build(1).unwrap();
    assert_eq!(numbers(&pipe(Op::cpu(no_threes).skip_failures().max_failures(3))).len(), 8);
    for op in [Op::cpu(no_threes).skip_failures(), Op::cpu(no_threes).replace_failures(|_| 0)] {
        let error = pipe(op.max_failures(2)).iter(LONG).find_map(Result::err).unwrap();
        let expected = "more than 2 items failed in stage `threes`, the limit of its `max_failures`; \
                        the last: stage `threes` failed: error at 9";
        assert_eq!(error.to_string(), expected);
    }
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
fn a_shorter_rest_is_kept_or_dropped() {
    let lists = |stages: Stages<Vec<usize>>| -> Vec<Vec<usize>> {
        stages.sink(1).build(1).unwrap().iter(LONG).collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(lists(Pipeline::builder().source(0..5).aggregate(2)), [vec![0, 1], vec![2, 3], vec![4]]);
    assert_eq!(lists(Pipeline::builder().source(0..5).aggregate_full(2)), [[0, 1], [2, 3]]);
}

#[test]
fn a_drained_pipeline_gives_what_is_in_flight_and_ends() {
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = taken.clone();
    let source = (0..).inspect(move |_| {
        counted.fetch_add(1, SeqCst);
    });
    let stream = futures::stream::iter(0..);
    let from_iterator = Pipeline::builder().source(source);
    let from_stream = Pipeline::builder().source_stream(stream);
    for stages in [from_iterator, from_stream] {
        let pipeline = stages.pipe("pass", cpu(|item: usize| item), 2).aggregate(3).sink(2).build(2).unwrap();
        let mut items = pipeline.iter(LONG);
        let first = items.next().unwrap().unwrap();
        pipeline.drain();
        let rest: Vec<usize> = first.into_iter().chain(items.flat_map(Result::unwrap)).collect();
        assert_eq!(rest, (0..rest.len()).collect::<Vec<_>>());
        let from_source = pipeline.stats()[0].items as usize;
        assert_eq!(rest.len(), from_source, "each item that was taken from the source came out");
    }
    assert!(taken.load(SeqCst) < 100, "the source was asked no more");
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
fn panics_anywhere_become_errors_that_name_the_stage() {
    let source = (0..).map(|item: usize| if item == 2 { resume_unwind(Box::new("no more")) } else { item });
    let pipeline = Pipeline::builder().source(source).aggregate(1).sink(1).build(1).unwrap();
    let error = pipeline.iter(LONG).find_map(Result::err).unwrap();
    assert_eq!(error.to_string(), "stage `source` panicked: no more");

    let op = Op::cpu(no_threes).replace_failures(|_| resume_unwind(Box::new("no replacement")));
    let pipeline = Pipeline::builder().source(3..4).pipe("threes", op, 2).sink(1).build(1).unwrap();
    let error = pipeline.iter(LONG).find_map(Result::err).unwrap();
    assert_eq!(error.to_string(), "stage `threes` panicked: no replacement");
}

#[test]
fn a_timeout_names_the_stage_that_is_stuck() {
    let (openers, wait) = gated(3);
    let (entered, enters) = channel();
    let slow = move |item| {
        entered.send(item).unwrap();
        wait(item)
    };
    let (item, items_from_test) = channel();
    let pipeline = Pipeline::builder()
        .source(items_from_test)
        .pipe("quick", cpu(|item: usize| item), 2)
        .pipe("slow", cpu(slow), 2)
        .aggregate(2)
        .sink(1)
        .build(3)
        .unwrap();
    let mut items = pipeline.iter(SHORT);
    let error = items.next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "no item within 50ms: stage `source` has no next item yet");
    assert!(error.is_retryable());

    item.send(0).unwrap();
    item.send(1).unwrap();
    let both: HashSet<usize> = [enters.recv_timeout(LONG).unwrap(), enters.recv_timeout(LONG).unwrap()].into();
    assert_eq!(both, HashSet::from([0, 1]));
    let error = items.next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "no item within 50ms: stage `slow` is working on 2 items");

    drop(openers);
    drop(item);
    assert_eq!(pipeline.iter(LONG).collect::<Result<Vec<_>, _>>().unwrap(), [[0, 1]]);
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

/// Sends a message when it is dropped.
struct DropSignal(Sender<()>);

impl Drop for DropSignal {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn a_pipeline_dropped_in_the_middle_lets_go_of_everything() {
    let (sender, gone) = channel();
    let [in_source, in_cpu, in_async] = [(); 3].map(|()| DropSignal(sender.clone()));
    drop(sender);
    let pipeline = Pipeline::builder()
        .source((0..).inspect(move |_: &usize| {
            let _ = &in_source;
        }))
        .pipe("compute", cpu(move |item: usize| (&in_cpu, item).1), 3)
        .pipe(
            "wait",
            Op::asynchronous(move |item: usize| {
                let _ = &in_async;
                // From the tenth item on, it never ends by itself.
                async move { if item < 10 { Ok::<_, Infallible>(item) } else { std::future::pending().await } }
            }),
            3,
        )
        .sink(2)
        .build(2)
        .unwrap();
    let items: Vec<usize> = pipeline.iter(LONG).take(10).collect::<Result<_, _>>().unwrap();
    assert_eq!(items, (0..10).collect::<Vec<_>>());
    drop(pipeline);
    for _ in 0..3 {
        gone.recv_timeout(LONG).expect("the source and both operations are dropped");
    }
    assert!(gone.recv_timeout(LONG).is_err(), "no more than three were made");
}

#[test]
fn stopping_waits_for_every_thread() {
    let (sender, gone) = channel();
    let (running, started) = channel();
    let drop_signal = DropSignal(sender);
    let op = cpu(move |item: usize| {
        let _ = (&drop_signal, running.send(item));
        item
    });
    let pipeline = Pipeline::builder().source(0..).pipe("compute", op, 2).sink(1).build(2).unwrap();
    started.recv_timeout(LONG).unwrap();
    pipeline.stop();
    gone.try_recv().expect("nothing is left of the operation when `stop` returns");
}

#[tokio::test]
async fn a_pipeline_can_be_dropped_on_an_event_loop() {
    let pipeline = Pipeline::builder().source(0..).pipe("pass", cpu(|item: usize| item), 2).sink(1).build(1).unwrap();
    drop(pipeline);
}

#[test]
fn the_end_is_reached_with_stats_that_add_up() {
    let op = cpu(|item: usize| item * 2).count_bytes(|item| *item as u64);
    let pipeline = Pipeline::builder().source(0..1000).pipe("double", op, 3).sink(4).build(2).unwrap();
    assert_eq!(numbers(&pipeline).len(), 1000);
    assert!(pipeline.iter(LONG).next().is_none(), "the end stays the end");
    let stats = pipeline.stats();
    assert!(stats.iter().all(|stage| stage.items == 1000), "{stats:?}");
    assert!(stats.iter().all(|stage| stage.queue_depth == 0), "{stats:?}");
    assert_eq!(stats[1].bytes, 999_000);
    assert!(stats[1].busy_ns > 0 && stats[1].p50_ns <= stats[1].p99_ns);
}

#[test]
fn the_four_times_of_each_stage_add_up_to_its_time() {
    let before_start = Instant::now();
    let pipeline = Pipeline::builder()
        .source(0..2000)
        .pipe("compute", cpu(|item: usize| item), 3)
        .pipe("wait", Op::asynchronous(async |item| Ok::<_, Infallible>(item)), 4)
        .pipe("block", Op::blocking(Ok::<_, Infallible>), 2)
        .pipe("many", Op::cpu_many(|item| Ok::<_, Infallible>(std::iter::once(Ok(item)))), 2)
        .aggregate(10)
        .disaggregate()
        .sink(4)
        .build(1)
        .unwrap();
    let after_start = Instant::now();
    assert!(pipeline.iter(LONG).take(1999).all(|item| item.is_ok()));
    let before_end = Instant::now();
    assert_eq!(numbers(&pipeline), [1999]);
    let after_end = Instant::now();
    let units = [1, 3, 4, 2, 2, 1, 1, 1];
    for (stats, units) in pipeline.stats().into_iter().zip(units) {
        assert_eq!(stats.units, u64::from(units), "{}", stats.stage);
        let sum = Duration::from_nanos(stats.unit_ns());
        let (least, most) = ((before_end - after_start) * units, (after_end - before_start) * units);
        assert!((least..=most).contains(&sum), "{sum:?} of `{}` is not in {least:?}..={most:?}", stats.stage);
    }
}

#[test]
fn what_cannot_be_built_is_an_error_with_the_reason() {
    let pipe = |concurrency| Pipeline::builder().source(0..3).pipe("same", cpu(|item: i32| item), concurrency);
    let error = |plan: PipelinePlan<i32>, threads| plan.build(threads).err().unwrap().to_string();
    assert_eq!(error(pipe(0).sink(1), 1), "`concurrency` of stage `same` is 0; it must be at least 1");
    assert_eq!(error(pipe(1).sink(0), 1), "`buffer` of the sink is 0; it must be at least 1");
    assert_eq!(error(pipe(1).sink(1), 0), "`threads` is 0; it must be at least 1");
    assert_eq!(error(pipe(1).pipe("same", cpu(|item| item), 1).sink(1), 1), "there are two stages `same`");
    let lists = Pipeline::builder().source(0..3).aggregate(0).sink(1).build(1);
    assert_eq!(lists.err().unwrap().to_string(), "`count` of stage `aggregate` is 0; it must be at least 1");
}
