//! Tests of how a pipeline ends: drained, stopped or dropped; and of the errors of a consumer that waits in vain.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{Sender, channel},
    },
    time::Duration,
};

use super::{LONG, cpu, gated};
use crate::{Op, Pipeline};

/// Wait for an event that must not happen.
const SHORT: Duration = Duration::from_millis(50);

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
